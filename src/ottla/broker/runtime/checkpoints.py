"""The data directory's own files: offsets that are durable, and the mark of a clean shutdown."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

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

if TYPE_CHECKING:
    from ottla.broker.runtime.partitions import Partition


class Checkpoints:
    """What the directory said when the broker started, and the writing of the next."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        marker = data_dir / CLEAN_SHUTDOWN_MARKER
        #: Whether the last broker stopped in order; from now on a crash is a crash again.
        self.clean = marker.exists()
        marker.unlink(missing_ok=True)
        self.recovery_points = self._read(RECOVERY_POINT_CHECKPOINT)
        self.log_start_offsets = self._read(LOG_START_OFFSET_CHECKPOINT)

    def write(self, partitions: Iterable["Partition"]) -> None:
        """Write all three checkpoints, each replaced atomically."""
        logs = [(each.tp, each.log) for each in partitions]
        self._write(RECOVERY_POINT_CHECKPOINT, {tp: log.recovery_point for tp, log in logs})
        self._write(LOG_START_OFFSET_CHECKPOINT, {tp: log.log_start_offset for tp, log in logs})
        self._write(HIGH_WATERMARK_CHECKPOINT, {tp: log.end_offset for tp, log in logs})

    def mark_clean(self) -> None:
        """Everything is on the device."""
        self._replace(CLEAN_SHUTDOWN_MARKER, encode_clean_shutdown())

    def _read(self, name: str) -> Mapping[TopicPartition, int]:
        try:
            return decode_offsets((self._data_dir / name).read_bytes())
        except (FileNotFoundError, CorruptDataError):
            # Without it everything is checked again: slower, never wrong.
            return {}

    def _write(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        self._replace(name, encode_offsets(offsets))

    def _replace(self, name: str, content: bytes) -> None:
        pending = self._data_dir / (name + ".tmp")
        with pending.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        pending.replace(self._data_dir / name)
