"""Record batches to Arrow columns and back. The only module of `wire` that imports pyarrow.

Decoding copies every key and value once, into buffers allocated at their final size, and wraps those as arrays.
Encoding reads the buffers of the arrays as they are. No record ever becomes a Python object, headers excepted.
"""

import struct
import sys
from array import array
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, islice
from typing import Any, Final, NamedTuple

import pyarrow as pa

from ottla.base.limits import MAX_COLUMN_BYTES
from ottla.wire.batch import (
    NO_PARTITION_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    BatchHeader,
    Buffer,
    Compression,
    CorruptBatchError,
    assign_offsets,
    check_integrity,
    iter_headers,
)
from ottla.wire.record_codec import ColumnFiller, RecordCursor
from ottla.wire.record_writer import pack_headers
from ottla.wire.records import BatchBuilder, open_batch
from ottla.wire.spare_memory import SpareMemory

HEADER_TYPE: Final = pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())])
HEADERS_TYPE: Final = pa.list_(pa.field("item", HEADER_TYPE, nullable=False))
#: What `decode_columns` gives; the last field only with headers.
SCHEMA: Final = pa.schema(
    [
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp_ms", pa.int64(), nullable=False),
        pa.field("timestamp_type", pa.int32(), nullable=False),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", HEADERS_TYPE, nullable=False),
    ]
)
_WITHOUT_HEADERS: Final = pa.schema(list(SCHEMA)[:5])
_MAX_INT64: Final = 2**63 - 1
_NO_LIMIT_BYTES: Final = 2**31 - 1
#: What a record takes beside its key, value and headers, about.
_FRAMING_BYTES: Final = 12
_NO_HEADERS: Final = pack_headers(())


def scalar(value: int | str | None, kind: Any) -> Any:
    """A pyarrow scalar of this type: a whole number, a string, or null.

    `pyarrow.scalar`, `pyarrow.array` and functions that get a value of Python import pandas, if it is installed. That
    takes a third of a second, and each new worker of Spark would wait for it.
    """
    if value is None:
        return pa.nulls(1, kind)[0]
    if isinstance(value, int):
        parts = [value.to_bytes(kind.byte_width, sys.byteorder, signed=True)]
    else:
        data = value.encode()
        parts = [struct.pack("=2i", 0, len(data)), data]
    return pa.Array.from_buffers(kind, 1, [None, *map(pa.py_buffer, parts)])[0]


def binary_array(values: Sequence[bytes | None], kind: Any) -> Any:
    """A pyarrow array of this type, `binary` or `string`, of these bytes. As `scalar`, it imports no pandas."""
    offsets = array("i", accumulate((len(each or b"") for each in values), initial=0))
    nulls, valid = values.count(None), bytearray((len(values) + 7) // 8)
    for at, each in enumerate(values):
        if each is not None:
            valid[at >> 3] |= 1 << (at & 7)
    data = b"".join(each or b"" for each in values)
    buffers = [pa.py_buffer(valid) if nulls else None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(kind, len(values), buffers, nulls)


def decode_columns(
    buf: Buffer,
    *,
    start_offset: int = 0,
    end_offset: int | None = None,
    skip: Callable[[BatchHeader], bool] | None = None,
    with_headers: bool = False,
    check_crc: bool = True,
) -> Any:
    """A pyarrow.RecordBatch of the records in `buf` from `start_offset` up to, not including, `end_offset`.

    `buf` holds any number of batches, the last perhaps cut off, as a fetch does. Batches for which `skip` is true
    (aborted ones) are not opened, nor are control batches: only their CRC is checked. Columns are those of `SCHEMA`,
    `headers` only when asked for. Raises CorruptBatchError as `open_batch`, and when the columns would exceed 2 GiB.
    """
    end = _MAX_INT64 if end_offset is None else end_offset
    part = ColumnsPart()
    for header, cursor in _opened(buf, start_offset, end_offset, skip, check_crc):
        part.add(header, cursor)
    return part.columns(start_offset, end, with_headers)


def decode_in_parts(
    buf: Buffer,
    part_bytes: int,
    *,
    start_offset: int = 0,
    end_offset: int | None = None,
    skip: Callable[[BatchHeader], bool] | None = None,
    with_headers: bool = False,
    check_crc: bool = True,
) -> Iterator[Any]:
    """The same in RecordBatches, one after the other. Each has as many batches as hold `part_bytes` when decompressed,
    and at least one. A fetch of compressed batches may hold a thousand times its own bytes. Raises CorruptBatchError as
    `open_batch`, when it comes to such a batch.
    """
    end = _MAX_INT64 if end_offset is None else end_offset
    part = ColumnsPart()
    for header, cursor in _opened(buf, start_offset, end_offset, skip, check_crc):
        if part.rows and part.size_bytes + cursor.body_bytes > part_bytes:
            yield part.columns(start_offset, end, with_headers)
            part = ColumnsPart()
        part.add(header, cursor)
    if part.rows:
        yield part.columns(start_offset, end, with_headers)


def _opened(
    buf: Buffer, start: int, end: int | None, skip: Callable[[BatchHeader], bool] | None, check_crc: bool
) -> Iterator[tuple[BatchHeader, RecordCursor]]:
    """The batches of `buf` that may have records from `start` up to `end`, decompressed one by one."""
    for pos, header in iter_headers(buf):
        if header.base_offset < 0 or header.last_offset_delta < 0:
            raise CorruptBatchError(f"a batch from offset {header.base_offset} to {header.last_offset} at {pos}")
        if header.last_offset < start or (end is not None and header.base_offset >= end):
            continue
        if header.is_control or (skip is not None and skip(header)):
            if check_crc:
                check_integrity(buf, pos, header)  # perhaps only one bit says that it is to be skipped
            continue
        yield header, open_batch(buf, pos, header, check_crc=check_crc)


class ColumnsPart:
    """Batches that become columns together."""

    def __init__(self) -> None:
        #: Of all batches that were added; bytes when decompressed.
        self.rows = self.size_bytes = 0
        self._opened: list[tuple[BatchHeader, RecordCursor]] = []

    def add(self, header: BatchHeader, cursor: RecordCursor) -> None:
        """One more batch. CorruptBatchError when the columns would exceed 2 GiB."""
        self.rows += header.record_count
        self.size_bytes += cursor.body_bytes
        if self.size_bytes > MAX_COLUMN_BYTES:
            raise CorruptBatchError(
                f"batches up to offset {header.last_offset} hold more than {MAX_COLUMN_BYTES} bytes"
            )
        self._opened.append((header, cursor))

    def columns(self, start: int = 0, end: int = _MAX_INT64, with_headers: bool = False) -> Any:
        """A pyarrow.RecordBatch of their records from offset `start` up to, not including, `end`."""
        columns = _Columns(self.rows, self.size_bytes, with_headers)
        for header, cursor in self._opened:
            columns.filler.fill(cursor, start, end, int(header.timestamp_type))
        return columns.finish()


class _Columns:
    """Buffers of Arrow columns being filled."""

    def __init__(self, rows: int, size_bytes: int, with_headers: bool) -> None:
        self.offsets = _allocate(rows * 8)
        self.timestamps = _allocate(rows * 8)
        self.timestamp_types = _allocate(rows * 4)
        self.keys = _Binary(rows, size_bytes)
        self.values = _Binary(rows, size_bytes)
        self.header_offsets = _allocate((rows + 1) * 4) if with_headers else None
        self.filler = ColumnFiller(
            memoryview(self.offsets).cast("q"),
            memoryview(self.timestamps).cast("q"),
            memoryview(self.timestamp_types).cast("i"),
            self.keys.views(),
            self.values.views(),
            None if self.header_offsets is None else memoryview(self.header_offsets).cast("i"),
        )

    def finish(self) -> Any:
        filler = self.filler
        rows = filler.rows
        header_keys, header_values = filler.header_keys, filler.header_values
        sizes = (filler.key_bytes, filler.key_nulls), (filler.value_bytes, filler.value_nulls)
        del self.filler, filler  # its views, before the buffers shrink
        arrays = [
            _fixed(pa.int64(), rows, 8, self.offsets),
            _fixed(pa.int64(), rows, 8, self.timestamps),
            _fixed(pa.int32(), rows, 4, self.timestamp_types),
            self.keys.finish(rows, *sizes[0]),
            self.values.finish(rows, *sizes[1]),
        ]
        if self.header_offsets is None:
            return pa.RecordBatch.from_arrays(arrays, schema=_WITHOUT_HEADERS)
        items = pa.StructArray.from_arrays(
            [
                binary_array([key.encode() for key in header_keys], pa.string()),
                binary_array(header_values, pa.binary()),
            ],
            fields=list(HEADER_TYPE),
        )
        self.header_offsets.resize((rows + 1) * 4)
        arrays.append(pa.Array.from_buffers(HEADERS_TYPE, rows, [None, self.header_offsets], 0, children=[items]))
        return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


class _Binary:
    """The three buffers of a binary column."""

    def __init__(self, rows: int, size_bytes: int) -> None:
        self.offsets = _allocate((rows + 1) * 4)
        self.data = _allocate(size_bytes)
        self.valid = bytearray((rows + 7) // 8)

    def views(self) -> tuple[memoryview, memoryview, bytearray]:
        return memoryview(self.offsets).cast("i"), memoryview(self.data).cast("B"), self.valid

    def finish(self, rows: int, size_bytes: int, nulls: int) -> Any:
        self.offsets.resize((rows + 1) * 4)
        self.data.resize(size_bytes)
        valid = pa.py_buffer(self.valid) if nulls else None
        return pa.Array.from_buffers(pa.binary(), rows, [valid, self.offsets, self.data], nulls)


def _allocate(size_bytes: int) -> Any:
    return pa.allocate_buffer(max(size_bytes, 8), resizable=True)  # a memoryview of nothing cannot be cast


def _fixed(kind: Any, rows: int, width: int, buffer: Any) -> Any:
    buffer.resize(rows * width)
    return pa.Array.from_buffers(kind, rows, [None, buffer], 0)


# --- The way back ---


class ColumnSource(NamedTuple):
    """A table's columns as the codec reads them, made by `column_source`; `rows` of them."""

    rows: int
    timestamps: memoryview
    keys: tuple[Any, Any, Any, int] | None
    values: tuple[Any, Any, Any, int] | None
    headers: list[bytes] | None

    @property
    def about_bytes(self) -> int:
        """What the records take, about."""
        columns: int = sum(offsets[-1] - offsets[0] for offsets, *_ in filter(None, (self.keys, self.values)))
        return columns + sum(map(len, self.headers or ())) + self.rows * _FRAMING_BYTES

    def append_to(self, builder: BatchBuilder, start: int, stop: int | None = None) -> int:
        """Append rows from `start` on until `stop` (default: all) or until `builder` is full; how many were added."""
        stop = self.rows if stop is None else min(stop, self.rows)
        return builder.append_rows(start, stop, self.timestamps, self.keys, self.values, self.headers)


def column_source(batch: Any, *, now_ms: int = NO_TIMESTAMP) -> ColumnSource:
    """Prepare a pyarrow.RecordBatch or Table: its columns key, value, headers and timestamp_ms; others are ignored.

    key and value are binary or string columns of any Arrow kind; a missing column counts as nulls. `timestamp_ms` is an
    integer or a timestamp; where it is missing or null, the record gets `now_ms`. Raises ValueError for other types.
    """
    columns = {name: batch.column(name) for name in batch.schema.names}
    rows: int = batch.num_rows
    return ColumnSource(
        rows,
        _timestamps(columns.get("timestamp_ms"), rows, now_ms),
        _binary("key", columns.get("key")),
        _binary("value", columns.get("value")),
        packed_headers(columns.get("headers")),
    )


def encode_columns(
    batch: Any,
    *,
    now_ms: int = NO_TIMESTAMP,
    compression: Compression = Compression.NONE,
    level: int | None = None,
    base_offset: int = 0,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
) -> bytes:
    """One record batch of all rows of `batch` (see `column_source`), whatever its size. ValueError when empty."""
    builder = BatchBuilder(_NO_LIMIT_BYTES)
    column_source(batch, now_ms=now_ms).append_to(builder, 0)
    sealed = bytearray(builder.build(producer_id, producer_epoch, base_sequence, transactional, compression, level))
    assign_offsets(sealed, 0, base_offset, NO_PARTITION_LEADER_EPOCH)
    return bytes(sealed)


def encode_in_batches(
    batch: Any, limit_bytes: int, *, now_ms: int = NO_TIMESTAMP, spare: SpareMemory | None = None
) -> Iterator[BatchBuilder]:
    """Builders with all rows in order, as many in each as in the others if they are of one size.

    Each has at most `limit_bytes` (`batch.size`) before compression, and memory of `spare` if that is much.
    """
    source = column_source(batch, now_ms=now_ms)
    about_bytes = source.about_bytes
    parts = -(-about_bytes // max(limit_bytes, 1))
    done = 0
    while done < source.rows:
        builder = BatchBuilder(limit_bytes, 9 * about_bytes // (8 * parts), spare)  # some rows are larger than others
        done += source.append_to(builder, done, done + -(-source.rows // parts))
        yield builder


def _one_array(column: Any) -> Any:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _binary(name: str, column: Any) -> tuple[Any, Any, Any, int] | None:
    if column is None or pa.types.is_null(column.type):
        return None
    array = _one_array(column)
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if not pa.types.is_binary(array.type):
        try:
            array = array.cast(pa.binary())
        except pa.ArrowException as error:
            raise ValueError(f"column {name} of type {array.type} holds no bytes: {error}") from None
    if len(array) == 0:
        return None
    valid, offsets, data = array.buffers()
    view = memoryview(offsets).cast("i")[array.offset : array.offset + len(array) + 1]
    no_nulls = valid is None or array.null_count == 0
    return view, _bytes(data), None if no_nulls else _bytes(valid), array.offset


def _bytes(buffer: Any) -> memoryview | bytes:
    return memoryview(buffer).cast("B") if buffer is not None and buffer.size else b""


def _timestamps(column: Any, rows: int, now_ms: int) -> memoryview:
    if column is None or pa.types.is_null(column.type) or rows == 0:
        array = pa.repeat(scalar(now_ms, pa.int64()), max(rows, 1))
    else:
        array = _one_array(column)
        if pa.types.is_timestamp(array.type):
            array = array.cast(pa.timestamp("ms", array.type.tz), safe=False)
        elif not pa.types.is_integer(array.type):
            raise ValueError(f"column timestamp_ms of type {array.type} holds no times")
        array = array.cast(pa.int64()).fill_null(scalar(now_ms, pa.int64()))
    return memoryview(array.buffers()[1]).cast("q")[array.offset : array.offset + rows]


def packed_headers(column: Any) -> list[bytes] | None:
    """The headers of each row as a record has them; None if no row has any. Raises ValueError."""
    if column is None or pa.types.is_null(column.type):
        return None
    array = _one_array(column)
    kind = array.type
    fields = kind.value_type if pa.types.is_list(kind) and pa.types.is_struct(kind.value_type) else ()
    called = {field.name.lower(): field.name for field in fields}
    key, value = called.get("key"), called.get("value")
    if key is None or value is None:
        raise ValueError(f"column headers of type {kind} is no list of key and value")
    headers = array.flatten()
    names, values = headers.field(key), headers.field(value)
    if headers.null_count or names.null_count:
        raise ValueError("column headers has a null in the place of a header, or of its key")
    if not len(headers):
        return None
    pairs = zip(names.to_pylist(), values.to_pylist(), strict=True)
    lengths = array.value_lengths().to_pylist()
    return [pack_headers(islice(pairs, length)) if length else _NO_HEADERS for length in lengths]
