"""Kafka's two sparse indexes of a segment, in Kafka's bytes.

    .index      (relative offset i32, file position i32)…   offset = last offset of the batch at the position
    .timeindex  (timestamp i64, relative offset i32)…       no record up to this offset has a later timestamp

Both columns ascend in both files. The active segment's entries are in memory, as bytes in the file's own format, and
`save` writes them together. Writing each one at once would gain nothing: after a crash the end of the log is scanned
again in any case. A closed segment's file is read at its first use, and `unload` forgets it again.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from struct import Struct
from typing import ClassVar, Final, NamedTuple

from ottla.base.errors import CorruptDataError
from ottla.log.index_order import ascend
from ottla.log.storage import Buffer, Changing, Storage

_OFFSET_ENTRY: Final = Struct(">ii")
_TIME_ENTRY: Final = Struct(">qi")
_I32: Final = Struct(">i")
_I64: Final = Struct(">q")


class OffsetPosition(NamedTuple):
    """An entry of the offset index: the batch at `position` ends with `offset`."""

    offset: int
    position: int


class TimestampEntry(NamedTuple):
    """An entry of the time index."""

    timestamp_ms: int
    offset: int


def offset_entries(content: Buffer, base_offset: int) -> Iterator[OffsetPosition]:
    """The whole entries of an offset index's file."""
    whole = memoryview(content)[: len(content) - len(content) % _OFFSET_ENTRY.size]
    return (OffsetPosition(base_offset + relative, position) for relative, position in _OFFSET_ENTRY.iter_unpack(whole))


def time_entries(content: Buffer, base_offset: int) -> Iterator[TimestampEntry]:
    """The whole entries of a time index's file."""
    whole = memoryview(content)[: len(content) - len(content) % _TIME_ENTRY.size]
    return (TimestampEntry(time_ms, base_offset + relative) for time_ms, relative in _TIME_ENTRY.iter_unpack(whole))


class _Index(Changing):
    """What both indexes share: the file, the entries' bytes, and how many entries fit."""

    entry_bytes: ClassVar[int]
    __slots__ = ("_buffer", "_dirty", "_saved_bytes", "_storage", "base_offset", "max_entries", "name")

    def __init__(self, storage: Storage, name: str, base_offset: int, max_bytes: int) -> None:
        super().__init__()
        self._storage = storage
        self._buffer: bytearray | None = None
        self._saved_bytes = 0
        #: Whether the file differs from the entries in memory.
        self._dirty = False
        self.name = name
        self.base_offset = base_offset
        self.max_entries = max_bytes // self.entry_bytes

    @property
    def entries(self) -> int:
        """Number of entries."""
        return len(self._loaded()) // self.entry_bytes

    @property
    def is_loaded(self) -> bool:
        """Whether the entries are in memory."""
        return self._buffer is not None

    def content(self) -> bytes:
        """All entries, as a file holds them."""
        return bytes(self._loaded())

    def clear(self) -> None:
        """Forget every entry. The next `save` removes them from the file too."""
        self._buffer, self._saved_bytes, self._dirty = bytearray(), 0, True

    def save(self) -> None:
        """Write the entries that the file does not have yet."""
        buffer = self._buffer
        if buffer is None or not self._dirty:
            return
        file = self._storage.open(self.name, create=True)
        try:
            if file.size_bytes > self._saved_bytes:  # entries were cut, or another broker has preallocated the file
                self.changes += 1
                file.truncate(self._saved_bytes)
            self._saved_bytes = file.size_bytes
            if len(buffer) > self._saved_bytes:
                self.changes += 1
                file.append([bytes(buffer[self._saved_bytes :])])
                self._saved_bytes = len(buffer)
        finally:
            file.close()
        self._dirty = False

    def unload(self) -> None:
        """Save, then forget the entries until they are needed again."""
        self.save()
        self._buffer = None

    def _loaded(self) -> bytearray:
        if self._buffer is None:
            content = self._storage.read(self.name) or b""
            self._buffer = bytearray(content[: len(content) - len(content) % self.entry_bytes])
            self._saved_bytes, self._dirty = len(self._buffer), len(self._buffer) < len(content)
        return self._buffer

    def _ends(self) -> tuple[bytes, bytes, int]:
        """The first and the last entry and how many there are, without loading those between."""
        size = self.entry_bytes
        if self._buffer is not None:
            return bytes(self._buffer[:size]), bytes(self._buffer[-size:]), len(self._buffer) // size
        file = self._storage.open(self.name)
        try:
            length = file.size_bytes
            if length % size:
                raise CorruptDataError(f"{self.name}: {length} bytes are no whole entries of {size}")
            return file.read(0, size), file.read(max(length - size, 0), size), length // size
        finally:
            file.close()

    def _cut(self, entries: int) -> None:
        buffer = self._loaded()
        if entries * self.entry_bytes < len(buffer):
            del buffer[entries * self.entry_bytes :]
            self._saved_bytes = min(self._saved_bytes, len(buffer))
            self._dirty = True


class OffsetIndex(_Index):
    """From an offset to a position at or before its batch."""

    entry_bytes = _OFFSET_ENTRY.size
    __slots__ = ()

    def append(self, offset: int, position: int) -> None:
        """Add an entry; offsets and positions only grow."""
        self._loaded().extend(_OFFSET_ENTRY.pack(offset - self.base_offset, position))
        self._dirty = True

    @property
    def is_full(self) -> bool:
        """Whether the segment must be rolled before another entry fits."""
        return self.entries >= self.max_entries

    def last(self) -> OffsetPosition:
        """The last entry, or the segment's start."""
        return self._entry(self.entries - 1)

    def upward_from(self, position: int) -> Iterator[OffsetPosition]:
        """The entries of batches at `position` or after it, nearest first."""
        buffer, size = self._loaded(), self.entry_bytes
        count = len(buffer) // size
        slot = bisect_left(range(count), position, key=lambda n: _I32.unpack_from(buffer, n * size + 4)[0])
        return map(self._entry, range(slot, count))

    def downward_from(self, offset: int) -> Iterator[OffsetPosition]:
        """The entries whose offset is at most `offset`, nearest first; the segment's start comes last."""
        return map(self._entry, range(self._slots_to(offset) - 1, -2, -1))

    def downward_from_position(self, position: int) -> Iterator[OffsetPosition]:
        """The entries of batches that begin at `position` or before it, likewise."""
        buffer, size = self._loaded(), self.entry_bytes
        slots = bisect_right(
            range(len(buffer) // size), position, key=lambda n: _I32.unpack_from(buffer, n * size + 4)[0]
        )
        return map(self._entry, range(slots - 1, -2, -1))

    def _slots_to(self, offset: int) -> int:
        buffer, size = self._loaded(), self.entry_bytes
        relative = offset - self.base_offset
        return bisect_right(range(len(buffer) // size), relative, key=lambda n: _I32.unpack_from(buffer, n * size)[0])

    def truncate_to(self, offset: int) -> None:
        """Forget entries of `offset` and above."""
        buffer, size = self._loaded(), self.entry_bytes
        relative = offset - self.base_offset
        self._cut(
            bisect_left(range(len(buffer) // size), relative, key=lambda n: _I32.unpack_from(buffer, n * size)[0])
        )

    def check(self) -> OffsetPosition:
        """The last entry; CorruptDataError when the ends cannot be those of an offset index of this segment.

        Only the ends are read. That is enough to see a file that a broker preallocated before it died: it ends with
        zeros.
        """
        first, last, count = self._ends()
        if count == 0:
            return OffsetPosition(self.base_offset, 0)
        (offset, position), (first_offset, first_position) = _OFFSET_ENTRY.unpack(last), _OFFSET_ENTRY.unpack(first)
        if min(offset, position) < 0 or (count > 1 and (offset <= first_offset or position <= first_position)):
            raise CorruptDataError(f"{self.name}: last entry {offset} -> {position} is out of order")
        return OffsetPosition(self.base_offset + offset, position)

    def check_order(self) -> None:
        """Read every entry; CorruptDataError unless each follows the one before it, and the first the file's start."""
        entries, size = self._loaded(), self.entry_bytes
        ascends = ascend(entries, size, 0, 4, True) and ascend(entries, size, 4, 4, True)
        if not ascends or (entries and min(_OFFSET_ENTRY.unpack_from(entries)) < 0):
            raise CorruptDataError(f"{self.name}: its entries are out of order")

    def _entry(self, slot: int) -> OffsetPosition:
        if slot < 0:
            return OffsetPosition(self.base_offset, 0)
        relative, position = _OFFSET_ENTRY.unpack_from(self._loaded(), slot * self.entry_bytes)
        return OffsetPosition(self.base_offset + relative, position)


class TimeIndex(_Index):
    """From a timestamp to an offset at or before the first record with that timestamp or a later one."""

    entry_bytes = _TIME_ENTRY.size
    __slots__ = ()

    def append(self, timestamp_ms: int, offset: int) -> None:
        """Add an entry if its timestamp is later than that of the last entry."""
        if timestamp_ms > self.last().timestamp_ms:
            self._loaded().extend(_TIME_ENTRY.pack(timestamp_ms, offset - self.base_offset))
            self._dirty = True

    @property
    def is_full(self) -> bool:
        """Whether there is room for one entry only. That room is kept for the entry that a roll writes."""
        return self.entries >= self.max_entries - 1

    def last(self) -> TimestampEntry:
        """The last entry, or (-1, base offset)."""
        return self._entry(self.entries - 1)

    def lookup(self, timestamp_ms: int) -> TimestampEntry:
        """The last entry whose timestamp is at most `timestamp_ms`, or (-1, base offset)."""
        buffer, size = self._loaded(), self.entry_bytes
        slot = bisect_right(
            range(len(buffer) // size), timestamp_ms, key=lambda n: _I64.unpack_from(buffer, n * size)[0]
        )
        return self._entry(slot - 1)

    def truncate_to(self, offset: int) -> None:
        """Forget entries of `offset` and above."""
        buffer, size = self._loaded(), self.entry_bytes
        relative = offset - self.base_offset
        self._cut(
            bisect_left(range(len(buffer) // size), relative, key=lambda n: _I32.unpack_from(buffer, n * size + 8)[0])
        )

    def check(self) -> TimestampEntry:
        """The last entry; CorruptDataError when the ends cannot be those of a time index of this segment."""
        first, last, count = self._ends()
        if count == 0:
            return TimestampEntry(-1, self.base_offset)
        (timestamp_ms, offset), (first_ms, first_offset) = _TIME_ENTRY.unpack(last), _TIME_ENTRY.unpack(first)
        if offset < 0 or (count > 1 and (timestamp_ms <= first_ms or offset < first_offset)):
            raise CorruptDataError(f"{self.name}: last entry {timestamp_ms} -> {offset} is out of order")
        return TimestampEntry(timestamp_ms, self.base_offset + offset)

    def check_order(self) -> None:
        """Read every entry; CorruptDataError unless each follows the one before it."""
        entries, size = self._loaded(), self.entry_bytes
        if not (ascend(entries, size, 0, 8, True) and ascend(entries, size, 8, 4, False)):
            raise CorruptDataError(f"{self.name}: its entries are out of order")

    def _entry(self, slot: int) -> TimestampEntry:
        if slot < 0:
            return TimestampEntry(-1, self.base_offset)
        timestamp_ms, relative = _TIME_ENTRY.unpack_from(self._loaded(), slot * self.entry_bytes)
        return TimestampEntry(timestamp_ms, self.base_offset + relative)
