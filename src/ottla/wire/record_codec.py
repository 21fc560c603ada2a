# cython: boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Reads the records of a batch: out of its body into objects or into columns. `record_writer.py` is the way back.

One of the compiled modules: plain Python, typed by `record_codec.pxd`; without a compiler the same source runs
interpreted, slower. Compiled, no index is checked by the machine, so every position is checked here before it is
used, once per record: a record's fields must end exactly where its length says, inside the body.

A record (KIP-98), its numbers zigzag varints:

    length | attributes 1 byte | timestamp delta | offset delta | key length, key | value length, value |
    header count, then each header's key length, key, value length, value

A length of -1 is null, allowed for key, value and header value. Offset and timestamp are relative to the batch's.
"""

from typing import Any

from ottla.wire.batch_errors import CorruptBatchError, InvalidRecordError

#: Told by the loader: the compiled module is no .py file.
COMPILED = not __file__.endswith(".py")

#: The shortest record: seven fields of one byte each. A batch that claims more records than fit lies.
SMALLEST_RECORD_BYTES = 7

_VARINT_BYTES = 5
_VARLONG_BYTES = 10
_MAX_INT32 = 2**31 - 1
_MAX_INT64 = 2**63 - 1
_MIN_INT64 = -_MAX_INT64 - 1
_NO_HEADERS: tuple[tuple[str, bytes | None], ...] = ()

Buffer = bytes | bytearray | memoryview
Header = tuple[str, bytes | None]


class RecordCursor:
    """Walks the records of one decompressed body; after `advance` its fields describe one record.

    `append_time_ms` is the batch's max timestamp when its type is LOG_APPEND_TIME, else None. Every method raises
    CorruptBatchError for what does not parse.
    """

    def __init__(
        self,
        data: Buffer,
        pos: int,
        end: int,
        count: int,
        base_offset: int,
        last_offset_delta: int,
        base_timestamp_ms: int,
        append_time_ms: int | None,
    ) -> None:
        if not 0 <= pos <= end <= len(data):
            raise CorruptBatchError(f"records from {pos} to {end} in {len(data)} bytes")
        self.data = data  # the body stays where it is
        if not COMPILED:
            self.owner = data if isinstance(data, bytes) else bytes(data)
            self.raw = self.owner
        else:
            self.raw = address_of(self.data)  # type: ignore[name-defined]  # noqa: F821  in the .pxd
        self.start = self.at = pos
        self.end = end
        self.limit = end
        self.count = count
        self.body_bytes = end - pos
        self.taken = 0
        self.base_offset = base_offset
        self.last_offset_delta = last_offset_delta
        self.base_timestamp_ms = base_timestamp_ms
        self.has_append_time = append_time_ms is not None
        self.append_time_ms = append_time_ms or 0
        self.offset = 0
        self.timestamp_ms = 0
        self.key_at = self.key_size = 0
        self.value_at = self.value_size = 0
        self.headers_at = self.header_count = 0
        if count < 0 or count > (end - pos) // SMALLEST_RECORD_BYTES:
            raise CorruptBatchError(f"{self.where()} claims {count} records in {end - pos} bytes")
        if base_offset < 0 or last_offset_delta < 0 or base_offset > _MAX_INT64 - last_offset_delta:
            raise CorruptBatchError(f"{self.where()} has the last offset delta {last_offset_delta}")

    def where(self) -> str:
        """For messages: which record of which batch."""
        return f"record {self.taken} of the batch at offset {self.base_offset}"

    def advance(self) -> int:
        """Parse the next record, all of it."""
        self.limit = self.end
        size = self.varint()
        if size < 0 or size > self.end - self.at:
            raise CorruptBatchError(f"{self.where()} claims {size} bytes, {self.end - self.at} are left")
        self.limit = self.at + size
        self.at = self.at + 1  # the attributes, of which no bit is defined
        if self.at > self.limit:
            raise CorruptBatchError(f"{self.where()} is empty")
        self.set_timestamp(self.varlong())
        delta = self.varint()
        if delta < 0 or delta > self.last_offset_delta:
            raise CorruptBatchError(f"{self.where()} has offset delta {delta}, the last is {self.last_offset_delta}")
        self.offset = self.base_offset + delta
        self.key_size = self.varint()
        self.key_at = self.at
        self.skip(self.key_size)
        self.value_size = self.varint()
        self.value_at = self.at
        self.skip(self.value_size)
        self.header_count = self.varint()
        self.headers_at = self.at
        if self.header_count != 0:
            self.skip_headers()
        if self.at != self.limit:
            raise CorruptBatchError(f"{self.where()} has {self.limit - self.at} bytes after its headers")
        self.taken = self.taken + 1
        return 0

    def check(self) -> int:
        """Parse every record, and build none: whoever takes them bit by bit gets none of a batch that is damaged."""
        while not self.check_some(self.count):
            pass
        return 0

    def check_some(self, at_most: int) -> bool:
        """The same, `at_most` records at a time: True when all are parsed, and the cursor is before the first again."""
        end = self.up_to(at_most)
        while self.taken < end:
            self.advance()
        return self.rewound()

    def up_to(self, at_most: int) -> int:
        """Which record comes behind the next `at_most`."""
        return self.count if self.count - self.taken < at_most else self.taken + at_most

    def rewound(self) -> bool:
        """Behind the last record go back to the first one, if they fill the body; whether it was there."""
        if self.taken < self.count:
            return False
        self.finish()
        self.rewind()
        return True

    def rewind(self) -> int:
        """Go back to the first record."""
        self.at = self.start
        self.taken = 0
        return 0

    def finish(self) -> int:
        """Check that the records fill the body: what is left over is no record anybody counted."""
        if self.at != self.end:
            raise CorruptBatchError(f"{self.end - self.at} bytes after {self.where()}, the last one counted")
        return 0

    def set_timestamp(self, delta: int) -> int:
        base = self.base_timestamp_ms
        if (delta > 0 and base > _MAX_INT64 - delta) or (delta < 0 and base < _MIN_INT64 - delta):
            raise CorruptBatchError(f"{self.where()} has timestamp {base} + {delta}, which no 64 bits hold")
        self.timestamp_ms = self.append_time_ms if self.has_append_time else base + delta
        return 0

    def varint(self) -> int:
        """A zigzag number of 32 bits."""
        pos = self.at
        if pos < self.limit:
            byte = self.raw[pos]
            if byte < 0x80:
                self.at = pos + 1
                return (byte >> 1) ^ -(byte & 1)
            if pos + 1 < self.limit and self.raw[pos + 1] < 0x80:  # two bytes, as most numbers of a record take
                self.at = pos + 2
                bits = (byte & 0x7F) | (self.raw[pos + 1] << 7)
                return (bits >> 1) ^ -(bits & 1)
        return self.long_varint(_VARINT_BYTES, 0x0F)

    def varlong(self) -> int:
        """A zigzag number of 64 bits."""
        pos = self.at
        if pos < self.limit:
            byte = self.raw[pos]
            if byte < 0x80:
                self.at = pos + 1
                return (byte >> 1) ^ -(byte & 1)
            if pos + 1 < self.limit and self.raw[pos + 1] < 0x80:  # two bytes, as most numbers of a record take
                self.at = pos + 2
                bits = (byte & 0x7F) | (self.raw[pos + 1] << 7)
                return (bits >> 1) ^ -(bits & 1)
        return self.long_varint(_VARLONG_BYTES, 0x01)

    def long_varint(self, max_bytes: int, last_max: int) -> int:
        """A number of up to `max_bytes` bytes, the last of them at most `last_max`, so that its bits all fit."""
        value = 0
        shift = 0
        for i in range(max_bytes):
            pos = self.at
            if pos >= self.limit:
                raise CorruptBatchError(f"{self.where()} ends inside a varint")
            byte = self.raw[pos]
            if i == max_bytes - 1 and byte > last_max:
                break
            self.at = pos + 1
            bits = byte & 0x7F
            value |= bits << shift
            if byte < 0x80:
                half = value >> 1
                sign = value & 1
                return half ^ -sign
            shift = shift + 7
        raise CorruptBatchError(f"{self.where()} has a varint of more than {max_bytes} bytes, or of too many bits")

    def skip(self, size: int) -> int:
        """Step over a field of `size` bytes; -1 is null."""
        if size < -1 or size > self.limit - self.at:
            raise CorruptBatchError(f"{self.where()} has a field of {size} bytes, {self.limit - self.at} are left")
        if size > 0:
            self.at = self.at + size
        return 0

    def skip_headers(self) -> int:
        """Step over the headers, checking each."""
        count = self.header_count
        if count < 0 or count > (self.limit - self.at) // 2:
            raise CorruptBatchError(f"{self.where()} claims {count} headers in {self.limit - self.at} bytes")
        for _ in range(count):
            size = self.varint()
            if size < 0:
                raise CorruptBatchError(f"{self.where()} has a header with a key of {size} bytes")
            self.skip(size)
            self.skip(self.varint())
        return 0

    def key(self) -> bytes | None:
        if self.key_size < 0:
            return None
        return self.raw[self.key_at : self.key_at + self.key_size]

    def value(self) -> bytes | None:
        if self.value_size < 0:
            return None
        return self.raw[self.value_at : self.value_at + self.value_size]

    def headers(self) -> tuple[Header, ...]:
        """The headers of the record, in order, duplicates kept. Like Java's, a key that is not UTF-8 is repaired."""
        if self.header_count == 0:
            return _NO_HEADERS
        after = self.at
        self.at = self.headers_at
        found = []
        for _ in range(self.header_count):
            size = self.varint()
            name = self.raw[self.at : self.at + size]
            self.at = self.at + size
            size = self.varint()
            value = None
            if size >= 0:
                value = self.raw[self.at : self.at + size]
                self.at = self.at + size
            found.append((name.decode("utf-8", "replace"), value))
        self.at = after
        return tuple(found)


def read_records(cursor: RecordCursor, record_class: Any, start_offset: int) -> list[Any]:
    """Every record at `start_offset` or later as `record_class` (offset, timestamp_ms, key, value, headers)."""
    new = tuple.__new__
    records = []
    for _ in range(cursor.count):
        cursor.advance()
        if cursor.offset >= start_offset:
            fields = (cursor.offset, cursor.timestamp_ms, cursor.key(), cursor.value(), cursor.headers())
            records.append(new(record_class, fields))
    cursor.finish()
    return records


def read_consumer_records(
    cursor: RecordCursor,
    record_class: Any,
    topic: str,
    partition: int,
    timestamp_type: Any,
    leader_epoch: int | None,
    start_offset: int,
    limit: int,
) -> list[Any]:
    """The next `limit` records from `start_offset` on as `record_class` (topic, partition, offset, timestamp_ms,
    timestamp_type, key, value, headers, leader_epoch), a named tuple: what a consumer hands out, without a step
    in between. Fewer only when these are the last."""
    if not issubclass(record_class, tuple):
        raise TypeError(f"{record_class!r} is no class of named tuples")
    records = []
    wanted = limit
    time = 0
    timestamp_ms = time
    while wanted > 0 and cursor.taken < cursor.count:
        cursor.advance()
        if cursor.offset < start_offset:
            continue
        if cursor.timestamp_ms != time:  # neighbours mostly have the same time, and share one number
            time = cursor.timestamp_ms
            timestamp_ms = time
        offset, key, value, headers = cursor.offset, cursor.key(), cursor.value(), cursor.headers()
        records.append(
            new_consumer_record(  # type: ignore[name-defined]  # noqa: F821  in the .pxd
                record_class, topic, partition, offset, timestamp_ms, timestamp_type, key, value, headers, leader_epoch
            )
            if COMPILED
            else record_class(topic, partition, offset, timestamp_ms, timestamp_type, key, value, headers, leader_epoch)
        )
        wanted -= 1
    if cursor.taken == cursor.count:
        cursor.finish()
    return records


def find_faults(
    cursor: RecordCursor,
    at_most: int,
    needs_key: bool,
    low_ms: int,
    high_ms: int,
    every: bool,
    found: list[tuple[int, bool, int, int, int, int]],
    max_found: int,
) -> tuple[int, int]:
    """Look at the next `at_most` records, and build none of them. Returns how many lack a key, and how many a time.

    A key is wanted with `needs_key`; a timestamp from `low_ms` to `high_ms`, or -1, is a time, and with `every` none
    is. At most `max_found` are added to `found`: index, whether it lacks a key, offset, timestamp, and the sizes of key
    and value. Raises InvalidRecordError for offsets that do not increase by one.
    """
    without_key = 0
    out_of_time = 0
    cursor.last_offset_delta = _MAX_INT32  # so that a delta that is too large is found here
    end = cursor.up_to(at_most)
    while cursor.taken < end:
        index = cursor.taken
        cursor.advance()
        if cursor.offset != cursor.base_offset + index:
            raise InvalidRecordError(
                f"record {index} of the batch has offset delta {cursor.offset - cursor.base_offset}: "
                "the offsets of a batch's records increase by one"
            )
        time = cursor.timestamp_ms
        lacks_key = needs_key and cursor.key_size < 0
        if lacks_key:
            without_key += 1
        elif every or (time != -1 and (time < low_ms or time > high_ms)):
            out_of_time += 1
        else:
            continue
        if len(found) < max_found:
            found.append((index, lacks_key, cursor.offset, time, cursor.key_size, cursor.value_size))
    if cursor.taken == cursor.count:
        cursor.finish()
    return without_key, out_of_time


def find_time(cursor: RecordCursor, at_most: int, timestamp_ms: int, start_offset: int) -> bool:
    """Look at the next `at_most` records, and build none: up to the first one of at least that time, and at
    `start_offset` or later. Whether there is one; the cursor's `timestamp_ms` and `offset` are its own then."""
    end = cursor.up_to(at_most)
    while cursor.taken < end:
        cursor.advance()
        if cursor.timestamp_ms >= timestamp_ms and cursor.offset >= start_offset:
            return True
    return False


def find_newest(
    cursor: RecordCursor, at_most: int, start_offset: int, newest_ms: int, newest_offset: int
) -> tuple[int, int]:
    """Look at the next `at_most` records, and build none. Time and offset of the first one with the newest time, of
    those at `start_offset` or later; `newest_ms` and `newest_offset` if none is newer than that."""
    end = cursor.up_to(at_most)
    while cursor.taken < end:
        cursor.advance()
        if cursor.timestamp_ms > newest_ms and cursor.offset >= start_offset:
            newest_ms = cursor.timestamp_ms
            newest_offset = cursor.offset
    return newest_ms, newest_offset


class ColumnFiller:
    """Fills preallocated column buffers with the records of one batch after another.

    The buffers are large enough for every record of every body that will come: `ottla.wire.columns` allocates them.
    Bitmaps start as zeros. `header_offsets` is None when headers are not wanted.
    """

    def __init__(
        self,
        offsets: Any,
        timestamps: Any,
        timestamp_types: Any,
        keys: tuple[Any, Any, Any],
        values: tuple[Any, Any, Any],
        header_offsets: Any,
    ) -> None:
        self.offsets = offsets
        self.timestamps = timestamps
        self.timestamp_types = timestamp_types
        #: Offsets (32 bits), bytes, and validity bits.
        self.key_offsets, self.key_data, self.key_valid = keys
        self.value_offsets, self.value_data, self.value_valid = values
        if COMPILED:
            self.keys_to = start_of(self.key_data)  # type: ignore[name-defined]  # noqa: F821  in the .pxd
            self.values_to = start_of(self.value_data)  # type: ignore[name-defined]  # noqa: F821  in the .pxd
        self.with_headers = header_offsets is not None
        if self.with_headers:
            self.header_offsets = header_offsets
            self.header_offsets[0] = 0
        self.key_offsets[0] = 0
        self.value_offsets[0] = 0
        self.rows = self.key_bytes = self.value_bytes = self.key_nulls = self.value_nulls = 0
        self.header_keys: list[str] = []
        self.header_values: list[bytes | None] = []

    def fill(self, cursor: RecordCursor, start_offset: int, end_offset: int, timestamp_type: int) -> int:
        """Add the records of `cursor` from `start_offset` up to, not including, `end_offset`."""
        for _ in range(cursor.count):
            cursor.advance()
            if cursor.offset >= start_offset and cursor.offset < end_offset:
                self.add(cursor, timestamp_type)
        return cursor.finish()

    def add(self, cursor: RecordCursor, timestamp_type: int) -> int:
        row = self.rows
        bit = 1 << (row & 7)
        self.offsets[row] = cursor.offset
        self.timestamps[row] = cursor.timestamp_ms
        self.timestamp_types[row] = timestamp_type
        if cursor.key_size >= 0:
            if COMPILED:
                move_bytes(  # type: ignore[name-defined]  # noqa: F821  in the .pxd
                    self.keys_to, self.key_bytes, cursor.raw, cursor.key_at, cursor.key_size
                )
            else:
                self.copy_key(cursor)
            self.key_bytes = self.key_bytes + cursor.key_size
            self.key_valid[row >> 3] |= bit
        else:
            self.key_nulls = self.key_nulls + 1
        self.key_offsets[row + 1] = self.key_bytes
        if cursor.value_size >= 0:
            if COMPILED:
                move_bytes(  # type: ignore[name-defined]  # noqa: F821  in the .pxd
                    self.values_to, self.value_bytes, cursor.raw, cursor.value_at, cursor.value_size
                )
            else:
                self.copy_value(cursor)
            self.value_bytes = self.value_bytes + cursor.value_size
            self.value_valid[row >> 3] |= bit
        else:
            self.value_nulls = self.value_nulls + 1
        self.value_offsets[row + 1] = self.value_bytes
        if self.with_headers:
            self.add_headers(cursor, row)
        self.rows = row + 1
        return 0

    # Slices, for the interpreter: a function with one is slow when it is compiled, also where it does not come to that.

    def copy_key(self, cursor: RecordCursor) -> int:
        self.key_data[self.key_bytes : self.key_bytes + cursor.key_size] = cursor.key()
        return 0

    def copy_value(self, cursor: RecordCursor) -> int:
        self.value_data[self.value_bytes : self.value_bytes + cursor.value_size] = cursor.value()
        return 0

    def add_headers(self, cursor: RecordCursor, row: int) -> int:
        if cursor.header_count != 0:
            for name, value in cursor.headers():
                self.header_keys.append(name)
                self.header_values.append(value)
        self.header_offsets[row + 1] = len(self.header_keys)
        return 0
