"""The metadata log and its image. Every change is a batch in `__cluster_metadata-0` before anybody sees it."""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Final

from ottla.base.clock import Clock
from ottla.base.errors import CorruptDataError, StorageError
from ottla.broker.access.acls import Acl
from ottla.broker.metadata.end_mark import EndMark
from ottla.broker.metadata.features import GROUP_VERSION_FEATURE, METADATA_VERSION_FEATURE
from ottla.broker.metadata.image import TOPIC_RESOURCE, MetadataImage, TopicImage
from ottla.broker.metadata.quorum import Quorum
from ottla.broker.metadata.reading import Reading, read_newest_snapshot
from ottla.broker.metadata.records import (
    METADATA_VERSION,
    AbortTransactionRecord,
    AccessControlEntryRecord,
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionRecord,
    RemoveAccessControlEntryRecord,
    RemoveTopicRecord,
    TopicRecord,
    decode_record,
    encode_record,
)
from ottla.broker.metadata.takeover import election
from ottla.broker.told import Kind, Tell, Told, log_told
from ottla.coordinator.decision import LogRecord
from ottla.coordinator.producer_ids import ProducerIds
from ottla.log.partition import PartitionLog
from ottla.log.replay import batches
from ottla.log.results import Origin
from ottla.log.storage import Storage
from ottla.wire.errors import ErrorCode
from ottla.wire.producer_ids_record import ProducerIdsRecord, encode_producer_ids
from ottla.wire.quorum_records import leader_change_batch
from ottla.wire.records import BatchBuilder, decode_batch

_log = logging.getLogger(__name__)

#: What a new directory begins with.
FIRST_RECORDS: Final = (FeatureLevelRecord(METADATA_VERSION_FEATURE, METADATA_VERSION),)
#: An Apache Kafka that takes the directory over offers the consumer protocol, too (KIP-848).
_GROUP_VERSION: Final = FeatureLevelRecord(GROUP_VERSION_FEATURE, 1)
#: A change is one batch, however many bytes it has: a request's limits bound it.
_NO_LIMIT_BYTES: Final = 2**31 - 1


class Change:
    """One batch of the metadata log on its way: `encode` in as many slices as it takes, `append`, sync, `apply`.

    What is appended counts, and cannot be taken back; only a loss of power before the sync could undo it. So `apply`
    comes after the sync, however long the device refuses it (`runtime.changes`).
    """

    def __init__(
        self,
        records: Iterable[MetadataRecord | None],
        append: Callable[[bytes], None],
        apply: Callable[[Sequence[MetadataRecord]], None],
        now_ms: int,
        metadata_version: int = METADATA_VERSION,
    ) -> None:
        """`append` writes a batch; its records are of `now_ms`."""
        self._coming = records
        self._metadata_version = metadata_version
        self._append = append
        self._apply = apply
        self._now_ms = now_ms
        self._batch = BatchBuilder(_NO_LIMIT_BYTES)
        #: Those that are not applied yet: thousands would take long to be freed together.
        self._records: deque[MetadataRecord] = deque()
        self._count = self._applied = 0
        self.is_appended = False

    def encode(self) -> Iterator[None]:
        """A record in each step, or what has led to none. What is left to `append` is a checksum and the write."""
        for record in self._coming:
            if record is not None:
                self._records.append(record)
                self._count += 1
                self._batch.try_append(self._now_ms, None, encode_record(record, self._metadata_version), ())
            yield

    def append(self) -> None:
        """Write it, if it is anything, and not there. StorageError when it cannot be written: nothing has changed."""
        if self._records and not self.is_appended:
            self._append(self._batch.build())
            self.is_appended = True

    def applying(self) -> Iterator[None]:
        """Apply a record in each step. That is for records each of which is whole without the others."""
        for end in range(1, self._count + 1):
            self.apply(end)
            yield

    def apply(self, end: int | None = None) -> None:
        """Everybody sees it from now on: its first `end` records, or all of it."""
        first, self._applied = self._applied, self._count if end is None else end
        self._apply([self._records.popleft() for _ in range(first, self._applied)])


class ClusterMetadata:
    """The only writer of the metadata log."""

    def __init__(self, log: PartitionLog, files: Storage, node_id: int, clock: Clock) -> None:
        """`files` is the folder of `log`."""
        self.image = MetadataImage()
        self._files = files
        self._quorum = Quorum(files)
        #: In which epoch of the quorum we write. It stays 0 in a directory where Apache Kafka never was.
        self._epoch = 0
        #: That of the quorum; above 0 only where Apache Kafka has set it.
        self.kraft_version = 0
        #: The offset of the log that the levels of features, as the image has them, are of: it grows when they change,
        #: and not before.
        self.features_epoch = -1
        self._log = log
        #: How far the changes were acknowledged.
        self._mark = EndMark(files)
        self._node_id = node_id
        self._clock = clock
        self._producer_ids = ProducerIds(node_id)
        #: Where the log ended behind the newest block of producer ids.
        self._ids_end = 0

    @property
    def metadata_version(self) -> int:
        """The directory's own `metadata.version`."""
        return self.image.features.get(METADATA_VERSION_FEATURE, METADATA_VERSION)

    def load(
        self, *, is_theirs: bool = False, first_records: Sequence[MetadataRecord] = FIRST_RECORDS
    ) -> frozenset[bytes]:
        """Apply the whole log, and go on with it. Returns the ids of topics that were deleted.

        A log that says nothing yet gets `first_records`. `is_theirs`: Apache Kafka was the last to write it.
        Raises StorageError for a log that cannot be read, or that the device refuses to take.
        """
        now_ms = self._clock.now_ms()
        reading = Reading(lambda record: self._apply(record, now_ms))
        try:
            for header, batch in batches(self._log, read_newest_snapshot(self._files, reading)):
                reading.batch(header, decode_batch(batch))
        except CorruptDataError as fault:
            raise StorageError(
                f"the metadata log (__cluster_metadata-0) is damaged: {fault}; put the directory back from a copy"
            ) from fault
        self.kraft_version = reading.kraft_version
        self._lead(reading, is_theirs=is_theirs)
        begun: list[MetadataRecord] = []
        if reading.is_in_transaction:
            begun.append(AbortTransactionRecord("Ottla has taken over"))
        if METADATA_VERSION_FEATURE not in self.image.features:
            begun += first_records
        begun += election(self.image, self._node_id)
        if begun:
            self.write_now(self.change(begun))
        if self.image.features.get(GROUP_VERSION_FEATURE) != _GROUP_VERSION.feature_level:
            with suppress(StorageError):  # the disk is full; nobody needs it here, so the next start will do
                self.write_now(self.change((_GROUP_VERSION,)))
        self.flush()  # what a killed process has written may not be on the device yet, and others build on it
        return frozenset(reading.deleted)

    def _lead(self, reading: Reading, *, is_theirs: bool) -> None:
        """Go on in the epoch that we lead; behind Apache Kafka, begin the next one.

        A log that has no batch of its vote's epoch has lost its end; or the vote was changed, which no checksum tells.
        """
        vote, last = self._quorum.vote, max(0, reading.epoch)
        self._epoch = last if vote is None else max(last, vote.leader_epoch)
        if is_theirs:
            self._epoch += 1
            self._quorum.lead(self._node_id, self._epoch, kraft_version=reading.kraft_version)
        if self._epoch == last:
            return
        self._write(leader_change_batch(self._node_id, self._clock.now_ms()), Origin.RAFT_LEADER)

    def sign(self) -> None:
        """Everything in the directory is taken over: from now on it is ours. StorageError."""
        self._quorum.sign()

    @property
    def leader_epoch(self) -> int:
        """In which epoch of the quorum this broker leads."""
        return self._epoch

    @property
    def end_offset(self) -> int:
        """The offset that the next record gets."""
        return self._log.end_offset

    @property
    def high_watermark(self) -> int:
        """Up to where the log is on the device: with one voter that is the majority."""
        return self._log.synced.offset

    @property
    def log(self) -> PartitionLog:
        """The log itself, to be looked at."""
        return self._log

    def change(self, records: Iterable[MetadataRecord | None]) -> "Change":
        """A change that becomes one batch. `runtime.changes` writes it."""
        return Change(records, self._append, self._apply_all, self._clock.now_ms(), self.metadata_version)

    def write_now(self, change: Change) -> None:
        """Write a change while nobody is served: wait for the device. StorageError when it cannot be written."""
        deque(change.encode(), 0)
        change.append()
        with reported_sync():
            self.flush()
        change.apply()

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

    def removal_records(self, topics: Iterable[TopicImage]) -> Iterator[MetadataRecord]:
        """The records that make topics and their configuration go."""
        for topic in topics:
            yield RemoveTopicRecord(topic.topic_id)

    def config_records(
        self, resource_type: int, resource_name: str, changes: Mapping[str, str | None]
    ) -> Iterator[MetadataRecord]:
        """The records that set or, with None, remove settings. They were checked before."""
        for key, value in changes.items():
            yield ConfigRecord(resource_type, resource_name, key, value)

    def acl_records(self, new: Mapping[bytes, Acl], gone: Iterable[bytes]) -> Iterator[MetadataRecord]:
        """The records that add ACLs under these ids, and remove those with others."""
        for acl_id, acl in new.items():
            yield AccessControlEntryRecord(acl_id, *acl)
        for acl_id in gone:
            yield RemoveAccessControlEntryRecord(acl_id)

    @property
    def wants_producer_ids(self) -> bool:
        """Whether `reserve` should be called: few ids are left, or they are not on the device."""
        return self._producer_ids.wants_block or not self._are_ids_durable

    @property
    def has_producer_ids(self) -> bool:
        """Whether `next_producer_id` has one to give."""
        return self._are_ids_durable and self._producer_ids.left > 0

    def was_given(self, producer_id: int) -> bool:
        """Whether somebody may have this producer id: it will not be given out any more."""
        return self._producer_ids.was_given(producer_id)

    def next_producer_id(self) -> int | None:
        """A producer id that was never used (P2); None until a block of them is durable."""
        return self._producer_ids.next_producer_id() if self._are_ids_durable else None

    @property
    def _are_ids_durable(self) -> bool:
        # The disk may have refused the sync. Without its block the next start would give the same ids once more, and
        # then one producer's batches pass for duplicates of another's.
        return self._log.synced.offset >= self._ids_end

    def reserve(self) -> Change | None:
        """The change that takes the next block of producer ids; None while one is taken that is not on the device."""
        if not self._producer_ids.wants_block:
            return None
        decision = self._producer_ids.reserve()

        end_offset = 0

        def append(batch: bytes) -> None:
            nonlocal end_offset
            try:
                self._append(batch)
            except StorageError:
                self._producer_ids.append_failed(decision, ErrorCode.KAFKA_STORAGE_ERROR)
                raise
            end_offset = self._log.end_offset

        def apply(records: Iterable[MetadataRecord]) -> None:
            self._ids_end = end_offset
            self._apply_all(records)

        values = (record.value for record in decision.records if record.value is not None)
        records = [decode_record(value) for value in values]
        return Change(records, append, apply, self._clock.now_ms(), self.metadata_version)

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
            reserved = self.reserve()
            if reserved is not None:
                self.write_now(reserved)
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
        self.flush(sync_mark=True)
        self._log.close()

    def flushing(self, *, sync_mark: bool = False) -> Iterator[Callable[[], None]]:
        """Bring all changes to the device, and note how far they are there.

        Yields what waits for the device; another thread may do it, before the next step. It raises StorageError when
        the disk refuses.
        """
        plan = self._log.synced.plan()  # no index: that would need room, and then a full disk could delete no topic
        yield plan.sync
        self._log.synced.reached(plan.offset)
        yield partial(self._mark.write, plan.offset, sync=sync_mark)

    def flush(self, *, sync_mark: bool = False) -> None:
        """The same at once, while nobody is served."""
        for work in self.flushing(sync_mark=sync_mark):
            work()

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

    def _append(self, batch: bytes) -> None:
        self._write(batch, Origin.COORDINATOR)

    def _write(self, batch: bytes, origin: Origin) -> None:
        appended = self._log.append(batch, now_ms=self._clock.now_ms(), origin=origin, leader_epoch=self._epoch)
        if appended.error is not ErrorCode.NONE:
            raise StorageError(f"the metadata log refused a change: {appended.message}")

    def _apply_all(self, records: Iterable[MetadataRecord]) -> None:
        now_ms = self._clock.now_ms()
        for record in records:
            self._apply(record, now_ms)

    def _apply(self, record: MetadataRecord, now_ms: int) -> None:
        self.image.apply(record)
        if isinstance(record, FeatureLevelRecord):
            self.features_epoch = self._log.end_offset - 1
        elif isinstance(record, ProducerIdsRecord):
            self._producer_ids.apply(LogRecord(b"", encode_producer_ids(record)), now_ms)


@contextmanager
def reported_sync() -> Iterator[None]:
    """A sync that is refused at a start is reported and undoes nothing: the change is in the log and counts."""
    try:
        yield
    except StorageError as fault:
        _log.error("a change of the metadata is not on the device yet: %s", fault)
