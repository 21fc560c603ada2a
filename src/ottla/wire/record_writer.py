# cython: boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Writes the records of a batch into one growing buffer; `record_codec.py` describes the format and reads it.

A compiled module like that one: plain Python, typed by `record_writer.pxd`, also running interpreted.
"""

from collections.abc import Iterable
from typing import Any

from ottla.wire.batch import HEADER_BYTES
from ottla.wire.spare_memory import SpareMemory

#: Told by the loader: the compiled module is no .py file.
COMPILED = not __file__.endswith(".py")

#: Later times cannot be written, so that the difference of any two fits 64 bits; the year is 146 million.
_TIMESTAMP_END_MS = 2**62
_FIRST_CAPACITY_BYTES = 1024
#: Room in front of the records, for the header of a batch.
_HEAD_BYTES = HEADER_BYTES
#: Smaller buffers are quick to have new, and would be in the way of a search for the larger ones.
_SPARE_BYTES = 131_072
_MAX_INT32 = 2**31 - 1
#: Records of one batch: its length field is a signed number of 32 bits and counts 49 bytes of the header too.
_MAX_BODY_BYTES = 2**31 - 1 - 49
#: Lengths of one byte, as most of a header's are.
_SHORT_VARINTS = tuple(bytes([value << 1]) for value in range(64))
#: Header count 0.
_NO_PACKED_HEADERS = b"\x00"

Header = tuple[str, bytes | None]


class RecordWriter:
    """Records of one batch being built, uncompressed, in one growing buffer.

    `limit_bytes` bounds the records' bytes, but a first record always fits, however large. A buffer that begins with
    room for `expected_bytes` need not grow, which is copying. A large one is memory of `spare`, if that is given.
    """

    def __init__(self, limit_bytes: int, expected_bytes: int = 0, spare: SpareMemory | None = None) -> None:
        self.limit_bytes = limit_bytes
        self.spare = spare
        self.used = 0
        self.count = 0
        self.last_offset_delta = -1
        self.base_timestamp_ms = -1
        self.max_timestamp_ms = -1
        self.use(self.new_memory(max(min(expected_bytes, limit_bytes), _FIRST_CAPACITY_BYTES)))

    def new_memory(self, capacity: int) -> memoryview:
        size = _HEAD_BYTES + capacity
        if self.spare is None or size < _SPARE_BYTES:
            return memoryview(bytearray(size))
        memory: memoryview = self.spare.take(size)
        return memory

    def use(self, memory: memoryview) -> int:
        """Write into this memory from now on. What raises comes first: then the memory before it stays in use."""
        self.view = memory[_HEAD_BYTES:]
        self.memory = memory
        self.capacity = len(memory) - _HEAD_BYTES
        if COMPILED:
            self.to = start_of(self.view)  # type: ignore[name-defined]  # noqa: F821  in the .pxd
        return 0

    def try_append(self, timestamp_ms: int, key: bytes | None, value: bytes | None, headers: Iterable[Header]) -> int:
        """Add a record; its relative offset, or -1 when the batch is full and the record was not added.

        Raises TypeError for a key or value that is not bytes, ValueError for an impossible timestamp.
        """
        delta = self.last_offset_delta + 1
        return delta if self.append_at(delta, timestamp_ms, key, value, headers) else -1

    def append_at(
        self,
        offset_delta: int,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: Iterable[Header],
    ) -> bool:
        """The same at a relative offset of the caller's, behind the last one; whether there was room."""
        packed = _NO_PACKED_HEADERS
        if headers:
            packed = pack_headers(headers)
        key_size = _size(key)
        value_size = _size(value)
        if not self.begin_record(offset_delta, timestamp_ms, key_size, value_size, len(packed)):
            return False
        self.put_varint(key_size)
        if key is not None:
            self.put_bytes(key, key_size)
        self.put_varint(value_size)
        if value is not None:
            self.put_bytes(value, value_size)
        self.put_bytes(packed, len(packed))
        return True

    def begin_record(
        self, offset_delta: int, timestamp_ms: int, key_size: int, value_size: int, headers_size: int
    ) -> bool:
        """Make room for a record and write what comes before its key; False when the batch is full."""
        if timestamp_ms < -1 or timestamp_ms >= _TIMESTAMP_END_MS:
            raise ValueError(f"timestamp {timestamp_ms} ms is not a time Kafka has")
        if offset_delta <= self.last_offset_delta or offset_delta > _MAX_INT32:
            raise ValueError(f"relative offset {offset_delta} after {self.last_offset_delta}")
        delta = 0 if self.count == 0 else timestamp_ms - self.base_timestamp_ms
        size = 1 + varint_size(delta) + varint_size(offset_delta) + varint_size(key_size) + varint_size(value_size)
        size = size + max(key_size, 0) + max(value_size, 0) + headers_size
        whole = varint_size(size) + size
        if self.count != 0 and whole > self.limit_bytes - self.used:
            return False
        if whole > _MAX_BODY_BYTES - self.used:
            raise ValueError(f"a record of {size} bytes does not fit a batch, whose length has 31 bits")
        if whole > self.capacity - self.used:
            self.grow(self.used + whole)
        if self.count == 0:
            self.base_timestamp_ms = timestamp_ms
            self.max_timestamp_ms = timestamp_ms
        elif timestamp_ms > self.max_timestamp_ms:
            self.max_timestamp_ms = timestamp_ms
        self.put_varint(size)
        self.view[self.used] = 0
        self.used = self.used + 1
        self.put_varint(delta)
        self.put_varint(offset_delta)
        self.last_offset_delta = offset_delta
        self.count = self.count + 1
        return True

    def append_rows(
        self,
        start: int,
        stop: int,
        timestamps: Any,
        keys: tuple[Any, Any, Any, int] | None,
        values: tuple[Any, Any, Any, int] | None,
        headers: list[bytes] | None,
    ) -> int:
        """Add the rows from `start` on of a table, until `stop` or until the batch is full; how many were added.

        `keys` and `values` are a binary Arrow array: offsets, data, validity bits or None, and where the bits begin.
        `headers` are packed (`pack_headers`), one element a row.
        """
        if start < 0 or stop > len(timestamps) or (headers is not None and stop > len(headers)):
            raise ValueError(f"rows {start} to {stop} of {len(timestamps)}")
        key_view = _BinaryView(keys)
        value_view = _BinaryView(values)
        packed = _NO_PACKED_HEADERS
        row = start
        while row < stop:
            key_size = key_view.size(row)
            value_size = value_view.size(row)
            if headers is not None:
                packed = headers[row]
            if not self.begin_record(self.last_offset_delta + 1, timestamps[row], key_size, value_size, len(packed)):
                break
            self.put_field(key_view, row, key_size)
            self.put_field(value_view, row, value_size)
            self.put_bytes(packed, len(packed))
            row = row + 1
        return row - start

    def put_field(self, column: "_BinaryView", row: int, size: int) -> int:
        self.put_varint(size)
        if size > 0:
            start = column.offsets[row]
            if COMPILED:
                move_bytes(self.to, self.used, column.raw, start, size)  # type: ignore[name-defined]  # noqa: F821
            else:
                self.put_slice(column.data, start, size)
            self.used = self.used + size
        return 0

    def put_bytes(self, source: bytes, size: int) -> int:
        if COMPILED:
            raw = source
            move_bytes(self.to, self.used, raw, 0, size)  # type: ignore[name-defined]  # noqa: F821
        else:
            self.put_slice(source, 0, size)
        self.used = self.used + size
        return 0

    def put_slice(self, source: Any, start: int, size: int) -> int:
        """Interpreted, a slice is the fast way. A function that has one in it is slow when it is compiled."""
        self.view[self.used : self.used + size] = source[start : start + size]
        return 0

    def put_varint(self, value: int) -> int:
        rest = (value << 1) ^ (value >> 63)
        pos = self.used
        while rest >= 0x80:
            self.view[pos] = (rest & 0x7F) | 0x80
            pos = pos + 1
            rest = rest >> 7
        self.view[pos] = rest
        self.used = pos + 1
        return 0

    def grow(self, needed: int) -> int:
        larger = self.new_memory(max(min(self.capacity * 2, self.limit_bytes), needed))
        end = _HEAD_BYTES + self.used
        larger[:end] = self.memory[:end]
        self.use(larger)
        return 0

    def body(self) -> memoryview:
        """The records, uncompressed."""
        records: memoryview = self.memory[_HEAD_BYTES : _HEAD_BYTES + self.used]
        return records

    def close(self) -> None:
        """Take no more records. There is one."""
        self.limit_bytes = 0

    def with_head(self, head: bytes) -> memoryview:
        """`head`, which is as long as a batch's header, and the records behind it, in the writer's own memory."""
        whole: memoryview = self.memory[: _HEAD_BYTES + self.used]
        whole[:_HEAD_BYTES] = head
        return whole


class _BinaryView:
    """A binary Arrow array as typed buffers; None is a column of nulls."""

    def __init__(self, column: tuple[Any, Any, Any, int] | None) -> None:
        self.present = column is not None
        self.has_nulls = False
        if column is not None:
            self.offsets, self.data, valid, self.valid_at = column
            if COMPILED:
                self.raw = address_of(self.data)  # type: ignore[name-defined]  # noqa: F821  in the .pxd
            if valid is not None:
                self.has_nulls = True
                self.valid = valid

    def size(self, row: int) -> int:
        if not self.present:
            return -1
        if self.has_nulls:
            bit = row + self.valid_at
            if not (self.valid[bit >> 3] >> (bit & 7)) & 1:
                return -1
        size: int = self.offsets[row + 1] - self.offsets[row]
        return size


def _size(field: bytes | None) -> int:
    if field is None:
        return -1
    if type(field) is not bytes:  # no subclass: what it says of its length need not be so
        raise TypeError(f"a key or value is bytes or None, not {type(field).__name__}")
    return len(field)


def varint_size(value: int) -> int:
    """Bytes of `value` as a zigzag varint."""
    rest = (value << 1) ^ (value >> 63)
    size = 1
    while rest >= 0x80:
        rest = rest >> 7
        size = size + 1
    return size


def pack_headers(headers: Iterable[Header]) -> bytes:
    parts = []
    count = 0
    for name, value in headers:
        raw = name.encode()
        parts.append(_packed_varint(len(raw)))
        parts.append(raw)
        if value is None:
            parts.append(b"\x01")
        else:
            raw = value if type(value) is bytes else bytes(memoryview(value))  # its length may be no number of bytes
            parts.append(_packed_varint(len(raw)))
            parts.append(raw)
        count += 1
    return _packed_varint(count) + b"".join(parts)


def _packed_varint(value: int) -> bytes:
    if value < 64:
        return _SHORT_VARINTS[value]
    rest = value << 1
    out = bytearray()
    while rest >= 0x80:
        out.append((rest & 0x7F) | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)
