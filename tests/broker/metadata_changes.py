"""Changes of a metadata log without a broker: written at once, as a start does it."""

from collections.abc import Iterable, Mapping

from ottla.base.clock import ManualClock
from ottla.base.types import TopicPartition
from ottla.broker.metadata.cluster import ClusterMetadata
from ottla.broker.metadata.image import TopicImage
from ottla.broker.metadata.records import MetadataRecord
from ottla.log.config import LogConfig
from ottla.log.memory import MemoryStorage
from ottla.log.partition import PartitionLog


def opened_metadata(storage: MemoryStorage) -> ClusterMetadata:
    """The metadata as a start finds it there."""
    log = PartitionLog.open(TopicPartition("__cluster_metadata", 0), storage, LogConfig(), 0)
    metadata = ClusterMetadata(log, storage, 1, ManualClock())
    metadata.load()
    return metadata


def write(metadata: ClusterMetadata, records: Iterable[MetadataRecord]) -> None:
    """One change."""
    metadata.write_now(metadata.change(records))


def make_topic(
    metadata: ClusterMetadata, name: str, topic_id: bytes, partitions: int, configs: Mapping[str, str]
) -> TopicImage:
    """A new topic of the metadata alone: nothing of it is on the disk."""
    write(metadata, metadata.topic_records(name, topic_id, partitions, configs, directory_id=b"d" * 16))
    return metadata.image.topics[name]


def new_producer_id(metadata: ClusterMetadata) -> int | None:
    """The next producer id, with a new block where one is wanted; None when the device has none."""
    if metadata.wants_producer_ids:
        reserved = metadata.reserve()
        metadata.write_now(metadata.change(()) if reserved is None else reserved)
    return metadata.next_producer_id()
