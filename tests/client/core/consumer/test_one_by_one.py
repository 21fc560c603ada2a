"""A `for` loop over a consumer's records: what it has got is what is committed, and nothing that it has not is lost."""

from itertools import islice

import pytest

from ottla.base.types import TopicPartition
from ottla.client.core.consumer.fetch_buffer import FetchBuffer
from ottla.client.core.consumer.fetched import Decoding, FetchedPartition
from ottla.client.core.consumer.positions import PartitionState
from ottla.wire.records import Record, encode_batch

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


class Reader:
    """Two partitions with five records each, in two fetches."""

    def __init__(self) -> None:
        self.buffer = FetchBuffer()
        self.a, self.b = PartitionState(A), PartitionState(B)
        decoding = Decoding(check_crcs=True, read_committed=False, key=None, value=None)
        for base, count in ((0, 3), (3, 2)):
            for state in (self.a, self.b):
                if base == 0:
                    state.seek(0)
                records = [Record(base + i, 1, None, b"v", ()) for i in range(count)]
                data = encode_batch(records, base_offset=base, partition_leader_epoch=base)
                self.buffer.add(FetchedPartition(state, data, (), decoding))

    def loop(self, count: int | None = None, limit: int = 100) -> list[tuple[int, int]]:
        """What a loop over one poll gets, which is left after `count` records."""
        self.buffer.handed_out()
        found = self.buffer.one_by_one(self.buffer.take_records(limit))
        return [(record.partition, record.offset) for record in islice(found, count)]

    @property
    def committable(self) -> list[tuple[int, int]]:
        return [(s.committable().offset, s.committable().leader_epoch) for s in (self.a, self.b)]  # type: ignore[union-attr]


def test_a_loop_that_comes_to_its_end_has_got_everything() -> None:
    reader = Reader()
    assert len(reader.loop()) == 10
    assert reader.committable == [(5, 3), (5, 3)]
    assert reader.loop() == []


@pytest.mark.parametrize("count", range(11))
@pytest.mark.parametrize("limit", [1, 4, 7, 100])
def test_what_a_loop_that_was_left_has_not_got_comes_again(count: int, limit: int) -> None:
    reader = Reader()
    found = reader.loop(count, limit)
    for number, (offset, _) in enumerate(reader.committable):
        assert offset == sum(partition == number for partition, _ in found), "no more is committed than was got"
    while more := reader.loop(limit=limit):
        found += more
    assert sorted(found) == [(partition, offset) for partition in (0, 1) for offset in range(5)]
    assert (reader.a.buffered_fetches, reader.b.buffered_fetches) == (0, 0)
    assert reader.committable == [(5, 3), (5, 3)]


def test_in_a_loop_the_position_is_behind_the_record_at_hand() -> None:
    reader = Reader()
    found = reader.buffer.one_by_one(reader.buffer.take_records(100))
    for _ in range(2):
        next(found)
    assert (reader.a.next_offset, reader.b.next_offset) == (2, 0)


def test_a_loop_ends_when_its_partition_is_sought_or_paused() -> None:
    for change in (lambda state: state.seek(77), lambda state: setattr(state, "paused", True)):
        reader = Reader()
        found = reader.buffer.one_by_one(reader.buffer.take_records(100))
        assert next(found).offset == 0
        change(reader.a)
        assert list(found) == []
        assert reader.loop() == [(1, offset) for offset in range(5)]
        assert reader.a.position == (77 if not reader.a.paused else 1)


def test_a_loop_goes_on_after_another_poll_with_nothing_twice() -> None:
    reader = Reader()
    first = reader.buffer.one_by_one(reader.buffer.take_records(100))
    next(first)
    assert len(reader.loop()) == 9
    assert list(first) == []


def test_a_loop_ends_when_another_one_has_begun() -> None:
    reader = Reader()
    first = reader.buffer.one_by_one(reader.buffer.take_records(100))
    assert next(first).offset == 0
    reader.buffer.handed_out()
    second = reader.buffer.one_by_one(reader.buffer.take_records(100))
    assert [next(second).offset for _ in range(2)] == [1, 2]
    assert list(first) == []
    assert reader.committable[0] == (3, 0)
    assert len(list(second)) == 7
    assert reader.committable == [(5, 3), (5, 3)]
