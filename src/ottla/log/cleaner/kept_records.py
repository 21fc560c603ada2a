# cython: boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Which records of a batch stay, and their bytes in the batch that is written anew: some records at a time.

One of the compiled modules, as `offset_map`: no object is made for a record, but for its headers if it has some.
"""

from ottla.base.zeros import zeros
from ottla.log.cleaner.offset_map import OffsetMap
from ottla.wire.record_codec import RecordCursor
from ottla.wire.record_writer import RecordWriter, pack_headers, varint_size

#: Told by the loader: the compiled module is no .py file.
COMPILED = not __file__.endswith(".py")

#: More than a batch can hold.
_NO_LIMIT_BYTES = 2**31
_FIRST_BYTES = 16_384
#: Header count 0.
_NO_HEADERS = b"\x00"


class Marks:
    """Which of a batch's records stay, one byte each, and what is asked of those that do."""

    def __init__(self, count: int) -> None:
        self.stay = zeros(count)
        self.kept = 0
        #: One of them has no value.
        self.has_tombstone = False
        #: The time of the first one, and the earliest and the latest; 0 while there is none.
        self.first_ms = self.earliest_ms = self.latest_ms = 0

    def take(self, cursor: RecordCursor, offsets: OffsetMap | None, at_most: int, drops_tombstones: bool) -> bool:
        """Look at the next `at_most` records: those that are the newest of their keys stay, and without `offsets` all.

        With `drops_tombstones` only those with a value, of those that the map knows of. True when all are looked at,
        and the cursor is before the first again.
        """
        end = cursor.up_to(at_most)
        while cursor.taken < end:
            index = cursor.taken
            cursor.advance()
            if offsets is not None:
                if not offsets.is_newest(cursor):
                    continue
                if drops_tombstones and cursor.value_size < 0 and cursor.offset <= offsets.latest_offset:
                    continue
            time = cursor.timestamp_ms
            if self.kept == 0:
                self.first_ms = self.earliest_ms = self.latest_ms = time
            elif time < self.earliest_ms:
                self.earliest_ms = time
            elif time > self.latest_ms:
                self.latest_ms = time
            if cursor.value_size < 0:
                self.has_tombstone = True
            self.stay[index] = 1
            self.kept = self.kept + 1
        return cursor.rewound()


class KeptRecords(RecordWriter):
    """Writes the records that stay, relative to `base_timestamp_ms`, as Apache Kafka does: each as short as it can be.

    64 bits hold the difference of each one's time and that.
    """

    def __init__(self, base_timestamp_ms: int) -> None:
        super().__init__(_NO_LIMIT_BYTES, _FIRST_BYTES)
        self.base_timestamp_ms = base_timestamp_ms

    def take(self, cursor: RecordCursor, marks: Marks, at_most: int, most_bytes: int) -> memoryview:
        """Those of the next `at_most` records; no others after `most_bytes`. Good until the next call."""
        self.used = 0
        end = cursor.up_to(at_most)
        while cursor.taken < end and self.used < most_bytes:
            index = cursor.taken
            cursor.advance()
            if marks.stay[index]:
                self.add(cursor)
        return self.body()

    def add(self, cursor: RecordCursor) -> int:
        headers = _NO_HEADERS
        if cursor.header_count != 0:
            headers = pack_headers(cursor.headers())
        time_delta = cursor.timestamp_ms - self.base_timestamp_ms
        offset_delta = cursor.offset - cursor.base_offset
        size = 1 + varint_size(time_delta) + varint_size(offset_delta)
        size = size + varint_size(cursor.key_size) + varint_size(cursor.value_size) + len(headers)
        size = size + max(cursor.key_size, 0) + max(cursor.value_size, 0)
        needed = self.used + varint_size(size) + size
        if needed > self.capacity:
            self.grow(needed)
        self.put_varint(size)
        self.view[self.used] = 0
        self.used = self.used + 1
        self.put_varint(time_delta)
        self.put_varint(offset_delta)
        self.put_varint(cursor.key_size)
        self.copy(cursor, cursor.key_at, cursor.key_size)
        self.put_varint(cursor.value_size)
        self.copy(cursor, cursor.value_at, cursor.value_size)
        self.put_bytes(headers, len(headers))
        return 0

    def copy(self, cursor: RecordCursor, at: int, size: int) -> int:
        if size > 0:
            if COMPILED:
                move_bytes(self.to, self.used, cursor.raw, at, size)  # type: ignore[name-defined]  # noqa: F821
            else:
                self.copy_slice(cursor, at, size)
            self.used = self.used + size
        return 0

    def copy_slice(self, cursor: RecordCursor, at: int, size: int) -> int:
        """For the interpreter: a function with a slice is slow when it is compiled, also where it does not slice."""
        self.view[self.used : self.used + size] = cursor.raw[at : at + size]
        return 0
