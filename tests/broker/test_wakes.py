"""One record, or the end of their time, wakes very many fetches: a few in each turn of the loop, in order."""

import asyncio
from collections.abc import Iterable
from typing import cast

from ottla.base.clock import ManualClock
from ottla.base.limits import FETCHES_AT_ONCE, TOLD_AT_ONCE, UNWATCHED_AT_ONCE, WAKES_TURN_MS
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


def _partition(wakes: Wakes) -> Partition:
    return Partition(TopicPartition("t", 0), bytes(16), cast(PartitionLog, None), 0, wakes)


def _waiting(count: int, wakes: Wakes, max_wait_ms: int) -> tuple[Partition, list[asyncio.Future[object]], list[int]]:
    partition = _partition(wakes)
    read: list[int] = []
    futures: list[asyncio.Future[object]] = []
    for number in range(count):
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        delayed = DelayedFetch(future, _Fetch(number, read), wakes, committed=False)
        delayed.watch(partition)
        delayed.wait(1, max_wait_ms)
        futures.append(future)
    return partition, futures, read


class _Told:
    """Notes what it is told."""

    def __init__(self, told: list[int]) -> None:
        self._told = told

    def appended(self, partition: Partition, size_bytes: int, /) -> None:
        self._told.append(size_bytes)

    def gone(self, partition: Partition, /) -> None:
        raise AssertionError("it is there")


async def test_one_append_has_a_few_fetches_read_in_each_turn() -> None:
    """600 fetches that waited for one record were all answered in one turn of 21 ms."""
    partition, futures, read = _waiting(_MANY, Wakes(ManualClock()), 60_000)
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
    wakes, told = Wakes(ManualClock()), list[int]()

    partition = _partition(wakes)
    for _ in range(_MANY):
        partition.watch(_Told(told))
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
    partition, futures, read = _waiting(3, Wakes(ManualClock()), 60_000)
    partition.appended(1)
    await asyncio.sleep(0)
    assert read == [0, 1, 2]
    assert all(future.done() for future in futures)


async def test_fetches_whose_time_is_over_have_their_turns_too() -> None:
    partition, futures, read = _waiting(_MANY, Wakes(ManualClock()), 0)
    most = 0
    while not all(future.done() for future in futures):
        before = len(read)
        await asyncio.sleep(0)
        most = max(most, len(read) - before)
    assert most <= FETCHES_AT_ONCE
    assert sorted(read) == list(range(_MANY))
    await asyncio.sleep(0)
    assert not partition.watched


async def test_fetches_of_many_partitions_have_some_milliseconds_of_a_turn() -> None:
    """A hundred fetches of 200 partitions that one produce had woken took 53 ms with their answers."""
    clock = ManualClock()
    wakes, read = Wakes(clock), 0

    def wake() -> None:
        nonlocal read
        read += 1
        clock.advance(1)

    for _ in range(_MANY):
        wakes.add(wake)
    while read < _MANY:
        before = read
        await asyncio.sleep(0)
        assert read - before == min(WAKES_TURN_MS, _MANY - before)


async def test_one_produce_tells_so_many_in_a_turn_that_partitions_have_grown() -> None:
    """1,500 fetches waited for each of 50 partitions: a produce to all of them took 36 ms."""
    wakes, told = Wakes(ManualClock()), list[int]()
    partitions = [_partition(wakes) for _ in range(20)]
    watchers = TOLD_AT_ONCE // 4
    for partition in partitions:
        for _ in range(watchers):
            partition.watch(_Told(told))
        partition.appended(5)
        partition.appended(2)
    turns = 0
    assert len(told) == TOLD_AT_ONCE
    while len(told) < 2 * 4 * watchers + 16 * watchers:
        before = len(told)
        await asyncio.sleep(0)
        turns += 1
        assert len(told) - before <= TOLD_AT_ONCE
    assert turns == 5
    assert sum(told) == 20 * watchers * 7, "each is told of all that came"


async def test_very_many_that_wait_for_one_partition_are_told() -> None:
    wakes, told = Wakes(ManualClock()), list[int]()
    partition = _partition(wakes)
    for _ in range(2 * TOLD_AT_ONCE):
        partition.watch(_Told(told))
    partition.appended(3)
    assert told == [3] * 2 * TOLD_AT_ONCE


async def test_a_fetch_of_very_many_partitions_stops_watching_some_at_a_time() -> None:
    """40 fetches of 5,000 partitions that one record had woken took 25 ms for it."""
    wakes, read = Wakes(ManualClock()), list[int]()
    partitions = [_partition(wakes) for _ in range(3 * UNWATCHED_AT_ONCE + 1)]
    future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    delayed = DelayedFetch(future, _Fetch(0, read), wakes, committed=False)
    for partition in partitions:
        delayed.watch(partition)
    delayed.wait(1, 60_000)
    future.cancel()
    for watching in (2 * UNWATCHED_AT_ONCE + 1, UNWATCHED_AT_ONCE + 1, 1, 0):
        await asyncio.sleep(0)
        assert sum(partition.watched for partition in partitions) == watching
        if watching == 1:
            partitions[0].appended(1)
    await asyncio.sleep(0)
    assert read == [], "it is over"
