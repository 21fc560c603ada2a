"""What a look at a data directory gives: its partitions, what was found, what a start would change."""

from enum import Enum
from typing import NamedTuple

from ottla.base.types import TopicPartition
from ottla.broker.directory.overlay import Change
from ottla.broker.metadata.properties import MetaProperties
from ottla.broker.told import Kind, Told
from ottla.log.checking import ANY_OFFSET
from ottla.log.damage import OffsetRange
from ottla.log.examination import Scope
from ottla.log.names import LOG, base_offset
from ottla.log.partition import PartitionLog
from ottla.log.storage import Storage


class Owner(Enum):
    """Who can start on the directory."""

    OTTLA = "Ottla"
    APACHE_KAFKA = "Apache Kafka"


class Dirt(NamedTuple):
    """How dirty a compacted log is, as the cleaner would find it now."""

    #: Where the last pass ended; None: there was none.
    cleaned_offset: int | None
    #: Of the segments that can be cleaned.
    dirty_bytes: int
    #: How much that is of all that a pass would read: what `min.cleanable.dirty.ratio` is held against.
    dirty_percent: int
    #: Why closed segments are not cleaned however dirty they are; None: nothing holds them back.
    held_back: str | None


class LogState(NamedTuple):
    """One partition, as a start would find it."""

    tp: TopicPartition
    segments: int
    size_bytes: int
    #: Records below it are on the device.
    recovery_point: int
    open_transactions: int
    scope: Scope
    #: None: it is not compacted.
    dirt: Dirt | None


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


def state_of(tp: TopicPartition, log: PartitionLog, storage: Storage, now_ms: int, *, compacts: bool) -> LogState:
    """An open log, which `compacts` now. StorageError when the disk refuses."""
    was_compacted_below = max(log.compaction.cleaned_offset or 0, log.compaction.thinned_below)
    extent = OffsetRange(log.log_start_offset, log.end_offset)
    bases = [base for name in storage.names() if (base := base_offset(name, LOG)) is not None]
    return LogState(
        tp,
        len(bases),
        log.size_bytes,
        log.recovery_point,
        sum(each.transaction_start_offset >= 0 for each in log.producers.active()),
        Scope(extent, log.findings.damaged, ANY_OFFSET if compacts else was_compacted_below),
        _dirt(log, now_ms, max(bases, default=0)) if compacts else None,
    )


def _dirt(log: PartitionLog, now_ms: int, active_offset: int) -> Dirt:
    """`active_offset` is where the active segment begins."""
    found = log.compaction.look(now_ms)
    dirty_bytes, ratio = (0, 0.0) if found is None else (found.dirty_bytes, found.ratio)
    return Dirt(log.compaction.cleaned_offset, dirty_bytes, round(100 * ratio), _held_back(log, active_offset))


def _held_back(log: PartitionLog, active_offset: int) -> str | None:
    if log.findings.damaged:
        return f"the records at offsets {log.findings.damaged[0]} are gone: a log with a hole is not cleaned"
    open_since = [each for each in log.producers.active() if 0 <= each.transaction_start_offset < active_offset]
    if not open_since:
        return None
    first = min(open_since, key=lambda each: each.transaction_start_offset)
    return (
        f"a transaction of producer id {first.producer_id} (epoch {first.producer_epoch}) is open since offset "
        f"{first.transaction_start_offset}: from there on nothing is cleaned until it ends"
    )
