"""What can be known of a log's next roll before it comes, so that its owner may do elsewhere what waits for the device.

The first file of a log has its name on the device before there is a second one (`Segments.roll`). A flush sees to that
within a minute; before, the roll itself has to, where it comes.
"""

import weakref
from typing import Final, Protocol

from ottla.base.errors import StorageError
from ottla.log.config import LogConfig
from ottla.log.segments import Segments
from ottla.log.storage import Buffer, Storage
from ottla.wire.batch import parse_header
from ottla.wire.batch_errors import CorruptBatchError
from ottla.wire.markers import MARKER_BATCH_BYTES

#: A log to which something was written is flushed within this time.
_FLUSHED_WITHIN_MS: Final = 120_000


class _Log(Protocol):
    """What is known of the log here."""

    config: LogConfig
    end_offset: int


class Rolling:
    """See the module. All but `sync_name` is for the log's owner, between two other calls to the log."""

    __slots__ = ("_log", "_segments", "_storage")

    def __init__(self, log: _Log, storage: Storage, segments: Segments) -> None:
        #: The log owns this, not the other way: its files close with its last reader, not with the garbage.
        self._log: _Log = weakref.proxy(log)
        self._storage = storage
        self._segments = segments

    @property
    def needs_name(self) -> bool:
        """Whether the next roll would wait for the device."""
        return self._segments.is_unnamed

    def may_come(self, records: Buffer, now_ms: int) -> bool:
        """Whether it would come with this batch, if that is not refused; or with the marker that ends its transaction,
        if no flush came before. Not where the disk says nothing of the segment's first batch."""
        segments, log = self._segments, self._log
        active, config = segments.active, log.config
        try:
            header = parse_header(records)
            size_bytes, last_offset = header.size_bytes, log.end_offset + header.last_offset_delta
            timestamp_ms = now_ms if config.stamps else header.max_timestamp_ms
            if segments.is_rolling or active.should_roll(config, size_bytes, timestamp_ms, last_offset, now_ms):
                return True
        except (CorruptBatchError, StorageError):  # who appends it hears of that
            return False
        if not header.is_transactional:
            return False
        first_ms = timestamp_ms if active.size_bytes == 0 else active.first_timestamp_ms
        is_late = first_ms is None or now_ms + _FLUSHED_WITHIN_MS - first_ms > config.segment_ms
        return is_late or active.size_bytes + size_bytes + MARKER_BATCH_BYTES > config.segment_bytes

    def is_first(self, size_bytes: int) -> bool:
        """Whether the last batch, of so many bytes, is the first of its segment: files were made for it. It is so where
        the disk has taken them, and not the batch; or not all of them."""
        segments, own_bytes = self._segments, self._segments.active.size_bytes
        return own_bytes == size_bytes or own_bytes == 0 or segments.is_rolling

    def sync_name(self) -> None:
        """Bring the names to the device; may run in another thread. `named` after it. StorageError."""
        self._storage.sync_names()

    def named(self) -> None:
        """`sync_name` has returned."""
        self._segments.is_named = True
