"""SPEC C2: a record that cannot be read. What is good before it is handed out, the position stays at it. No broker."""

import pytest

from ottla.base.types import TopicPartition
from ottla.client.core.failures import Failures
from ottla.client.core.fetch_buffer import FetchBuffer
from ottla.client.core.fetched import Decoding, FetchedPartition
from ottla.client.core.positions import PartitionState
from ottla.client.errors import ClientError, NoOffsetForPartitionError, SerializationError
from ottla.wire.batch import CorruptBatchError
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
        with pytest.raises(SerializationError, match="t-1 offset 3: the value could not be deserialized") as raised:
            buffer.take_records(100)
        assert (raised.value.partition, raised.value.offset) == (ONE, 3)
        assert fetch.state.position == 3


def test_c2_a_bad_record_of_one_partition_takes_nothing_from_another() -> None:
    good, bad = fetched(ONE, batch(0, b"0"), numbers=True), fetched(TWO, batch(0, b"bad"), numbers=True)
    buffer = buffer_of(good, bad)
    assert [record.value for record in buffer.take_records(100)] == [0]
    with pytest.raises(SerializationError):
        buffer.take_records(100)
    bad.state.seek(1)
    assert buffer.take_records(100) == []


def test_a_batch_with_a_wrong_checksum_is_not_passed_over() -> None:
    fetch = fetched(ONE, batch(0, b"0"), broken(batch(1, b"1")), batch(2, b"2"))
    buffer = buffer_of(fetch)
    assert [record.value for record in buffer.take_records(100)] == [b"0"]
    for _ in range(2):
        with pytest.raises(CorruptBatchError):
            buffer.take_records(100)
    assert fetch.state.position == 1


def test_columns_of_good_partitions_are_not_lost_with_those_of_a_bad_one() -> None:
    pytest.importorskip("pyarrow")
    good, bad = fetched(ONE, batch(0, b"0", b"1")), fetched(TWO, batch(0, b"0"), broken(batch(1, b"1")))
    buffer = buffer_of(good, bad)

    def take(fetch: FetchedPartition) -> int:
        return int(fetch.take_columns(with_headers=False).num_rows)

    assert buffer.take_one_per_partition(take) == {ONE: 2}
    for _ in range(2):
        with pytest.raises(CorruptBatchError):
            buffer.take_one_per_partition(take)
    assert (good.state.position, bad.state.position) == (2, 0)


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
