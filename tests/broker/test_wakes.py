"""One record, or the end of their time, wakes very many fetches: a few in each turn of the loop, in order."""

import asyncio
from collections.abc import Iterable
from typing import cast

from ottla.base.limits import FETCHES_AT_ONCE
from ottla.base.types import TopicPartition
from ottla.broker.runtime.partition import Partition
from ottla.broker.runtime.purgatory import DelayedFetch
from ottla.broker.runtime.wakes import Wakes
from ottla.log.partition import PartitionLog

_MANY = 2 * FETCHES_AT_ONCE + 1


class _Fetch:
    """Notes when it is read, and has then what it waits for."""

    def __init__(self, number: int, read: list[int]) -> None:
        self._number = number
        self._read = read

    def read_again(self, changed: Iterable[Partition] | None, /) -> int:
        self._read.append(self._number)
        return 0


def _waiting(count: int, wakes: Wakes, max_wait_ms: int) -> tuple[Partition, list[asyncio.Future[object]], list[int]]:
    partition = Partition(TopicPartition("t", 0), bytes(16), cast(PartitionLog, None), 0, wakes)
    read: list[int] = []
    futures: list[asyncio.Future[object]] = []
    for number in range(count):
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        delayed = DelayedFetch(future, _Fetch(number, read), wakes, committed=False)
        delayed.watch(partition)
        delayed.wait(1, max_wait_ms)
        futures.append(future)
    return partition, futures, read


async def test_one_append_has_a_few_fetches_read_in_each_turn() -> None:
    """600 fetches that waited for one record were all answered in one turn of 21 ms."""
    partition, futures, read = _waiting(_MANY, Wakes(), 60_000)
    partition.appended(1)
    partition.appended(1)
    assert read == [], "an append does not wait for its readers"
    turns = 0
    while not all(future.done() for future in futures):
        before = len(read)
        await asyncio.sleep(0)
        turns += 1
        assert len(read) - before <= FETCHES_AT_ONCE
    assert read == list(range(_MANY))
    assert turns == 3


async def test_many_are_told_once_in_a_turn_whatever_it_appends() -> None:
    """A produce of fifty batches for one partition told each of 4,000 fetches of each: 170 ms."""
    wakes, told = Wakes(), list[int]()

    class Told:
        def appended(self, partition: Partition, size_bytes: int, /) -> None:
            told.append(size_bytes)

        def gone(self, partition: Partition, /) -> None:
            raise AssertionError("it is there")

    partition = Partition(TopicPartition("t", 0), bytes(16), cast(PartitionLog, None), 0, wakes)
    for _ in range(_MANY):
        partition.watch(Told())
    for size_bytes in range(1, 51):
        partition.appended(size_bytes)
    assert told == [1] * _MANY
    await asyncio.sleep(0)
    assert told == [1] * _MANY + [sum(range(2, 51))] * _MANY
    await asyncio.sleep(0)
    assert len(told) == 2 * _MANY
    partition.appended(7)
    assert told[2 * _MANY :] == [7] * _MANY


async def test_few_are_read_in_the_next_turn() -> None:
    partition, futures, read = _waiting(3, Wakes(), 60_000)
    partition.appended(1)
    await asyncio.sleep(0)
    assert read == [0, 1, 2]
    assert all(future.done() for future in futures)


async def test_fetches_whose_time_is_over_have_their_turns_too() -> None:
    partition, futures, read = _waiting(_MANY, Wakes(), 0)
    most = 0
    while not all(future.done() for future in futures):
        before = len(read)
        await asyncio.sleep(0)
        most = max(most, len(read) - before)
    assert most <= FETCHES_AT_ONCE
    assert sorted(read) == list(range(_MANY))
    await asyncio.sleep(0)
    assert not partition.watched
