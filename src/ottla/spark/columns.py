"""Arrow columns between Kafka and Spark: a fetch as the rows of the source, and a digest of the rows of the sink."""

from collections.abc import Iterable, Iterator
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from ottla.base.errors import ConfigError
from ottla.base.types import TopicPartition
from ottla.spark.errors import PipelineError, RowError
from ottla.wire.batch import BatchHeader, is_emptied, iter_headers
from ottla.wire.columns import decode_in_parts, scalar
from ottla.wire.crc import crc32c
from ottla.wire.markers import parse_end_txn_marker

#: The row schema of Spark's own Kafka connector; `headers` only with includeHeaders.
SOURCE_SCHEMA: Final = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"
)
HEADERS_SCHEMA: Final = ", headers array<struct<key: string, value: binary>>"

#: The same, column by column.
_OURS: Final = dict(pair.split(" ") for pair in SOURCE_SCHEMA.split(", "))
_OUR_HEADERS: Final = {"headers": "array<struct<key:string,value:binary>>"}

_NULL: Final = scalar(-1, pa.int64())
_NOTHING: Final = scalar(0, pa.int32())
#: The last millisecond of Spark's timestamps, which are microseconds in 64 bits.
_MOST_MS: Final = (2**63 - 1) // 1_000
#: Records of one RecordBatch, decompressed, beyond which another one begins: a fetch of 8 MB may hold gigabytes.
_PART_BYTES: Final = 33_554_432
#: The columns of the sink, and what they may be; all others are passed over, as Spark's connector does.
WRITABLE = {
    "key": (pa.types.is_binary, pa.types.is_string, pa.types.is_large_binary, pa.types.is_large_string),
    "value": (pa.types.is_binary, pa.types.is_string, pa.types.is_large_binary, pa.types.is_large_string),
    "topic": (pa.types.is_string, pa.types.is_large_string),
    "partition": (pa.types.is_int32,),
    "headers": (pa.types.is_list,),
}


def check_source_schema(columns: Iterable[tuple[str, str]], *, with_headers: bool) -> None:
    """Raise ConfigError unless these names and types, as Spark writes them shortly, are the source's own columns.

    A user can give others with `.schema(...)`. Columns are filled in their order, so two could change places unseen.
    """
    # With spark.sql.timestampType=TIMESTAMP_NTZ our own schema is read so.
    given = [(name, "timestamp" if kind == "timestamp_ntz" else kind) for name, kind in columns]
    ours = list({**_OURS, **(_OUR_HEADERS if with_headers else {})}.items())
    if given == ours:
        return
    wrong = [f"{name} {kind}" for name, kind in given if (name, kind) not in ours]
    missing = [f"{name} {kind}" for name, kind in ours if (name, kind) not in given]
    said = [f"the source has no column {', '.join(wrong)}"] if wrong else []
    said += [f"it lacks {', '.join(missing)}"] if missing else []
    said = said or [f"the source's columns come in the order {', '.join(name for name, _ in ours)}, each once"]
    hint = "" if with_headers or all(name != "headers" for name, _ in given) else " and set includeHeaders"
    raise ConfigError(
        f"the schema that was given to the source is not its own: {'; '.join(said)}. Leave .schema(...) away{hint}, "
        "and select or cast columns afterwards"
    )


class Chunk:
    """The record batches of one fetch: which of them are whole, and up to which offset they reach."""

    def __init__(self, records: Any, aborted: Iterable[tuple[int, int]], *, committed: bool) -> None:
        """`aborted` is the fetch's list of aborted transactions: producer id and first offset of each."""
        self._view = memoryview(records)
        self._is_copy = False
        self._headers = list(iter_headers(self._view))
        self._left_out = self._aborted(sorted(aborted, key=lambda a: a[1], reverse=True)) if committed else set()

    @property
    def next_offset(self) -> int | None:
        """The offset at which the next fetch starts; None when this fetch brought no whole batch."""
        return self._headers[-1][1].last_offset + 1 if self._headers else None

    @property
    def size_bytes(self) -> int:
        """Of the whole batches."""
        if not self._headers:
            return 0
        pos, header = self._headers[-1]
        return pos + header.size_bytes

    def rest(self, offset: int, most_bytes: int) -> "Chunk | None":
        """A copy of the batches that reach to `offset` or beyond; None if there is none, or more than `most_bytes`.

        The same chunk if it has no others. A copy, because memory of a fetch is used again when nobody has it.
        """
        behind = [(pos, header) for pos, header in self._headers if header.last_offset >= offset]
        if not behind:
            return None
        begin, end = behind[0][0], self.size_bytes
        if end - begin > most_bytes:
            return None
        if begin == 0 and self._is_copy:
            return self
        rest = object.__new__(Chunk)
        rest._view, rest._is_copy = memoryview(bytes(self._view[begin:end])), True
        rest._headers = [(pos - begin, header) for pos, header in behind]
        rest._left_out = self._left_out  # what was aborted may have begun, or ended, in batches that are gone
        return rest

    def rows(self, tp: TopicPartition, start: int, end: int, schema: Any) -> Iterator[Any]:
        """Records from `start` to `end` (not included) as RecordBatches of `schema`, the source's.

        Raises CorruptBatchError and PipelineError when it comes to such a record.
        """
        parts = decode_in_parts(
            self._view,
            _PART_BYTES,
            start_offset=start,
            end_offset=end,
            skip=(lambda header: header.base_offset in self._left_out) if self._left_out else None,
            with_headers="headers" in schema.names,
        )
        return (self._as_rows(tp, part, schema) for part in parts)

    def _as_rows(self, tp: TopicPartition, found: Any, schema: Any) -> Any:
        count = found.num_rows
        _require_times(tp, found.column("offset"), found.column("timestamp_ms"))
        micros = found.column("timestamp_ms").view(pa.timestamp("ms", tz="UTC")).cast(schema.field("timestamp").type)
        columns = [
            found.column("key"),
            found.column("value"),
            pa.repeat(scalar(tp.topic, pa.string()), count),
            pa.repeat(scalar(tp.partition, pa.int32()), count),
            found.column("offset"),
            micros,
            found.column("timestamp_type"),
        ]
        if "headers" in schema.names:
            headers = found.column("headers").cast(schema.field("headers").type)
            none = pc.equal(pc.list_value_length(headers), _NOTHING)  # null, as in Spark's connector
            columns.append(pc.if_else(none, scalar(None, headers.type), headers))
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def _aborted(self, transactions: list[tuple[int, int]]) -> set[int]:
        """Base offsets of the batches that belong to aborted transactions (KIP-98)."""
        aborting: set[int] = set()
        left_out: set[int] = set()
        for pos, header in self._headers:
            while transactions and transactions[-1][1] <= header.last_offset:
                aborting.add(transactions.pop()[0])
            if header.producer_id not in aborting:
                continue
            if header.is_control:
                if not self._is_commit(pos, header):
                    aborting.discard(header.producer_id)
            elif header.is_transactional:
                left_out.add(header.base_offset)
        return left_out

    def _is_commit(self, pos: int, header: BatchHeader) -> bool:
        """What a control batch says.

        One that compaction has emptied counts as an abort: no record of its transaction is left, and the records behind
        it belong to the next one.
        """
        return not is_emptied(header) and parse_end_txn_marker(self._view[pos : pos + header.size_bytes])[0]


class RowDigest:
    """A digest of rows in their order: CRCs of every column's bytes and lengths.

    The same rows give the same digest, whichever RecordBatches they come in.
    """

    def __init__(self) -> None:
        self.rows = 0
        self._crcs: dict[str, tuple[int, int]] = {}

    def update(self, batch: Any) -> None:
        """Take in a RecordBatch of the sink."""
        self.rows += batch.num_rows
        for name in batch.schema.names:
            if name not in WRITABLE:
                continue
            column = batch.column(name)
            if pa.types.is_list(column.type):
                column = pa.array([None if row is None else repr(row) for row in column.to_pylist()], pa.string())
            lengths, content = self._crcs.get(name, (0, 0))
            data, sizes = _bytes_of(column)
            self._crcs[name] = crc32c(sizes, lengths), crc32c(data, content)

    def hex(self) -> str:
        """The digest so far."""
        return "".join(f"{a:08x}{b:08x}" for _, (a, b) in sorted(self._crcs.items()))


def _require_times(tp: TopicPartition, offsets: Any, times_ms: Any) -> None:
    """Raise PipelineError naming the first record whose time is none of Spark's, which counts microseconds."""
    ends = pc.min_max(times_ms)
    if not len(times_ms) or (ends["min"].as_py() >= -_MOST_MS and ends["max"].as_py() <= _MOST_MS):
        return
    for offset, at_ms in zip(offsets.to_pylist(), times_ms.to_pylist(), strict=True):
        if not -_MOST_MS <= at_ms <= _MOST_MS:
            raise PipelineError(
                f"{tp}: the record at offset {offset} has the timestamp {at_ms} ms since 1970, and Spark has none "
                f"beyond {_MOST_MS} ms. Begin behind it (startingOffsets, with a new checkpoint), or delete the "
                "partition's records up to it"
            )


def _bytes_of(column: Any) -> tuple[Any, Any]:
    """A column's data and each row's length (-1 for null), as bytes that do not depend on how Arrow stores them."""
    if pa.types.is_int32(column.type):
        return _int_bytes(column), b""
    lengths = pc.binary_length(column).cast(pa.int64()).fill_null(_NULL)
    array = column.cast(pa.large_binary())
    _, offsets, data = array.buffers()
    if data is None or len(array) == 0:
        return b"", _int_bytes(lengths)
    bounds = memoryview(offsets).cast("q")
    return memoryview(data)[bounds[array.offset] : bounds[array.offset + len(array)]], _int_bytes(lengths)


def _int_bytes(column: Any) -> Any:
    whole = column.cast(pa.int64()).fill_null(_NULL)
    return memoryview(whole.buffers()[1])[8 * whole.offset : 8 * (whole.offset + len(whole))] if len(whole) else b""


def _are_headers(kind: Any) -> bool:
    """Whether Spark's connector takes a column of this type as headers. As there, capitals in names do not count."""
    if not pa.types.is_list(kind) or not pa.types.is_struct(kind.value_type):
        return False
    fields = list(kind.value_type)
    return (
        [field.name.lower() for field in fields] == ["key", "value"]
        and (pa.types.is_string(fields[0].type) or pa.types.is_large_string(fields[0].type))
        and (pa.types.is_binary(fields[1].type) or pa.types.is_large_binary(fields[1].type))
    )


def check_headers(column: Any) -> None:
    """Raise RowError if a row of the column `headers` has a header without a key, or a null in its place."""
    if not pa.types.is_list(column.type):
        return
    headers = column.flatten()
    if headers.null_count:
        raise RowError("a row has a null in the place of a header: leave it out of the array")
    if headers.field(0).null_count:
        raise RowError("a row has a header without a key: its key is null, and Kafka takes only values that are null")


def _require_each_name_once(whose: str, what: str, fields: list[Any]) -> None:
    """Spark gives no others to a data source in Python, and says so when the tasks have begun."""
    names = [field.name for field in fields]
    twice = next((name for at, name in enumerate(names) if name in names[:at]), None)
    if twice is not None:
        raise ConfigError(
            f"{whose} have two {what} of the name {twice}, and Spark gives such rows to no data source in Python, even "
            "where the sink would pass over them: select or rename them before the write"
        )
    for field in fields:
        _require_each_name_once_in(field.name, field.type)


def _require_each_name_once_in(column: str, kind: Any) -> None:
    parts = [kind.field(at) for at in range(kind.num_fields)]
    if pa.types.is_struct(kind):
        _require_each_name_once(f"values of {column}", "fields", parts)
        return
    for part in parts:
        _require_each_name_once_in(column, part.type)


def check_writable(schema: Any, topic: str | None) -> None:
    """Raise ConfigError unless rows of this Arrow schema can be written. `topic` is the option's."""
    _require_each_name_once("the rows", "columns", list(schema))
    for field in schema:
        allowed = WRITABLE.get(field.name)
        if field.name == "headers" and not _are_headers(field.type):
            raise ConfigError(
                f"column headers has the type {field.type}, and the sink takes array<struct<key:string,value:binary>>, "
                "as Spark's own connector does: cast keys and values, and name them so"
            )
        if allowed is not None and not any(is_kind(field.type) for is_kind in allowed):
            raise ConfigError(f"column {field.name} has the type {field.type}, which a Kafka record cannot take")
    if "value" not in schema.names:
        raise ConfigError("the sink needs a column value (binary or string)")
    if topic is None and "topic" not in schema.names:
        raise ConfigError("say where the rows go: set the option topic, or add a column topic")
