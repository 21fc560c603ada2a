"""The metadata log and its image. Every change is a batch in `__cluster_metadata-0` before anybody sees it."""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final

from ottla.base.clock import Clock
from ottla.base.errors import CorruptDataError, StorageError
from ottla.broker.metadata.end_mark import EndMark
from ottla.broker.metadata.image import TOPIC_RESOURCE, MetadataImage, TopicImage
from ottla.broker.metadata.records import (
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnknownRecordError,
    decode_record,
    encode_record,
)
from ottla.broker.told import Kind, Tell, Told, log_told
from ottla.coordinator.decision import LogRecord
from ottla.coordinator.producer_ids import ProducerIds
from ottla.log.partition import PartitionLog
from ottla.log.replay import replay
from ottla.log.results import Origin
from ottla.wire.errors import ErrorCode
from ottla.wire.producer_ids_record import is_producer_ids
from ottla.wire.records import Record, encode_batch

_log = logging.getLogger(__name__)

METADATA_VERSION_FEATURE: Final = "metadata.version"
#: 4.0-IV3. Our records are those of that version.
METADATA_VERSION: Final = 25
#: `group.version` 1: an Apache Kafka that takes the directory over offers the consumer protocol, too (KIP-848).
_GROUP_VERSION: Final = FeatureLevelRecord("group.version", 1)


class Change:
    """One batch of the metadata log on its way: `encode` in as many slices as it takes, then `commit`."""

    def __init__(
        self,
        records: Iterable[MetadataRecord],
        commit: Callable[[Sequence[bytes], Sequence[MetadataRecord]], None],
    ) -> None:
        self._coming = records
        self._commit = commit
        self._values: list[bytes] = []
        self._records: list[MetadataRecord] = []

    def encode(self) -> Iterator[None]:
        """A record in each step."""
        for record in self._coming:
            self._records.append(record)
            self._values.append(encode_record(record))
            yield

    def commit(self) -> None:
        """Write it and apply it; StorageError when it cannot be written, and then nothing has changed."""
        self._commit(self._values, self._records)


class ClusterMetadata:
    """The only writer of the metadata log."""

    def __init__(self, log: PartitionLog, mark: EndMark, node_id: int, clock: Clock) -> None:
        """`mark` says how far the changes in `log` were acknowledged."""
        self.image = MetadataImage()
        #: The directory's own `metadata.version`.
        self.metadata_version = METADATA_VERSION
        self._log = log
        self._mark = mark
        self._node_id = node_id
        self._clock = clock
        self._producer_ids = ProducerIds(node_id)

    def load(self) -> frozenset[bytes]:
        """Apply the whole log; a new one gets its first record. Returns the ids of topics that were deleted.

        Raises StorageError for a log that cannot be read.
        """
        now_ms = self._clock.now_ms()
        deleted: set[bytes] = set()
        knows_groups = False
        try:
            for batch in replay(self._log):
                for value in (record.value for record in batch.records if record.value is not None):
                    change = decode_record(value)
                    self._note_version(change)
                    self._apply(value, change, now_ms)
                    if isinstance(change, RemoveTopicRecord):
                        deleted.add(change.topic_id)
                    knows_groups = knows_groups or change == _GROUP_VERSION
        except UnknownRecordError as fault:
            raise StorageError(
                f"the metadata log (__cluster_metadata-0) holds what this version of Ottla does not know ({fault}): "
                "a newer version has written it, start that one"
            ) from fault
        except CorruptDataError as fault:
            raise StorageError(
                f"the metadata log (__cluster_metadata-0) is damaged: {fault}; put the directory back from a copy"
            ) from fault
        if self._log.end_offset == 0:
            self._append((FeatureLevelRecord(METADATA_VERSION_FEATURE, METADATA_VERSION), _GROUP_VERSION))
        elif not knows_groups:  # it was made by an earlier version
            with suppress(StorageError):  # the disk is full; nobody needs it here, so the next start will do
                self._append((_GROUP_VERSION,))
        with suppress(StorageError):  # what a killed process has written may not be on the device yet
            self._flush()
        return frozenset(deleted)

    @property
    def log(self) -> PartitionLog:
        """The log itself, to be looked at."""
        return self._log

    def _note_version(self, change: MetadataRecord) -> None:
        """StorageError when the records that follow may mean something that we do not know."""
        if not isinstance(change, FeatureLevelRecord) or change.name != METADATA_VERSION_FEATURE:
            return
        self.metadata_version = change.feature_level
        if change.feature_level > METADATA_VERSION:
            raise StorageError(
                f"the metadata log (__cluster_metadata-0) is of {METADATA_VERSION_FEATURE} {change.feature_level}, and "
                f"this version of Ottla knows them up to {METADATA_VERSION}: start the newer version that wrote it"
            )

    def change(self, records: Iterable[MetadataRecord]) -> "Change":
        """A change that becomes one batch, once it is encoded and committed."""
        return Change(records, self._commit)

    def topic_records(
        self, name: str, topic_id: bytes, partitions: int, configs: Mapping[str, str], *, directory_id: bytes
    ) -> Iterator[MetadataRecord]:
        """The records that make a topic. Its name and settings were checked."""
        yield TopicRecord(name, topic_id)
        for number in range(partitions):
            yield self._partition(topic_id, number, directory_id)
        for key, value in configs.items():
            yield ConfigRecord(TOPIC_RESOURCE, name, key, value)

    def partition_records(self, topic: TopicImage, count: int, *, directory_id: bytes) -> Iterator[MetadataRecord]:
        """The records that give the topic more partitions; `count` is the new total."""
        for number in range(len(topic.partitions), count):
            yield self._partition(topic.topic_id, number, directory_id)

    def create_topic(
        self, name: str, topic_id: bytes, partitions: int, configs: Mapping[str, str], *, directory_id: bytes
    ) -> TopicImage:
        """Make a topic at once."""
        self._append(self.topic_records(name, topic_id, partitions, configs, directory_id=directory_id))
        return self.image.topics[name]

    def removal_records(self, topics: Iterable[TopicImage]) -> Iterator[MetadataRecord]:
        """The records that make topics and their configuration go."""
        for topic in topics:
            yield RemoveTopicRecord(topic.topic_id)

    def set_configs(self, resource_type: int, resource_name: str, changes: Mapping[str, str | None]) -> None:
        """Set or, with None, remove settings. They were checked before."""
        self._append([ConfigRecord(resource_type, resource_name, key, value) for key, value in changes.items()])

    def next_producer_id(self) -> int:
        """A producer id that was never used (P2). Raises StorageError when its block cannot be made durable."""
        if self._producer_ids.wants_block:
            self._reserve()
        if self._log.needs_flush:
            # The disk has refused the sync. Without this block the next start would give the same ids once more, and
            # then one producer's batches pass for duplicates of another's.
            self._flush()
        producer_id = self._producer_ids.next_producer_id()
        if producer_id is None:
            raise StorageError("no block of producer ids is durable")
        return producer_id

    def _reserve(self) -> None:
        decision = self._producer_ids.reserve()
        values = [record.value for record in decision.records if record.value is not None]
        try:
            self._commit(values, [decode_record(value) for value in values])
        except StorageError:
            self._producer_ids.append_failed(decision, ErrorCode.KAFKA_STORAGE_ERROR)
            raise

    def mend_producer_ids(self, in_use: Iterable[int], *, is_whole: bool, tell: Tell = log_told) -> None:
        """Give out no id that is `in_use` if the log has lost records, which may have been blocks of ids.

        Else a new producer's batches would pass for duplicates of another's, and be acknowledged without being written.
        `is_whole`: every change that was acknowledged is there.
        """
        findings = self._log.findings
        if is_whole and not findings.truncated_bytes and not findings.losses:
            return
        self._producer_ids.skip(max(in_use, default=-1))
        with suppress(StorageError):  # the disk is full; the next id waits for it
            self._reserve()
        has_lost = findings.truncated_bytes or findings.losses
        undone = (
            "the last change of topics or settings, which nobody was told of, is undone"
            if is_whole
            else "the last changes of topics and settings may be undone"
        )
        text = (
            f"the metadata log ({self._log.tp}) {'has' if has_lost else 'may have'} lost its end: "
            f"the next producer ids leave a gap, and {undone}"
        )
        tell(Told(Kind.LOSS if has_lost else Kind.MADE_AGAIN, str(self._log.tp), text))

    def close(self) -> None:
        """Flush and close the log."""
        self._flush(sync_mark=True)
        self._log.close()

    def _flush(self, *, sync_mark: bool = False) -> None:
        """Bring all changes to the device, and note how far they are there. StorageError when the disk refuses."""
        self._log.flush()
        self._mark.write(self._log.end_offset, sync=sync_mark)

    def _partition(self, topic_id: bytes, number: int, directory_id: bytes) -> PartitionRecord:
        alone = (self._node_id,)
        return PartitionRecord(
            partition_id=number,
            topic_id=topic_id,
            replicas=alone,
            isr=alone,
            leader=self._node_id,
            leader_epoch=0,
            partition_epoch=0,
            directories=(directory_id,),
        )

    def _append(self, records: Iterable[MetadataRecord]) -> None:
        change = self.change(records)
        deque(change.encode(), 0)
        change.commit()

    def _commit(self, values: Sequence[bytes], records: Sequence[MetadataRecord]) -> None:
        """Append, sync, apply: in one turn of the loop, so that nobody sees one without the others."""
        if not values:
            return
        now_ms = self._clock.now_ms()
        batch = encode_batch([Record(at, now_ms, None, value, ()) for at, value in enumerate(values)])
        appended = self._log.append(batch, now_ms=now_ms, origin=Origin.COORDINATOR)
        if appended.error is not ErrorCode.NONE:
            raise StorageError(f"the metadata log refused a change: {appended.message}")
        try:
            self._flush()
        except StorageError as fault:  # the batch is in the log and counts; only a loss of power could undo it
            _log.error("a change of the metadata is not on the device yet: %s", fault)
        for value, record in zip(values, records, strict=True):
            self._apply(value, record, now_ms)

    def _apply(self, value: bytes, record: MetadataRecord, now_ms: int) -> None:
        self.image.apply(record)
        if is_producer_ids(value):
            self._producer_ids.apply(LogRecord(b"", value), now_ms)
