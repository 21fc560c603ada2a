"""Records into batches and out again, in both forms of the codec."""

import gc
from array import array
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.wire import compiled
from ottla.wire.batch import (
    HEADER_BYTES,
    Compression,
    CorruptBatchError,
    TimestampType,
    parse_header,
    seal,
    stamped,
    validate,
)
from ottla.wire.markers import control_batch
from ottla.wire.spare_memory import SpareMemory
from tests.wire.forms import INSTALLED, INTERPRETED, Form, both_forms
from tests.wire.rows import HEADER, NOW_MS, Row, rows


class ConsumerRow(NamedTuple):
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: tuple[HEADER, ...]
    leader_epoch: int | None


@both_forms
@pytest.mark.parametrize("compression", Compression)
@given(given_rows=st.lists(rows, min_size=1, max_size=20), base_offset=st.integers(0, 2**62))
def test_what_is_encoded_is_decoded(
    form: Form, compression: Compression, given_rows: list[Row], base_offset: int
) -> None:
    records = [form.records.Record(base_offset + at, *row) for at, row in enumerate(given_rows)]
    batch = form.records.encode_batch(records, compression=compression, base_offset=base_offset)
    header = parse_header(batch)
    validate(batch, 0, header, 2**31)
    assert header.max_timestamp_ms == max(row[0] for row in given_rows)
    assert header.base_timestamp_ms == given_rows[0][0]
    assert header.compression is compression
    assert form.records.decode_batch(batch) == records
    assert form.records.decode_batch(memoryview(b"xyz" + batch + b"more"), 3) == records


@given(given_rows=st.lists(rows, min_size=1, max_size=20))
def test_both_forms_write_the_same_bytes(given_rows: list[Row]) -> None:
    written = []
    for form in (INSTALLED, INTERPRETED):
        builder = form.records.BatchBuilder(2**20)
        for row in given_rows:
            assert builder.try_append(*row) == builder.record_count - 1
        written.append((builder.size_bytes, builder.build(3, 4, 5, True)))
    assert written[0] == written[1]
    assert written[0][0] == len(written[0][1])


@both_forms
def test_every_size_of_varint_and_field(form: Form) -> None:
    sizes = [0, 1, 62, 63, 64, 65, 8191, 8192, 8193, 1_048_575, 1_048_576]
    records = [
        form.records.Record(at * 2**25, NOW_MS + (-1) ** at * 2 ** (4 * at), b"k" * size, b"v" * size)
        for at, size in enumerate(sizes)
    ]
    batch = form.records.encode_batch(records)
    assert form.records.decode_batch(batch) == records
    assert parse_header(batch).last_offset_delta == records[-1].offset


@both_forms
def test_builder_is_full_at_its_limit_but_takes_one_record_of_any_size(form: Form) -> None:
    builder = form.records.BatchBuilder(HEADER_BYTES + 2 * 15)
    for expected in (0, 1, -1, -1):
        assert builder.try_append(NOW_MS, b"key", b"value", ()) == expected
    assert builder.record_count == 2
    assert builder.size_bytes == len(builder.build()) == HEADER_BYTES + 2 * 15
    assert builder.try_append(NOW_MS, None, None, ()) == -1
    large = form.records.BatchBuilder(10)
    assert large.try_append(NOW_MS, None, b"v" * 100_000, ()) == 0
    assert large.try_append(NOW_MS, None, b"", ()) == -1
    assert [record.value for record in form.records.decode_batch(large.build())] == [b"v" * 100_000]


@both_forms
def test_build_stamps_the_producer_and_may_be_repeated(form: Form) -> None:
    builder = form.records.BatchBuilder(1000)
    builder.try_append(NOW_MS, b"k", b"v", [("h", b"1"), ("h", None)])
    first = parse_header(builder.build(7, 1, 100, True, Compression.ZSTD))
    assert (first.producer_id, first.producer_epoch, first.base_sequence) == (7, 1, 100)
    assert first.is_transactional and first.compression is Compression.ZSTD and not first.is_control
    second = builder.build(8, 0, 0)
    assert parse_header(second).producer_id == 8
    (record,) = form.records.decode_batch(second)
    assert record.headers == (("h", b"1"), ("h", None))


@both_forms
@pytest.mark.parametrize("compression", Compression)
@given(given_rows=st.lists(rows, min_size=1, max_size=20), expected_bytes=st.sampled_from([0, 200, 200_000]))
def test_a_batch_that_is_sealed_is_the_one_that_is_built(
    form: Form, compression: Compression, given_rows: list[Row], expected_bytes: int
) -> None:
    builder = form.records.BatchBuilder(200_000, expected_bytes, SpareMemory(2**20))
    for row in given_rows:
        builder.try_append(*row)
    built = builder.build(3, 4, 5, True, compression)
    sealed = builder.seal(3, 4, 5, True, compression, None)
    assert sealed == built
    assert builder.try_append(NOW_MS, b"k", b"v", ()) == -1
    assert sealed == built


@both_forms
def test_records_that_fill_their_memory_are_not_copied_and_it_is_used_again_when_the_batch_is_gone(form: Form) -> None:
    spare = SpareMemory(2**23)
    builders = [form.records.BatchBuilder(2**20, 2**20, spare) for _ in range(2)]
    for builder in builders:
        while builder.try_append(NOW_MS, None, b"v" * 1_000, ()) >= 0:
            pass
    sealed = [builder.seal(3, 4, 5, True, Compression.NONE, None) for builder in builders]
    whose = [batch.obj for batch in sealed]
    assert [len(memory) for memory in whose] == [2**20, 2**20] and whose[0] is not whose[1]
    content = bytes(sealed[0])
    del builder, builders, sealed[1]
    assert form.records.BatchBuilder(2**20, 2**20, spare).body().obj is whose[1]
    assert sealed[0] == content
    del sealed
    assert form.records.BatchBuilder(2**20, 2**20, spare).body().obj is whose[0]


@both_forms
def test_a_batch_of_few_records_does_not_hold_the_memory_of_many(form: Form) -> None:
    builder = form.records.BatchBuilder(2**20, 2**20)
    builder.try_append(NOW_MS, None, b"few", ())
    assert isinstance(builder.seal(3, 4, 5, True, Compression.NONE, None), bytes)
    with pytest.raises(ValueError, match="without records"):
        form.records.BatchBuilder(10).seal(3, 4, 5, True, Compression.NONE, None)


class _Text(bytes):
    """Bytes of a kind of their own, as numpy's are."""


class _NoMoreMemory(SpareMemory):
    def __init__(self, gives: int) -> None:
        super().__init__(2**23)
        self.gives = gives

    def take(self, size_bytes: int) -> memoryview:
        if not self.gives:
            raise MemoryError
        self.gives -= 1
        return super().take(size_bytes)


@both_forms
def test_a_builder_that_gets_no_more_memory_goes_on_with_what_it_has(form: Form) -> None:
    builder = form.records.BatchBuilder(2**20, 200_000, _NoMoreMemory(1))
    builder.try_append(NOW_MS, None, b"v" * 150_000, ())
    before = builder.build()
    for _ in range(2):
        with pytest.raises(MemoryError):
            builder.try_append(NOW_MS, None, b"w" * 60_000, ())
    assert builder.build() == before and builder.capacity == 200_000
    assert builder.try_append(NOW_MS, b"k", b"fits", ()) == 1
    assert [record.value for record in form.records.decode_batch(builder.build())] == [b"v" * 150_000, b"fits"]


@both_forms
def test_a_header_of_numbers_is_their_bytes(form: Form) -> None:
    builder = form.records.BatchBuilder(1000)
    builder.try_append(NOW_MS, None, b"v", [("h", array("i", [1, 2])), ("h", memoryview(b"123")[::2])])
    (record,) = form.records.decode_batch(builder.build())
    assert record.headers == (("h", array("i", [1, 2]).tobytes()), ("h", b"13"))


@both_forms
def test_bad_input_is_refused_and_leaves_the_builder_as_it_was(form: Form) -> None:
    builder = form.records.BatchBuilder(1000)
    builder.try_append(NOW_MS, b"k", b"v", ())
    before = builder.build()
    for bad in ((NOW_MS, "text", b""), (NOW_MS, b"", 5), (NOW_MS, bytearray(b"k"), b"")):
        with pytest.raises(TypeError):
            builder.try_append(*bad, ())
    for key, text in ((_Text(b"k"), b"v"), (b"k", _Text(b"v"))):
        with pytest.raises(TypeError, match="_Text"):
            builder.try_append(NOW_MS, key, text, ())
    for value in (5, "text"):
        with pytest.raises(TypeError):
            builder.try_append(NOW_MS, b"", b"", [("h", value)])
    for timestamp_ms in (-2, 2**62):
        with pytest.raises(ValueError, match="not a time"):
            builder.try_append(timestamp_ms, b"", b"", ())
    with pytest.raises((OverflowError, ValueError)):
        builder.try_append(2**70, b"", b"", ())
    assert builder.build() == before
    with pytest.raises(ValueError, match="without records"):
        form.records.BatchBuilder(1000).build()
    with pytest.raises(ValueError, match="without records"):
        form.records.encode_batch([])


@both_forms
def test_offsets_ascend_and_may_have_gaps(form: Form) -> None:
    record = form.records.Record
    records = [record(10, NOW_MS, b"a", None), record(15, NOW_MS, None, b"b"), record(2**31, NOW_MS, b"", b"")]
    batch = form.records.encode_batch(records, base_offset=5)
    assert form.records.decode_batch(batch) == records
    assert parse_header(batch).last_offset == 2**31
    assert [r.offset for r in form.records.decode_batch(batch, start_offset=11)] == [15, 2**31]
    for bad in ([records[1], records[0]], [records[0], records[0]], [record(4, 0, None, None)]):
        with pytest.raises(ValueError, match="relative offset"):
            form.records.encode_batch(bad, base_offset=5)


@both_forms
def test_consumer_records_carry_topic_type_and_epoch(form: Form) -> None:
    record = form.records.Record
    batch = form.records.encode_batch([record(0, NOW_MS, b"k", b"v", (("h", b""),)), record(1, 5, None, b"")])
    decode = form.records.decode_consumer_records
    where = {"topic": "t", "partition": 300}
    got = decode(batch, 0, parse_header(batch), ConsumerRow, **where)
    assert got[0] == ConsumerRow("t", 300, 0, NOW_MS, 0, b"k", b"v", (("h", b""),), None)
    assert type(got[1]) is ConsumerRow
    batch = b"".join(stamped(batch, parse_header(batch), 1000, 12, NOW_MS + 7))
    got = decode(batch, 0, parse_header(batch), ConsumerRow, **where, start_offset=1001)
    assert got == [ConsumerRow("t", 300, 1001, NOW_MS + 7, 1, None, b"", (), 12)]
    assert got[0].timestamp_type is TimestampType.LOG_APPEND_TIME


@both_forms
@pytest.mark.parametrize("compression", Compression)
@given(
    given_rows=st.lists(rows, min_size=1, max_size=20), limits=st.lists(st.integers(1, 7), max_size=8), data=st.data()
)
def test_a_batch_taken_bit_by_bit_gives_the_records_of_a_whole_one(
    form: Form, compression: Compression, given_rows: list[Row], limits: list[int], data: st.DataObject
) -> None:
    records = [form.records.Record(at, *row) for at, row in enumerate(given_rows)]
    encoded = form.records.encode_batch(records, compression=compression)
    start = data.draw(st.integers(0, len(records)))
    header, where = parse_header(encoded), {"topic": "t", "partition": 0}
    whole = form.records.decode_consumer_records(encoded, 0, header, ConsumerRow, **where, start_offset=start)
    assert [row.offset for row in whole] == list(range(start, len(records)))
    batch = form.records.ConsumerBatch(memoryview(encoded), 0, header, ConsumerRow, **where, check_crc=True)
    found: list[ConsumerRow] = []
    for limit in limits:
        taken = batch.take(start, limit)
        assert len(taken) == min(limit, len(whole) - len(found)), "no more than is asked for is made"
        found += taken
    assert found + batch.take(start, len(records)) == whole
    assert batch.is_taken


@both_forms
def test_of_a_batch_with_a_bad_record_nothing_is_given_also_bit_by_bit(form: Form) -> None:
    batch = bytearray(form.records.encode_batch([form.records.Record(at, NOW_MS, None, b"v") for at in range(9)]))
    batch[-1] = 2  # the last record claims a header
    seal(batch)
    rows_of = form.records.ConsumerBatch(
        batch, 0, parse_header(batch), ConsumerRow, topic="t", partition=0, check_crc=True
    )
    with pytest.raises(CorruptBatchError, match="record 8 of the batch at offset 0"):
        rows_of.take(0, 1)


@both_forms
def test_only_named_tuples_are_made_of_records(form: Form) -> None:
    batch = form.records.encode_batch([form.records.Record(0, NOW_MS, b"k", b"v")])
    with pytest.raises(TypeError, match="named tuples"):
        form.records.decode_consumer_records(batch, 0, parse_header(batch), list, topic="t", partition=0)


@both_forms
def test_t7_a_control_batch_decodes_as_its_one_record(form: Form) -> None:
    marker = control_batch(commit=True, producer_id=1, producer_epoch=2, coordinator_epoch=3, timestamp_ms=NOW_MS)
    (record,) = form.records.decode_batch(marker)
    assert record == (0, NOW_MS, bytes.fromhex("00000001"), bytes.fromhex("000000000003"), ())


@both_forms
def test_a_delete_horizon_changes_nothing_for_the_reader(form: Form) -> None:
    batch = bytearray(form.records.encode_batch([form.records.Record(0, NOW_MS, b"k", None)]))
    batch[22] |= 0x40
    assert form.records.decode_batch(batch, check_crc=False)[0].timestamp_ms == NOW_MS


@both_forms
def test_an_empty_batch_left_by_compaction_has_no_records(form: Form) -> None:
    batch = bytearray(form.records.encode_batch([form.records.Record(0, NOW_MS, b"k", b"v")])[:HEADER_BYTES])
    batch[8:12] = (49).to_bytes(4, "big")
    batch[57:61] = bytes(4)
    assert form.records.decode_batch(batch, check_crc=False) == []


@both_forms
@pytest.mark.parametrize("expected_bytes", [0, 1, 3_000, 100_000])
def test_the_room_that_a_batch_begins_with_changes_nothing(form: Form, expected_bytes: int) -> None:
    plain, roomy = form.records.BatchBuilder(10_000), form.records.BatchBuilder(10_000, expected_bytes)
    while plain.try_append(NOW_MS, b"k", b"v" * 90, ()) >= 0:
        assert roomy.try_append(NOW_MS, b"k", b"v" * 90, ()) == plain.count - 1
    assert roomy.try_append(NOW_MS, b"k", b"v" * 90, ()) == -1
    assert bytes(roomy.build()) == bytes(plain.build())


def test_the_garbage_collector_does_not_look_at_the_records_of_a_consumer() -> None:
    codec = INSTALLED.records
    batch = codec.encode_batch([codec.Record(0, NOW_MS, b"k", b"v", (("name", b"x"),))])
    (record,) = codec.decode_consumer_records(batch, 0, parse_header(batch), ConsumerRow, topic="t", partition=0)
    assert gc.is_tracked(record) is not compiled()
    assert gc.is_tracked(record._replace(value=[record])), "what a user's deserializer made may be part of a cycle"


def test_the_forms_are_what_they_say() -> None:
    assert INTERPRETED.codec.COMPILED is False
    assert INTERPRETED.codec.__file__.endswith(".py") and INTERPRETED.writer.__file__.endswith(".py")
    assert INTERPRETED.records.RecordWriter is INTERPRETED.writer.RecordWriter
    assert INTERPRETED.records.decode_batch is not INSTALLED.records.decode_batch


@both_forms
@pytest.mark.parametrize("compression", [Compression.NONE, Compression.ZSTD])
def test_a_walk_for_a_time_ends_at_the_first_record_that_has_it(form: Form, compression: Compression) -> None:
    times = [5, 30, 20, 40, 40, 10]
    find_time, find_newest = form.codec.find_time, form.codec.find_newest
    records = [form.records.Record(100 + at, time, None, b"v") for at, time in enumerate(times)]
    batch = form.records.encode_batch(records, compression=compression, base_offset=100)

    def cursor() -> Any:
        return form.records.open_batch(batch, 0, parse_header(batch))

    walked = cursor()
    assert find_time(walked, 100, 20, 0)
    assert (walked.taken, walked.timestamp_ms, walked.offset) == (2, 30, 101)
    walked = cursor()
    assert find_time(walked, 100, 20, 102)
    assert (walked.taken, walked.timestamp_ms, walked.offset) == (3, 20, 102)
    walked = cursor()
    assert not find_time(walked, 3, 40, 0), "it ends after as many as it may look at"
    assert (walked.taken, find_time(walked, 3, 40, 0), walked.offset) == (3, True, 103)
    assert not find_time(cursor(), 100, 41, 0)
    assert find_newest(cursor(), 100, 0, -1, -1) == (40, 103)
    assert find_newest(cursor(), 100, 104, -1, -1) == (40, 104)
    assert find_newest(cursor(), 100, 105, -1, -1) == (10, 105)
    assert find_newest(cursor(), 3, 0, -1, -1) == (30, 101)
    assert find_newest(cursor(), 100, 200, -1, -1) == (-1, -1)
