"""Record batches to Arrow columns and back, in both forms of the codec."""

import subprocess
import sys
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.wire.batch import (
    BatchHeader,
    Compression,
    CorruptBatchError,
    assign_offsets,
    iter_headers,
    join_batch,
    parse_header,
    stamped,
)
from ottla.wire.markers import control_batch
from ottla.wire.spare_memory import SpareMemory
from tests.counted_calls import calls
from tests.wire.forms import INSTALLED, Form, both_forms
from tests.wire.rows import NOW_MS, Row, rows

Record = INSTALLED.records.Record


def batches_of(form: Form, *groups: list[Row], compression: Compression = Compression.NONE) -> bytes:
    """One batch for each group of rows, offsets running on."""
    out, offset = [], 0
    for group in groups:
        records = [Record(offset + at, *row) for at, row in enumerate(group)]
        out.append(form.records.encode_batch(records, base_offset=offset, compression=compression))
        offset += len(group)
    return b"".join(out)


def as_records(columns: Any) -> list[tuple[object, ...]]:
    """The rows of `decode_columns` with headers, as records."""
    return [
        (
            row["offset"],
            row["timestamp_ms"],
            row["key"],
            row["value"],
            tuple((header["key"], header["value"]) for header in row["headers"]),
        )
        for row in columns.to_pylist()
    ]


@both_forms
@given(groups=st.lists(st.lists(rows, min_size=1, max_size=12), max_size=3), compression=st.sampled_from(Compression))
def test_columns_hold_what_the_records_hold(form: Form, groups: list[list[Row]], compression: Compression) -> None:
    buf = batches_of(form, *groups, compression=compression)
    columns = form.columns.decode_columns(memoryview(buf), with_headers=True)
    columns.validate(full=True)
    assert columns.schema == form.columns.SCHEMA
    flat = [row for group in groups for row in group]
    assert as_records(columns) == [Record(at, *row) for at, row in enumerate(flat)]
    assert columns.column("timestamp_type").to_pylist() == [0] * len(flat)
    without = form.columns.decode_columns(buf)
    assert without == columns.drop_columns(["headers"])


@both_forms
@given(group=st.lists(rows, min_size=1, max_size=20), compression=st.sampled_from(Compression), data=st.data())
def test_encoding_columns_gives_the_batch_of_the_records(
    form: Form, group: list[Row], compression: Compression, data: st.DataObject
) -> None:
    columns = form.columns.decode_columns(batches_of(form, group), with_headers=True)
    start = data.draw(st.integers(0, len(group) - 1))
    records = [Record(at, *row) for at, row in enumerate(group[start:])]
    wanted = form.records.encode_batch(records, compression=compression, producer_id=1, base_sequence=2)
    for table in (columns.slice(start), pa.table(columns).slice(start)):
        assert form.columns.encode_columns(table, compression=compression, producer_id=1, base_sequence=2) == wanted


@both_forms
def test_a_range_of_offsets_and_a_batch_cut_off(form: Form) -> None:
    group: list[Row] = [(NOW_MS, b"k", b"v", ())] * 5
    buf = batches_of(form, group, group, group)

    def offsets(**options: Any) -> list[int]:
        found: list[int] = form.columns.decode_columns(buf, **options).column("offset").to_pylist()
        return found

    assert offsets(start_offset=3) == list(range(3, 15))
    assert offsets(start_offset=7, end_offset=11) == [7, 8, 9, 10]
    assert offsets(end_offset=5) == [0, 1, 2, 3, 4]
    assert offsets(start_offset=15) == []
    assert form.columns.decode_columns(buf[:-1]).num_rows == 10
    assert form.columns.decode_columns(b"").num_rows == 0
    assert form.columns.decode_columns(buf[:10], with_headers=True).schema == form.columns.SCHEMA


@both_forms
def test_t9_control_batches_and_skipped_ones_are_not_opened(form: Form) -> None:
    good = batches_of(form, [(NOW_MS, b"k", b"v", ())] * 2)
    data = good + join_batch(parse_header(good)._replace(base_offset=2), b"no records")
    marker = bytearray(
        control_batch(commit=True, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp_ms=NOW_MS)
    )
    assign_offsets(marker, 0, 4, 0)
    seen: list[BatchHeader] = []

    def skip(header: BatchHeader) -> bool:
        seen.append(header)
        return header.base_offset == 2

    columns = form.columns.decode_columns(data + marker, skip=skip)
    assert columns.column("offset").to_pylist() == [0, 1]
    assert [header.base_offset for header in seen] == [0, 2]
    with pytest.raises(CorruptBatchError):
        form.columns.decode_columns(data)
    for at in (len(data), len(data) + len(marker)):  # a changed byte may be why they are skipped
        changed = bytearray(data + marker)
        changed[at - 1] ^= 1
        with pytest.raises(CorruptBatchError, match="CRC"):
            form.columns.decode_columns(changed, skip=skip)


@both_forms
def test_log_append_time_is_every_records_time(form: Form) -> None:
    batch = batches_of(form, [(5, None, b"a", ()), (9, None, b"b", ())])
    columns = form.columns.decode_columns(b"".join(stamped(batch, parse_header(batch), 0, 0, NOW_MS)))
    assert columns.column("timestamp_ms").to_pylist() == [NOW_MS, NOW_MS]
    assert columns.column("timestamp_type").to_pylist() == [1, 1]


@both_forms
def test_nulls_beyond_one_byte_of_validity(form: Form) -> None:
    keys = [None if at % 3 else b"k%d" % at for at in range(100)]
    values = [None if at % 7 == 0 else b"v%d" % at for at in range(100)]
    columns = form.columns.decode_columns(batches_of(form, [(1, k, v, ()) for k, v in zip(keys, values, strict=True)]))
    columns.validate(full=True)
    assert columns.column("key").to_pylist() == keys and columns.column("key").null_count == keys.count(None)
    assert columns.column("value").to_pylist() == values
    for start in (0, 1, 8, 13):
        again = form.columns.decode_columns(form.columns.encode_columns(columns.slice(start)))
        assert again.column("key").to_pylist() == keys[start:]
        assert again.column("value").to_pylist() == values[start:]


@both_forms
@pytest.mark.parametrize(
    "kind",
    [pa.binary(), pa.string(), pa.large_binary(), pa.large_string(), pa.string_view(), pa.binary_view()],
    ids=str,
)
def test_every_kind_of_text_and_bytes_is_encoded(form: Form, kind: Any) -> None:
    texts = ["a", None, "", "ä" * 100]
    raw = [None if text is None else text.encode() for text in texts]
    given_values = texts if "string" in str(kind) else raw
    table = pa.table({"value": pa.chunked_array([pa.array(given_values[:2], kind), pa.array(given_values[2:], kind)])})
    decoded = form.columns.decode_columns(form.columns.encode_columns(table, now_ms=NOW_MS), with_headers=True)
    assert decoded.column("value").to_pylist() == raw
    assert decoded.column("key").to_pylist() == [None] * 4
    assert decoded.column("timestamp_ms").to_pylist() == [NOW_MS] * 4
    assert decoded.column("headers").to_pylist() == [[]] * 4


@both_forms
def test_dictionaries_times_and_missing_values(form: Form) -> None:
    times = pa.array([1_000_000, None], pa.timestamp("us"))
    table = pa.table(
        {
            "key": pa.array([b"a", b"a"]).dictionary_encode(),
            "value": pa.nulls(2),
            "timestamp_ms": times,
            "other": [1, 2],
        }
    )
    decoded = form.columns.decode_columns(form.columns.encode_columns(table, now_ms=7))
    assert decoded.column("key").to_pylist() == [b"a", b"a"]
    assert decoded.column("value").to_pylist() == [None, None]
    assert decoded.column("timestamp_ms").to_pylist() == [1000, 7]


@both_forms
def test_columns_of_another_type_are_refused_by_name(form: Form) -> None:
    for column in ({"value": [1.5]}, {"key": [[1]]}, {"timestamp_ms": ["now"]}, {"headers": ["x"]}):
        (name,) = column
        with pytest.raises(ValueError, match=name):
            form.columns.encode_columns(pa.table(column))
    with pytest.raises(ValueError, match="without records"):
        form.columns.encode_columns(pa.table({"value": pa.array([], pa.binary())}))


@both_forms
@pytest.mark.parametrize("order", [list, reversed])
def test_rows_of_very_different_sizes_are_dealt_within_the_limit(form: Form, order: Any) -> None:
    values = list(order([b"v" * 2 ** (at // 64) for at in range(1_000)]))
    table = pa.table({"value": values})
    builders = list(form.columns.encode_in_batches(table, 100_000, now_ms=NOW_MS, spare=SpareMemory(2**20)))
    assert all(builder.size_bytes <= 100_000 for builder in builders)
    assert [row.value for builder in builders for row in form.records.decode_batch(builder.build())] == values
    assert list(form.columns.encode_in_batches(table.slice(0, 0), 100_000)) == []
    assert len(list(form.columns.encode_in_batches(table.slice(0, 3), 0))) == 3


@both_forms
def test_only_what_becomes_records_counts_when_rows_are_dealt(form: Form) -> None:
    values = [b"%020d" % at for at in range(1_000)]
    words = pa.DictionaryArray.from_arrays(
        pa.array(range(1_000), pa.int32()), pa.array([*values, *[b"unused" * 100] * 1_000])
    )
    headers = pa.array([[("h", b"x" * 100)]] * 1_000, form.columns.HEADERS_TYPE)
    for table, batches in (
        (pa.table({"value": values, "other": [b"x" * 1_000] * 1_000}), 4),
        (pa.table({"value": words}), 4),
        (pa.table({"key": words, "value": values}).slice(500), 3),
        (pa.table({"value": words, "headers": headers}), 14),
    ):
        builders = list(form.columns.encode_in_batches(table, 10_000, now_ms=NOW_MS))
        assert len(builders) == batches
        assert [r.value for b in builders for r in form.records.decode_batch(b.build())] == table["value"].to_pylist()


@both_forms
def test_rows_are_dealt_to_batches_of_a_limited_size(form: Form) -> None:
    table = pa.table({"value": [b"%0100d" % at for at in range(1000)]})
    builders = list(form.columns.encode_in_batches(table, 16_384, now_ms=NOW_MS))
    batches = [builder.build() for builder in builders]
    assert len(batches) == 7 and all(len(batch) <= 16_384 for batch in batches)
    assert {builder.record_count for builder in builders[:-1]} == {143} and builders[-1].record_count == 142
    got = [row.value for batch in batches for row in form.records.decode_batch(batch)]
    assert got == table.column("value").to_pylist()
    assert [parse_header(batch).record_count for batch in batches] == [builder.record_count for builder in builders]
    source = form.columns.column_source(table)
    with pytest.raises(ValueError, match="rows"):
        builders[0].append_rows(0, 1001, source.timestamps, source.keys, source.values, source.headers)


@both_forms
def test_records_and_rows_go_into_one_batch(form: Form) -> None:
    builder = form.records.BatchBuilder(10_000)
    builder.try_append(NOW_MS, b"k", b"first", ())
    source = form.columns.column_source(pa.table({"value": ["second", "third"]}), now_ms=NOW_MS + 1)
    assert source.append_to(builder, 1) == 1
    assert builder.try_append(NOW_MS, None, b"last", ()) == 2
    batch = builder.build()
    assert [row.value for row in form.records.decode_batch(batch)] == [b"first", b"third", b"last"]
    assert [header.max_timestamp_ms for _, header in iter_headers(batch)] == [NOW_MS + 1]


HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def with_headers(rows: list[list[dict[str, Any] | None] | None]) -> Any:
    values = pa.array([b"v"] * len(rows), pa.binary())
    return pa.RecordBatch.from_pydict({"value": values, "headers": pa.array(rows, HEADERS)})


@both_forms
@given(
    rows=st.lists(
        st.none()
        | st.lists(
            st.fixed_dictionaries({"key": st.text(max_size=3), "value": st.none() | st.binary(max_size=3)}), max_size=3
        ),
        max_size=8,
    ),
    start=st.integers(0, 8),
)
def test_headers_go_out_row_by_row_whatever_is_null(form: Form, rows: list[Any], start: int) -> None:
    table = with_headers(rows).slice(min(start, len(rows)))
    if not table.num_rows:
        return
    decoded = form.columns.decode_columns(form.columns.encode_columns(table), with_headers=True)
    assert decoded.column("headers").to_pylist() == [row or [] for row in rows[start:]]


@pytest.mark.parametrize("header", [None, {"key": None, "value": b"x"}])
def test_a_header_without_a_key_is_refused(header: dict[str, Any] | None) -> None:
    with pytest.raises(ValueError, match="column headers has a null in the place of a header, or of its key"):
        INSTALLED.columns.encode_columns(with_headers([None, [header]]))


def test_rows_without_headers_are_not_looked_at_one_by_one() -> None:
    def counted(rows: int) -> int:
        table = with_headers([None] * rows)
        return calls(lambda: INSTALLED.columns.column_source(table))

    counted(1)
    assert counted(1_000) == counted(10)


@both_forms
@given(
    groups=st.lists(st.lists(rows, min_size=1, max_size=5), max_size=5),
    part_bytes=st.integers(1, 200),
    compression=st.sampled_from(Compression),
    bounds=st.tuples(st.integers(0, 25), st.integers(0, 25)),
)
def test_parts_hold_together_what_the_columns_hold(
    form: Form, groups: list[list[Row]], part_bytes: int, compression: Compression, bounds: tuple[int, int]
) -> None:
    buf = batches_of(form, *groups, compression=compression)
    between = {"start_offset": bounds[0], "end_offset": bounds[1], "with_headers": True}
    parts = list(form.columns.decode_in_parts(memoryview(buf), part_bytes, **between))
    assert [row for part in parts for row in part.to_pylist()] == form.columns.decode_columns(
        buf, **between
    ).to_pylist()
    sizes = [form.records.open_batch(buf, pos, header).body_bytes for pos, header in iter_headers(buf)]
    assert len(parts) <= sum(sizes)


def test_what_decompresses_to_much_comes_in_parts() -> None:
    three: list[Row] = [(1, None, bytes(1_000), ())] * 3
    batches = batches_of(INSTALLED, *[three] * 5, compression=Compression.ZSTD)
    parts = list(INSTALLED.columns.decode_in_parts(batches, 7_000))
    assert [part.num_rows for part in parts] == [6, 6, 3]
    assert [part.num_rows for part in INSTALLED.columns.decode_in_parts(batches, 1)] == [3] * 5
    assert list(INSTALLED.columns.decode_in_parts(batches, 1, start_offset=15)) == []
    damaged = bytearray(batches)
    damaged[-1] ^= 1
    good = INSTALLED.columns.decode_in_parts(bytes(damaged), 7_000)
    assert next(good).num_rows == 6
    with pytest.raises(CorruptBatchError):
        next(good)


@both_forms
def test_batches_of_more_than_arrow_can_hold_are_refused_before_anything_is_made(form: Form) -> None:
    batch = batches_of(form, [(1, None, bytes(2**24), ())])
    header = parse_header(batch)
    cursor, part = form.records.open_batch(batch, 0, header), form.columns.ColumnsPart()
    for _ in range(2**31 // cursor.body_bytes):
        part.add(header, cursor)
    with pytest.raises(CorruptBatchError, match="up to offset 0 hold more than 2147483647 bytes"):
        part.add(header, cursor)


@given(values=st.lists(st.none() | st.binary(max_size=5), max_size=40))
def test_an_array_of_bytes_is_what_pyarrow_makes_of_them(values: list[bytes | None]) -> None:
    made = INSTALLED.columns.binary_array(values, pa.binary())
    made.validate(full=True)
    assert made.equals(pa.array(values, pa.binary()))


def test_columns_with_headers_import_no_pandas() -> None:
    """It takes a third of a second, and 45 MB."""
    program = (
        "import sys\n"
        "from ottla.wire.columns import decode_columns\n"
        "from ottla.wire.records import Record, encode_batch\n"
        "batch = encode_batch([Record(0, 1, None, b'v', (('h', b'x'), ('i', None)))])\n"
        "print(decode_columns(batch, with_headers=True).column('headers').to_pylist(), 'pandas' in sys.modules)\n"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert said.stdout == "[[{'key': 'h', 'value': b'x'}, {'key': 'i', 'value': None}]] False\n"
