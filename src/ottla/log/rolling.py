"""What can be known of a log's next roll before it comes, so that its owner may do elsewhere what waits for the device.

The first file of a log has its name on the device before there is a second one (`Segments.roll`). A flush sees to that
within a minute; before, the roll itself has to, where it comes.
"""

import weakref
from typing import Final, Protocol

from ottla.log.config import LogConfig, TimestampType
from ottla.log.epochs import LeaderEpochs
from ottla.log.segments import Segments
from ottla.log.storage import Buffer, Storage
from ottla.wire.batch import MARKER_BATCH_BYTES, BatchHeader, parse_header
from ottla.wire.batch_errors import CorruptBatchError

#: A log to which something was written is flushed within this time.
_FLUSHED_WITHIN_MS: Final = 120_000


class _Log(Protocol):
    """What is known of the log here."""

    config: LogConfig
    end_offset: int


class Rolling:
    """See the module. All but `sync_name` is for the log's owner, between two other calls to the log."""

    __slots__ = ("_epochs", "_log", "_segments", "_storage")

    def __init__(self, log: _Log, storage: Storage, segments: Segments, epochs: LeaderEpochs) -> None:
        #: The log owns this, not the other way: its files close with its last reader, not with the garbage.
        self._log: _Log = weakref.proxy(log)
        self._storage = storage
        self._segments = segments
        self._epochs = epochs

    @property
    def needs_name(self) -> bool:
        """Whether the next roll would wait for the device."""
        return self._segments.is_unnamed

    def comes_with(self, records: Buffer, now_ms: int) -> bool:
        """Whether this batch would go into a new segment, if it is not refused."""
        try:
            header = parse_header(records)
        except CorruptBatchError:
            return False
        segments, log = self._segments, self._log
        last_offset = log.end_offset + header.last_offset_delta
        return segments.is_rolling or segments.active.should_roll(
            log.config, header.size_bytes, self._timestamp_ms(header, now_ms), last_offset, now_ms
        )

    def writes_epoch(self, leader_epoch: int) -> bool:
        """Whether the next batch is the first of all, with which the epochs' file is written."""
        return leader_epoch >= 0 > self._epochs.latest

    def comes_behind(self, records: Buffer, now_ms: int) -> bool:
        """Whether the marker that ends the batch's transaction would, if no flush came before it."""
        try:
            header = parse_header(records)
        except CorruptBatchError:
            return False
        if not header.is_transactional:
            return False
        config, active = self._log.config, self._segments.active
        first_ms = self._timestamp_ms(header, now_ms) if active.size_bytes == 0 else active.first_timestamp_ms
        is_late = first_ms is None or now_ms + _FLUSHED_WITHIN_MS - first_ms > config.segment_ms
        return is_late or active.size_bytes + header.size_bytes + MARKER_BATCH_BYTES > config.segment_bytes

    def _timestamp_ms(self, header: BatchHeader, now_ms: int) -> int:
        stamps = self._log.config.message_timestamp_type is TimestampType.LOG_APPEND_TIME
        return now_ms if stamps else header.max_timestamp_ms

    def sync_name(self) -> None:
        """Bring the names to the device; may run in another thread. `named` after it. StorageError."""
        self._storage.sync_names()

    def named(self) -> None:
        """`sync_name` has returned."""
        self._segments.is_named = True
