"""The data directory's own files: offsets that are durable, and the mark of a clean shutdown."""

import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from ottla.base.errors import CorruptDataError
from ottla.base.types import TopicPartition
from ottla.log.checkpoint import (
    CLEAN_SHUTDOWN_MARKER,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    decode_offsets,
    encode_clean_shutdown,
    encode_offsets,
)
from ottla.log.storage import Storage


class PartitionOffsets(NamedTuple):
    """What the files say about one partition."""

    tp: TopicPartition
    recovery_point: int
    log_start_offset: int
    high_watermark: int


class CheckpointPlan(NamedTuple):
    """What the files should say, as it was at one moment; a later plan has a higher number."""

    number: int
    offsets: tuple[PartitionOffsets, ...]
    named: frozenset[TopicPartition]


class Checkpoints:
    """Reads the directory's files when the broker starts, and writes them again.

    `write` may run in another thread. A thread that comes late does not overwrite newer contents.
    """

    def __init__(self, storage: Storage) -> None:
        """`storage` is the data directory."""
        self._storage = storage
        #: Whether the last broker stopped in order. The marker is removed now, and the removal synced, so that even
        #: after a loss of power the next start does not find it: that start would check nothing.
        self.clean = storage.read(CLEAN_SHUTDOWN_MARKER) is not None
        storage.delete(CLEAN_SHUTDOWN_MARKER)
        storage.sync_names()
        self.recovery_points = self._read(RECOVERY_POINT_CHECKPOINT)
        self.log_start_offsets = self._read(LOG_START_OFFSET_CHECKPOINT)
        #: The partitions that the files name.
        self._named = frozenset(self.recovery_points.keys() | self.log_start_offsets.keys())
        #: The partitions of the plans that another thread may still write, by the plan's number.
        self._coming: dict[int, frozenset[TopicPartition]] = {}
        self._writing = threading.Lock()
        self._planned = self._written = 0

    def names(self, tp: TopicPartition) -> bool:
        """Whether the files name `tp`, or will when a plan is written that is still to be written.

        A new partition with this name would inherit what they say.
        """
        return tp in self._named or any(tp in named for named in tuple(self._coming.values()))

    def plan(self, partitions: Iterable[PartitionOffsets]) -> CheckpointPlan:
        """What the three files should hold now."""
        offsets = tuple(partitions)
        named = frozenset(each.tp for each in offsets)
        self._planned += 1
        self._coming[self._planned] = named
        return CheckpointPlan(self._planned, offsets, named)

    def write(self, plan: CheckpointPlan) -> None:
        """Replace the files, each atomically and synced. StorageError when one cannot be replaced.

        A file that is replaced without a sync may be empty after a loss of power. Then everything would be gone that an
        earlier checkpoint had brought to the device.
        """
        with self._writing:
            try:
                if plan.number > self._written:
                    self._replace(plan)
            finally:
                for number in [each for each in tuple(self._coming) if each <= plan.number]:
                    del self._coming[number]  # an earlier plan comes too late to be written

    def _replace(self, plan: CheckpointPlan) -> None:
        # Both are true from now on, also when only some of the files can be replaced.
        self._written = plan.number
        self._named |= plan.named
        for name, content in _contents(plan.offsets):
            self._storage.write(name, content)
        self._named = plan.named

    def mark_clean(self) -> None:
        """Leave the mark of a clean shutdown: everything is on the device."""
        self._storage.write(CLEAN_SHUTDOWN_MARKER, encode_clean_shutdown())

    def _read(self, name: str) -> Mapping[TopicPartition, int]:
        try:
            return decode_offsets(self._storage.read(name) or b"")
        except CorruptDataError:
            # Without the mark the next start checks everything: that is slower, but not wrong.
            return {}


def _contents(offsets: Iterable[PartitionOffsets]) -> Iterator[tuple[str, bytes]]:
    yield RECOVERY_POINT_CHECKPOINT, encode_offsets({each.tp: each.recovery_point for each in offsets})
    yield LOG_START_OFFSET_CHECKPOINT, encode_offsets({each.tp: each.log_start_offset for each in offsets})
    yield HIGH_WATERMARK_CHECKPOINT, encode_offsets({each.tp: each.high_watermark for each in offsets})
