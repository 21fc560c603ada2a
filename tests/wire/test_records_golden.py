"""What Apache Kafka 4.3.0 and librdkafka wrote (`golden/make.py`), read and written again by us."""

from pathlib import Path

import pytest

from ottla.wire.batch import Compression, TimestampType, assign_offsets, check_integrity, iter_headers, parse_header
from ottla.wire.markers import control_batch, parse_end_txn_marker
from tests.wire.forms import Form, both_forms
from tests.wire.golden.make import CODECS, NOW_MS, RECORDS

GOLDEN = Path(__file__).parent / "golden"
COMPRESSED_FILES = [f"{writer}-{codec}" for codec in CODECS[1:] for writer in ("librdkafka", "kafka")]
FILES = ["librdkafka-none", *COMPRESSED_FILES, "append-time"]


def read(name: str) -> bytes:
    return (GOLDEN / f"{name}.log").read_bytes()


@both_forms
@pytest.mark.parametrize("name", FILES)
def test_kafkas_batches_hold_what_was_produced(form: Form, name: str) -> None:
    buf = read(name)
    records = []
    for pos, header in iter_headers(buf, strict=True):
        check_integrity(buf, pos, header)
        if name != "append-time":
            assert header.compression is Compression[name.rpartition("-")[2].upper()]
        records += form.records.decode_batch(buf, pos)
    assert [row.offset for row in records] == list(range(len(RECORDS)))
    assert [(row.key, row.value, list(row.headers)) for row in records] == [row[1:] for row in RECORDS]
    if name == "append-time":
        assert parse_header(buf).timestamp_type is TimestampType.LOG_APPEND_TIME
        assert {row.timestamp_ms for row in records} == {parse_header(buf).max_timestamp_ms}
    else:
        assert [row.timestamp_ms for row in records] == [row[0] for row in RECORDS]


@both_forms
@pytest.mark.parametrize("name", FILES)
def test_columns_hold_the_same(form: Form, name: str) -> None:
    columns = form.columns.decode_columns(read(name), with_headers=True)
    columns.validate(full=True)
    assert columns.column("key").to_pylist() == [row[1] for row in RECORDS]
    assert columns.column("value").to_pylist() == [row[2] for row in RECORDS]
    headers = [[(h["key"], h["value"]) for h in row] for row in columns.column("headers").to_pylist()]
    assert headers == [row[3] for row in RECORDS]


@both_forms
def test_our_batch_of_the_same_records_is_the_same_to_the_byte(form: Form) -> None:
    golden = read("librdkafka-none")
    header = parse_header(golden)
    builder = form.records.BatchBuilder(2**20)
    for row in RECORDS:
        builder.try_append(*row)
    ours = bytearray(builder.build(header.producer_id, header.producer_epoch, header.base_sequence))
    assign_offsets(ours, 0, header.base_offset, header.partition_leader_epoch)
    assert bytes(ours) == golden
    columns = form.columns.decode_columns(golden, with_headers=True)
    assert form.columns.encode_columns(columns, producer_id=header.producer_id, producer_epoch=0, base_sequence=0)[
        16:
    ] == bytes(ours[16:])


def test_t7_our_markers_are_kafkas_to_the_byte() -> None:
    buf = read("transactions")
    endings = []
    for pos, header in iter_headers(buf, strict=True):
        assert header.is_transactional
        if not header.is_control:
            continue
        golden = buf[pos : pos + header.size_bytes]
        commit, coordinator_epoch = parse_end_txn_marker(golden)
        endings.append(commit)
        ours = bytearray(
            control_batch(
                commit=commit,
                producer_id=header.producer_id,
                producer_epoch=header.producer_epoch,
                coordinator_epoch=coordinator_epoch,
                timestamp_ms=header.base_timestamp_ms,
            )
        )
        assign_offsets(ours, 0, header.base_offset, header.partition_leader_epoch)
        assert bytes(ours) == golden
    assert endings == [True, False]


@both_forms
def test_t9_markers_are_no_rows(form: Form) -> None:
    columns = form.columns.decode_columns(read("transactions"))
    assert columns.column("offset").to_pylist() == [0, 1, 2, 4, 5, 6]
    assert columns.column("timestamp_ms").to_pylist()[0] == NOW_MS
