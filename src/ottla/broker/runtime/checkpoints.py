"""The data directory's own files: offsets that are durable, and the mark of a clean shutdown."""

import os
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from ottla.base.errors import CorruptDataError, StorageError
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


class PartitionOffsets(NamedTuple):
    """What the files tell of one partition."""

    tp: TopicPartition
    recovery_point: int
    log_start_offset: int
    high_watermark: int


class CheckpointPlan(NamedTuple):
    """The files' contents as they should be at one moment; a later plan has a higher number."""

    number: int
    contents: Mapping[str, bytes]
    named: frozenset[TopicPartition]


class Checkpoints:
    """What the directory said when the broker started, and the writing of the next.

    `write` may run in another thread; whichever thread comes late does not bring back what was true before.
    """

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        marker = data_dir / CLEAN_SHUTDOWN_MARKER
        #: Whether the last broker stopped in order; from now on a crash is a crash again.
        self.clean = marker.exists()
        marker.unlink(missing_ok=True)
        self.recovery_points = self._read(RECOVERY_POINT_CHECKPOINT)
        self.log_start_offsets = self._read(LOG_START_OFFSET_CHECKPOINT)
        #: The partitions the files name.
        self._named = frozenset(self.recovery_points.keys() | self.log_start_offsets.keys())
        self._writing = threading.Lock()
        self._planned = self._written = 0

    def names(self, tp: TopicPartition) -> bool:
        """Whether the files tell something of `tp`, which would be believed of a new partition of that name."""
        return tp in self._named

    def plan(self, partitions: Iterable[PartitionOffsets]) -> CheckpointPlan:
        """What should be in the three files now."""
        known = tuple(partitions)
        self._planned += 1
        contents = {
            RECOVERY_POINT_CHECKPOINT: encode_offsets({each.tp: each.recovery_point for each in known}),
            LOG_START_OFFSET_CHECKPOINT: encode_offsets({each.tp: each.log_start_offset for each in known}),
            HIGH_WATERMARK_CHECKPOINT: encode_offsets({each.tp: each.high_watermark for each in known}),
        }
        return CheckpointPlan(self._planned, contents, frozenset(each.tp for each in known))

    def write(self, plan: CheckpointPlan, *, sync: bool = True) -> None:
        """Replace the files, each atomically; StorageError when one cannot be."""
        with self._writing:
            if plan.number > self._written:
                for name, content in plan.contents.items():
                    self._replace(name, content, sync=sync)
                self._written, self._named = plan.number, plan.named

    def mark_clean(self) -> None:
        """Everything is on the device."""
        self._replace(CLEAN_SHUTDOWN_MARKER, encode_clean_shutdown(), sync=True)

    def _read(self, name: str) -> Mapping[TopicPartition, int]:
        try:
            return decode_offsets((self._data_dir / name).read_bytes())
        except (FileNotFoundError, CorruptDataError):
            # Without it everything is checked again: slower, never wrong.
            return {}

    def _replace(self, name: str, content: bytes, *, sync: bool) -> None:
        pending = self._data_dir / (name + ".tmp")
        try:
            with pending.open("wb") as file:
                file.write(content)
                if sync:
                    file.flush()
                    os.fsync(file.fileno())
            pending.replace(self._data_dir / name)
        except OSError as fault:
            raise StorageError(f"{pending}: {fault.strerror}") from fault
