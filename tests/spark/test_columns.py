"""Fetched bytes as the source's rows, and the digest of the sink's rows."""

from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")

from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from ottla.base.errors import ConfigError  # noqa: E402
from ottla.base.types import TopicPartition  # noqa: E402
from ottla.spark.columns import Chunk, RowDigest, check_writable  # noqa: E402
from ottla.spark.errors import PipelineError  # noqa: E402
from ottla.spark.kept_chunks import KeptChunks, Origin  # noqa: E402
from ottla.wire.batch import Compression, assign_offsets, join_batch, parse_header  # noqa: E402
from ottla.wire.columns import encode_columns  # noqa: E402
from ottla.wire.markers import control_batch  # noqa: E402
from ottla.wire.records import Record, decode_batch, encode_batch  # noqa: E402
from tests.spark.source_rows import HEADERS, SCHEMA  # noqa: E402

TP = TopicPartition("lines", 3)
ROWS = st.lists(st.tuples(st.none() | st.binary(max_size=6), st.none() | st.binary(max_size=6)), max_size=20)


def batch(offset: int, *values: bytes, producer_id: int = -1) -> bytes:
    records = [Record(offset + n, 1_000 + n, b"k", value, (("h", value),)) for n, value in enumerate(values)]
    transactional = producer_id >= 0
    encoded = encode_batch(
        records,
        base_offset=offset,
        producer_id=producer_id,
        producer_epoch=0 if transactional else -1,
        base_sequence=0 if transactional else -1,
        transactional=transactional,
    )
    return bytes(encoded)


def marker(offset: int, producer_id: int, *, commit: bool) -> bytes:
    control = bytearray(
        control_batch(commit=commit, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, timestamp_ms=1)
    )
    assign_offsets(control, 0, offset, 0)
    return bytes(control)


def emptied(batch: bytes) -> bytes:
    """What Apache Kafka's log cleaner leaves of a batch whose records have gone, if it is its producer's last."""
    return join_batch(parse_header(batch)._replace(record_count=0), b"")


def test_s1_a_marker_that_compaction_has_emptied_ends_its_transaction() -> None:
    log = marker(4, 7, commit=False)
    for end in (log, emptied(log)):
        chunk = Chunk(batch(3, b"a", producer_id=7) + end + batch(5, b"b", producer_id=7), [(7, 3)], committed=True)
        assert next(chunk.rows(TP, 0, 9, SCHEMA)).column("value").to_pylist() == [b"b"]
    assert Chunk(emptied(batch(3, b"a", b"b", producer_id=7)), [], committed=True).next_offset == 5


def test_s1_rows_have_the_schema_of_sparks_connector() -> None:
    chunk = Chunk(batch(5, b"a", b"b", b"c"), [], committed=True)
    rows = next(chunk.rows(TP, 6, 8, SCHEMA))
    assert chunk.next_offset == 8
    assert rows.schema == SCHEMA
    first = rows.to_pylist()[0]
    assert first["timestamp"].timestamp() == 1.001
    del first["timestamp"]
    assert first == {
        "key": b"k",
        "value": b"b",
        "topic": "lines",
        "partition": 3,
        "offset": 6,
        "timestampType": 0,
        "headers": [{"key": "h", "value": b"b"}],
    }
    assert next(chunk.rows(TP, 6, 7, SCHEMA)).column("offset").to_pylist() == [6]


def test_s1_a_record_without_headers_has_null_as_in_sparks_connector() -> None:
    records = [Record(0, 1, None, b"a", ()), Record(1, 1, None, b"b", (("h", b"1"),))]
    rows = next(Chunk(encode_batch(records, base_offset=0), [], committed=True).rows(TP, 0, 2, SCHEMA))
    assert rows.column("headers").to_pylist() == [None, [{"key": "h", "value": b"1"}]]


@pytest.mark.parametrize("at_ms", [2**63 // 1000 + 1, 9_300_000_000_000_000])
def test_s1_a_time_that_spark_does_not_have_is_named_with_its_record(at_ms: int) -> None:
    records = [Record(40, 1, None, b"a", ()), Record(41, at_ms, None, b"b", ()), Record(42, 2, None, b"c", ())]
    chunk = Chunk(encode_batch(records, base_offset=40), [], committed=True)
    with pytest.raises(PipelineError, match=f"lines-3: the record at offset 41 has the timestamp {at_ms} ms"):
        next(chunk.rows(TP, 40, 43, SCHEMA))
    assert next(chunk.rows(TP, 42, 43, SCHEMA)).column("value").to_pylist() == [b"c"]


def test_s2_records_of_aborted_transactions_are_left_out() -> None:
    log = b"".join(
        [
            batch(0, b"aborted", producer_id=7),
            batch(1, b"committed", producer_id=8),
            batch(2, b"plain"),
            marker(3, 7, commit=False),
            batch(4, b"kept", producer_id=7),
            marker(5, 8, commit=True),
            marker(6, 7, commit=True),
        ]
    )
    chunk = Chunk(log, [(7, 0)], committed=True)
    assert chunk.next_offset == 7
    assert next(chunk.rows(TP, 0, 7, SCHEMA)).column("value").to_pylist() == [b"committed", b"plain", b"kept"]
    every = next(Chunk(log, [(7, 0)], committed=False).rows(TP, 0, 7, SCHEMA))
    assert every.column("value").to_pylist() == [b"aborted", b"committed", b"plain", b"kept"]


def test_s2_the_rest_of_a_chunk_knows_which_of_its_records_were_aborted() -> None:
    """A transaction that was aborted may have begun before the rest does, or be over by then."""
    log = b"".join(
        [
            batch(0, b"aborted", producer_id=7),
            batch(1, b"aborted", producer_id=8),
            marker(2, 7, commit=False),
            batch(3, b"kept", b"as well", producer_id=7),
            batch(5, b"aborted", producer_id=8),
            marker(6, 8, commit=False),
            batch(7, b"last"),
        ]
    )
    memory = bytearray(log)
    chunk = Chunk(memory, [(7, 0), (8, 1)], committed=True)
    rest = chunk.rest(4, len(log))
    assert rest is not None
    memory[:] = bytes(len(memory))  # a fetch's memory is used again
    assert next(rest.rows(TP, 4, 8, SCHEMA)).column("value").to_pylist() == [b"as well", b"last"]
    assert next(rest.rows(TP, 7, 8, SCHEMA)).column("value").to_pylist() == [b"last"]
    assert rest.next_offset == 8
    assert rest.rest(4, len(log)) is rest
    assert rest.rest(8, len(log)) is None


class Sized(Chunk):
    """Counts how often somebody asks for its size."""

    asked = 0

    @property
    def size_bytes(self) -> int:
        """As it is; counted."""
        Sized.asked += 1
        return super().size_bytes

    def rest(self, offset: int, most_bytes: int) -> Chunk | None:
        """All of it."""
        return self


def test_s1_to_keep_the_rest_of_one_partition_costs_the_same_however_many_are_kept() -> None:
    origin, kept = Origin("id", 3, 3, True, "a"), KeptChunks()
    for partition in range(300):
        kept.keep(TopicPartition("t", partition), origin, 1, Sized(batch(0, b"a", b"b"), [], committed=True))
    assert Sized.asked == 300


def test_s1_what_is_kept_of_fetches_is_bounded_and_of_one_log() -> None:
    origin, size = Origin("id", 3, 3, True, "a"), len(batch(0, b"a", b"b"))
    kept, tps = KeptChunks(2 * size), [TopicPartition("t", n) for n in range(3)]
    for tp in tps:
        kept.keep(tp, origin, 1, Chunk(batch(0, b"a", b"b"), [], committed=True))
    assert kept.size_bytes == 2 * size
    assert kept.take(tps[0], origin, 1) is None, "the oldest has gone"
    others: list[dict[str, Any]] = [
        {"topic_id": "anew"},
        {"planned_epoch": 4},
        {"asked_epoch": 4},
        {"committed": False},
        {"unbroken": "b"},
    ]
    for other in (origin._replace(**changed) for changed in others):
        kept.keep(tps[1], origin, 1, Chunk(batch(0, b"a", b"b"), [], committed=True))
        assert kept.take(tps[1], other, 1) is None
    assert kept.take(tps[2], origin, 2) is None, "it ends there"
    kept.keep(tps[2], origin, 1, Chunk(batch(0, b"a", b"b"), [], committed=True))
    assert kept.take(tps[2], origin, 1) is not None
    assert kept.take(tps[2], origin, 1) is None, "taken once"
    kept.keep(tps[2], origin, 1, Chunk(batch(0, b"a", bytes(3 * size)), [], committed=True))
    kept.keep(tps[2], origin, 2, Chunk(batch(0, b"a", b"b"), [], committed=True))
    assert kept.size_bytes == 0


def test_a_chunk_without_a_whole_batch_does_not_move() -> None:
    assert Chunk(batch(5, b"a")[:-1], [], committed=True).next_offset is None
    assert Chunk(b"", [], committed=True).next_offset is None


def record_batch(rows: list[tuple[bytes | None, bytes | None]]) -> Any:
    keys, values = [k for k, _ in rows], [v for _, v in rows]
    return pa.RecordBatch.from_pydict(
        {
            "key": pa.array(keys, pa.binary()),
            "value": pa.array(values, pa.binary()),
            "partition": pa.array([1] * len(rows), pa.int32()),
        }
    )


def digest(*batches: Any) -> tuple[int, str]:
    found = RowDigest()
    for each in batches:
        found.update(each)
    return found.rows, found.hex()


@given(ROWS, st.integers(0, 20))
def test_s2_the_digest_does_not_depend_on_how_rows_are_cut(
    rows: list[tuple[bytes | None, bytes | None]], cut: int
) -> None:
    whole = record_batch(rows)
    cut = min(cut, len(rows))
    assert (
        digest(whole)
        == digest(whole.slice(0, cut), whole.slice(cut))
        == digest(record_batch(rows[:cut]), record_batch(rows[cut:]))
    )


@given(ROWS, ROWS)
def test_s2_other_rows_have_another_digest(
    rows: list[tuple[bytes | None, bytes | None]], others: list[tuple[bytes | None, bytes | None]]
) -> None:
    assert (digest(record_batch(rows)) == digest(record_batch(others))) == (rows == others)


@pytest.mark.parametrize(
    ("schema", "topic", "message"),
    [
        ({"key": pa.binary()}, "t", "needs a column value"),
        ({"value": pa.int64()}, "t", "column value has the type int64"),
        ({"value": pa.binary()}, None, "set the option topic, or add a column topic"),
    ],
)
def test_s1_rows_that_cannot_be_records_are_refused(schema: dict[str, object], topic: str | None, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_writable(pa.schema(list(schema.items())), topic)


@pytest.mark.parametrize(
    "headers",
    [
        pa.list_(pa.string()),
        pa.list_(pa.struct([("key", pa.int32()), ("value", pa.binary())])),
        pa.list_(pa.struct([("key", pa.string()), ("value", pa.string())])),
        pa.list_(pa.struct([("k", pa.string()), ("v", pa.binary())])),
        pa.list_(pa.struct([("value", pa.binary()), ("key", pa.string())])),
        pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary()), ("more", pa.binary())])),
        pa.map_(pa.string(), pa.binary()),
    ],
    ids=str,
)
def test_s1_headers_have_the_type_that_sparks_connector_takes_and_no_other(headers: Any) -> None:
    with pytest.raises(ConfigError, match=r"column headers .* array<struct<key:string,value:binary>>"):
        check_writable(pa.schema([("value", pa.binary()), ("headers", headers)]), "t")


_PAIR = pa.struct([("a", pa.int32()), ("a", pa.int32())])


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ([("value", pa.binary()), ("x", pa.int32()), ("x", pa.int64())], "the rows have two columns of the name x"),
        ([("value", pa.binary()), ("value", pa.binary())], "the rows have two columns of the name value"),
        ([("value", pa.binary()), ("s", _PAIR)], "values of s have two fields of the name a"),
        ([("value", pa.binary()), ("s", pa.list_(_PAIR))], "have two fields of the name a"),
        ([("value", pa.binary()), ("s", pa.map_(pa.string(), _PAIR))], "have two fields of the name a"),
        ([("value", pa.binary()), ("s", pa.struct([("in", _PAIR)]))], "values of in have two fields of the name a"),
    ],
)
def test_s1_two_columns_of_one_name_are_refused_before_spark_does_it_in_the_tasks(
    columns: list[tuple[str, Any]], said: str
) -> None:
    with pytest.raises(ConfigError, match=f"{said}.*select or rename them"):
        check_writable(pa.schema(columns), "t")


def test_s1_names_that_differ_in_capitals_are_two() -> None:
    deep = pa.int32()
    for _ in range(40):  # looked at once each
        deep = pa.struct([("a", deep), ("b", pa.list_(deep))]) if deep == pa.int32() else pa.struct([("a", deep)])
    check_writable(pa.schema([("value", pa.binary()), ("Value", pa.binary()), ("deep", deep)]), "t")


def test_s1_the_names_of_a_header_are_compared_as_spark_compares_names() -> None:
    headers = pa.list_(pa.struct([("Key", pa.string()), ("VALUE", pa.large_binary())]))
    check_writable(pa.schema([("value", pa.binary()), ("headers", headers)]), "t")
    batch = pa.RecordBatch.from_pydict(
        {"value": pa.array([b"a"]), "headers": pa.array([[{"Key": "h", "VALUE": b"1"}]], headers)}
    )
    (record,) = decode_batch(encode_columns(batch))
    assert record.headers == (("h", b"1"),)


def test_s1_strings_and_binaries_can_be_written() -> None:
    check_writable(
        pa.schema([("key", pa.string()), ("value", pa.binary()), ("topic", pa.string()), ("headers", HEADERS)]), None
    )


def test_s1_a_fetch_that_decompresses_to_much_comes_in_several_batches_of_rows() -> None:
    """A few KB may be gigabytes, of which one column of Arrow holds two."""
    fetch = b"".join(
        bytes(encode_batch([Record(at, 1, None, bytes(12_000_000), ())], base_offset=at, compression=Compression.ZSTD))
        for at in range(5)
    )
    assert len(fetch) < 100_000
    rows = Chunk(fetch, [], committed=True).rows(TP, 0, 5, SCHEMA)
    assert [batch.column("offset").to_pylist() for batch in rows] == [[0, 1], [2, 3], [4]]
