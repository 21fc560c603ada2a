"""SPEC C2: a record that cannot be read. What is good before it is handed out, the position stays at it. No broker."""

import pytest

from ottla.base.types import TopicPartition
from ottla.client.core.consumer.failures import Failures
from ottla.client.core.consumer.fetch_buffer import FetchBuffer
from ottla.client.core.consumer.fetched import Decoding, FetchedPartition
from ottla.client.core.consumer.positions import PartitionState
from ottla.client.errors import ClientError, CorruptRecordsError, NoOffsetForPartitionError, SerializationError
from ottla.wire.batch import CRC_START, assign_offsets, seal
from ottla.wire.markers import control_batch
from ottla.wire.records import Record, encode_batch

ONE, TWO = TopicPartition("t", 1), TopicPartition("t", 2)


def batch(base: int, *values: bytes) -> bytes:
    return encode_batch([Record(base + i, 1, None, value, ()) for i, value in enumerate(values)], base_offset=base)


def broken(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


def fetched(tp: TopicPartition, *batches: bytes, numbers: bool = False) -> FetchedPartition:
    state = PartitionState(tp)
    state.seek(0)
    value = (lambda topic, data: int(data or b"")) if numbers else None
    decoding = Decoding(check_crcs=True, read_committed=True, key=None, value=value)
    return FetchedPartition(state, b"".join(batches), [(9, 0)], decoding)


def offsets(fetch: FetchedPartition) -> list[int]:
    return [record.offset for record in fetch.take_records(100)]


def transaction(base: int, value: bytes, producer_id: int = 9) -> bytes:
    """Of producer 9, whose transaction from offset 0 on was aborted."""
    record = Record(base, 1, None, value, ())
    return encode_batch(
        [record], base_offset=base, producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True
    )


def abort(base: int) -> bytes:
    made = bytearray(control_batch(commit=False, producer_id=9, producer_epoch=0, coordinator_epoch=0, timestamp_ms=1))
    assign_offsets(made, 0, base, 0)
    return bytes(made)


def buffer_of(*fetches: FetchedPartition) -> FetchBuffer:
    buffer = FetchBuffer()
    for fetch in fetches:
        buffer.add(fetch)
    return buffer


def test_c2_what_is_good_before_a_bad_record_comes_first_and_the_position_stays_at_it() -> None:
    fetch = fetched(ONE, batch(0, b"0", b"1"), batch(2, b"2", b"bad", b"4"), numbers=True)
    buffer = buffer_of(fetch)
    assert [record.value for record in buffer.take_records(100)] == [0, 1, 2]
    for _ in range(2):  # until the user seeks over it
        said = r"t-1 offset 3: the value could not be deserialized: .*\. To go on .* seek\(\) to offset 4"
        with pytest.raises(SerializationError, match=said) as raised:
            buffer.take_records(100)
        assert (raised.value.partition, raised.value.offset) == (ONE, 3)
        assert fetch.state.position == 3


@pytest.mark.parametrize("limit", [1, 2, 100])
def test_c2_of_a_batch_with_one_damaged_record_nothing_comes_and_the_position_stays_before_it(limit: int) -> None:
    damaged = bytearray(batch(2, b"2", b"3", b"4"))
    damaged[-1] = 2  # the last record claims a header
    seal(damaged)
    fetch = fetched(ONE, batch(0, b"0", b"1"), bytes(damaged))
    assert [record.value for _ in range(2) for record in fetch.take_records(1)] == [b"0", b"1"]
    for _ in range(2):
        with pytest.raises(CorruptRecordsError, match="t-1: what follows from offset 2 on is damaged"):
            fetch.take_records(limit)
    assert fetch.state.position == 2


def test_c2_a_bad_record_of_one_partition_takes_nothing_from_another() -> None:
    good, bad = fetched(ONE, batch(0, b"0"), numbers=True), fetched(TWO, batch(0, b"bad"), numbers=True)
    buffer = buffer_of(good, bad)
    assert [record.value for record in buffer.take_records(100)] == [0]
    with pytest.raises(SerializationError):
        buffer.take_records(100)
    bad.state.seek(1)
    assert buffer.take_records(100) == []


#: What may be wrong behind `batch(0, …)`, two records: a checksum, or bytes that are no batch.
DAMAGES = [
    pytest.param((broken(batch(2, b"2")), batch(3, b"3")), id="a checksum"),
    pytest.param((bytes(300), batch(3, b"3")), id="zeros"),
    pytest.param((broken(batch(2, b"2")), bytes(300)), id="a checksum, then zeros"),
    pytest.param((batch(0, b"2"), batch(3, b"3")), id="offsets that do not ascend"),
]


def columns_of(buffer: FetchBuffer) -> dict[TopicPartition, int]:
    taken = buffer.take_one_per_partition(lambda fetch: fetch.take_columns(with_headers=False))
    return {tp: columns.num_rows for tp, columns in taken.items()}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_batches_are_not_passed_over(damage: tuple[bytes, ...]) -> None:
    fetch = fetched(ONE, batch(0, b"0", b"1"), *damage)
    buffer = buffer_of(fetch)
    assert [record.value for record in buffer.take_records(100)] == [b"0", b"1"]
    for _ in range(2):
        with pytest.raises(
            CorruptRecordsError, match=r"t-1: what follows from offset 2 on is damaged \(.*\); seek\(\)"
        ) as e:
            buffer.take_records(100)
        assert (e.value.partition, e.value.offset, fetch.state.position) == (ONE, 2, 2)
    fetch.state.seek(3)
    assert buffer.take_records(100) == []


@pytest.mark.parametrize("damage", DAMAGES)
def test_columns_of_good_batches_come_before_damaged_ones(damage: tuple[bytes, ...]) -> None:
    pytest.importorskip("pyarrow")
    good, bad = fetched(TWO, batch(0, b"0", b"1")), fetched(ONE, batch(0, b"0"), batch(1, b"1"), *damage)
    buffer = buffer_of(good, bad)
    assert columns_of(buffer) == {TWO: 2, ONE: 2}
    for _ in range(2):
        with pytest.raises(CorruptRecordsError, match="t-1: what follows from offset 2 on is damaged"):
            columns_of(buffer)
    assert (good.state.position, bad.state.position) == (2, 2)


def test_c2_a_partition_that_cannot_go_on_lets_the_others_go_first() -> None:
    bad, after_it = fetched(ONE, broken(batch(0, b"0"))), fetched(TWO, batch(0, b"0"))
    buffer = buffer_of(bad, after_it)
    with pytest.raises(CorruptRecordsError):
        buffer.take_records(100)
    assert [record.partition for record in buffer.take_records(100)] == [2]
    buffer.add(fetched(TWO, batch(0, b"0")))
    with pytest.raises(CorruptRecordsError):
        buffer.take_records(100)
    assert [record.partition for record in buffer.take_records(100)] == [2]


def test_columns_of_a_partition_that_cannot_go_on_let_the_others_go_first() -> None:
    pytest.importorskip("pyarrow")
    buffer = buffer_of(fetched(ONE, bytes(300)), fetched(TWO, batch(0, b"0")))
    with pytest.raises(CorruptRecordsError):
        columns_of(buffer)
    assert columns_of(buffer) == {TWO: 1}


def test_t9_aborted_records_before_the_damage_stay_left_out() -> None:
    pytest.importorskip("pyarrow")
    data = [transaction(0, b"0"), transaction(1, b"1"), batch(2, b"2"), broken(batch(3, b"3"))]
    rest = [transaction(4, b"4"), abort(5), transaction(6, b"6")]
    buffer = buffer_of(fetched(ONE, *data, *rest))
    assert columns_of(buffer) == {ONE: 1}
    with pytest.raises(CorruptRecordsError, match="from offset 3 on"):
        columns_of(buffer)


@pytest.mark.parametrize("columns", [False, True])
def test_no_bit_makes_somebody_leave_out_records(columns: bool) -> None:
    """One bit makes a control batch of a batch, another one a part of an aborted transaction; of an abort, a commit."""
    if columns:
        pytest.importorskip("pyarrow")
    batches = [transaction(0, b"0"), transaction(1, b"1", producer_id=11), abort(2), transaction(3, b"3")]
    for number, whole in enumerate(batches):
        for bit in range(8 * CRC_START, 8 * len(whole)):  # what the CRC covers
            changed = bytearray(whole)
            changed[bit // 8] ^= 1 << bit % 8
            fetch = fetched(ONE, *batches[:number], bytes(changed), *batches[number + 1 :])
            seen: list[int] = []
            with pytest.raises(CorruptRecordsError, match=f"from offset {number} on"):
                while not fetch.exhausted:
                    taken = fetch.take_columns(with_headers=False)["offset"].to_pylist() if columns else offsets(fetch)
                    seen += taken
            assert seen == [1, 3][: len(seen)]


def test_an_error_behind_records_is_told_once() -> None:
    fetch = fetched(ONE, batch(0, b"0"))
    fetch.fail(ClientError("told"))
    buffer = buffer_of(fetch)
    assert len(buffer.take_records(100)) == 1
    with pytest.raises(ClientError, match="told"):
        buffer.take_records(100)
    assert fetch.state.buffered_fetches == 0


def test_a_fault_that_goes_on_is_told_once_a_poll_and_a_seek_ends_it() -> None:
    failures = Failures()
    for _ in range(3):
        failures.add(NoOffsetForPartitionError("t-1"))
    failures.add(ClientError("other"))
    failures.positions_chosen()
    with pytest.raises(ClientError, match="other"):
        failures.raise_next()
    failures.raise_next()
    assert not failures
