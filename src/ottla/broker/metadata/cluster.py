"""The metadata log and its image. Every change is a batch in `__cluster_metadata-0` before anybody sees it."""

import logging
from collections.abc import Mapping, Sequence
from typing import Final

from ottla.base.clock import Clock
from ottla.base.errors import CorruptDataError, StorageError
from ottla.broker.metadata.image import TOPIC_RESOURCE, MetadataImage, TopicImage
from ottla.broker.metadata.records import (
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
    decode_record,
    encode_record,
)
from ottla.coordinator.decision import LogRecord
from ottla.coordinator.producer_ids import ProducerIds
from ottla.log.partition import PartitionLog
from ottla.log.replay import replay
from ottla.log.results import Origin
from ottla.wire.errors import ErrorCode
from ottla.wire.producer_ids_record import is_producer_ids
from ottla.wire.records import Record, encode_batch

_log = logging.getLogger(__name__)

#: `metadata.version` 4.0-IV3. Our records are those of that version.
_METADATA_VERSION: Final = 25


class ClusterMetadata:
    """The only writer of the metadata log."""

    def __init__(self, log: PartitionLog, node_id: int, clock: Clock) -> None:
        self.image = MetadataImage()
        self._log = log
        self._node_id = node_id
        self._clock = clock
        self._producer_ids = ProducerIds(node_id)

    def load(self) -> None:
        """Apply the whole log; a new one gets its first record. Raises StorageError for a log that cannot be read."""
        now_ms = self._clock.now_ms()
        try:
            for batch in replay(self._log):
                for record in batch.records:
                    if record.value is not None:
                        self._apply(record.value, now_ms)
        except CorruptDataError as fault:
            raise StorageError(
                f"the metadata log (__cluster_metadata-0) is damaged: {fault}; put the directory back from a copy"
            ) from fault
        if self._log.end_offset == 0:
            self._append((FeatureLevelRecord("metadata.version", _METADATA_VERSION),))

    def create_topic(
        self, name: str, topic_id: bytes, partitions: int, configs: Mapping[str, str], *, directory_id: bytes
    ) -> TopicImage:
        """Make a topic whose name and settings were checked."""
        records: list[MetadataRecord] = [TopicRecord(name, topic_id)]
        records += [self._partition(topic_id, number, directory_id) for number in range(partitions)]
        records += [ConfigRecord(TOPIC_RESOURCE, name, key, value) for key, value in configs.items()]
        self._append(records)
        return self.image.topics[name]

    def delete_topic(self, topic: TopicImage) -> None:
        """Forget a topic and its configuration."""
        self._append((RemoveTopicRecord(topic.topic_id),))

    def add_partitions(self, topic: TopicImage, count: int, *, directory_id: bytes) -> None:
        """Give the topic more partitions; `count` is the new total."""
        more = range(len(topic.partitions), count)
        self._append([self._partition(topic.topic_id, number, directory_id) for number in more])

    def set_configs(self, resource_type: int, resource_name: str, changes: Mapping[str, str | None]) -> None:
        """Set or, with None, remove settings. They were checked before."""
        self._append([ConfigRecord(resource_type, resource_name, key, value) for key, value in changes.items()])

    def next_producer_id(self) -> int:
        """A producer id that was never used (P2). Raises StorageError when its block cannot be made durable."""
        if self._producer_ids.wants_block:
            decision = self._producer_ids.reserve()
            values = [record.value for record in decision.records if record.value is not None]
            try:
                self._append_values(values)
            except StorageError:
                self._producer_ids.append_failed(decision, ErrorCode.KAFKA_STORAGE_ERROR)
                raise
        producer_id = self._producer_ids.next_producer_id()
        if producer_id is None:
            raise StorageError("no block of producer ids is durable")
        return producer_id

    def close(self) -> None:
        """Flush and close the log."""
        self._log.flush()
        self._log.close()

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

    def _append(self, records: Sequence[MetadataRecord]) -> None:
        if records:
            self._append_values([encode_record(record) for record in records])

    def _append_values(self, values: Sequence[bytes]) -> None:
        now_ms = self._clock.now_ms()
        batch = encode_batch([Record(at, now_ms, None, value, ()) for at, value in enumerate(values)])
        appended = self._log.append(batch, now_ms=now_ms, origin=Origin.COORDINATOR)
        if appended.error is not ErrorCode.NONE:
            raise StorageError(f"the metadata log refused a change: {appended.message}")
        try:
            self._log.flush()
        except StorageError as fault:  # the batch is in the log and counts; only a loss of power could undo it
            _log.error("a change of the metadata is not on the device yet: %s", fault)
        for value in values:
            self._apply(value, now_ms)

    def _apply(self, value: bytes, now_ms: int) -> None:
        self.image.apply(decode_record(value))
        if is_producer_ids(value):
            self._producer_ids.apply(LogRecord(b"", value), now_ms)
