"""What a look at a data directory gives: its partitions, what was found, what a start would change."""

from enum import Enum
from typing import NamedTuple

from ottla.base.types import TopicPartition
from ottla.broker.directory.overlay import Change
from ottla.broker.metadata.properties import MetaProperties
from ottla.broker.told import Kind, Told
from ottla.log.damage import OffsetRange
from ottla.log.examination import Scope
from ottla.log.names import LOG
from ottla.log.partition import PartitionLog
from ottla.log.storage import Storage


class Owner(Enum):
    """Who can start on the directory."""

    OTTLA = "Ottla"
    APACHE_KAFKA = "Apache Kafka"


class LogState(NamedTuple):
    """One partition, as a start would find it."""

    tp: TopicPartition
    segments: int
    size_bytes: int
    #: Records below it are on the device.
    recovery_point: int
    open_transactions: int
    scope: Scope


class Found(NamedTuple):
    """What opening the logs of a directory has shown."""

    #: None when the metadata log does not say it.
    metadata_version: int | None
    logs: tuple[LogState, ...]


class Survey(NamedTuple):
    """A directory."""

    path: str
    owner: Owner
    #: None when `meta.properties` cannot be read.
    properties: MetaProperties | None
    metadata_version: int | None
    #: The broker that was here last has stopped in order.
    was_stopped: bool
    logs: tuple[LogState, ...]
    told: tuple[Told, ...]
    #: What a start and a stop would change.
    changes: tuple[Change, ...]
    #: Folder and name of files that do not fit their log. A start does not see it; a repair makes them again.
    misfits: tuple[tuple[str, str], ...]

    @property
    def is_sound(self) -> bool:
        """Whether nothing is wrong."""
        return not any(each.kind.is_fault for each in self.told)

    @property
    def is_refused(self) -> bool:
        """Whether no broker starts on the directory as it is."""
        return any(each.kind is Kind.REFUSED for each in self.told)

    @property
    def has_repair(self) -> bool:
        """Whether a repair would do anything about what is wrong."""
        can_be = self.owner is Owner.OTTLA and not self.is_refused
        return can_be and any(each.kind.is_mended for each in self.told)


def state_of(tp: TopicPartition, log: PartitionLog, storage: Storage, *, compacts: bool) -> LogState:
    """An open log."""
    extent = OffsetRange(log.log_start_offset, log.end_offset)
    return LogState(
        tp,
        sum(name.endswith(LOG) for name in storage.names()),
        log.size_bytes,
        log.recovery_point,
        sum(each.transaction_start_offset >= 0 for each in log.active_producers()),
        Scope(extent, log.findings.damaged, compacts),
    )
