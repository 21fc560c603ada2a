"""Transactions on one broker with 1, 10 and 100 producers, and what a restart has to load.

The producers are raw requests of one Python process, a connection each: Produce v12 (which adds the partition, KIP-890)
and EndTxn v5 are all that a transaction asks. What that process costs is shown beside the rates.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import partial

from bench.broker_cpu import counted
from bench.broker_figures import new_topic
from bench.figure import CPU, IDS, MICROSECONDS, SECONDS, TRANSACTIONS, Measure, Unit, Values
from bench.wire import AGAIN, NOW_MS, Wire, settled
from ottla.wire.apis import ApiKey
from ottla.wire.batch import set_producer
from ottla.wire.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from ottla.wire.messages.end_txn import EndTxnRequest
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.init_producer_id import InitProducerIdRequest
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.records import Record, encode_batch

NOTE = (
    "A transaction is 10 records of 100 bytes to one partition, then a commit (Produce v12, EndTxn v5). Producers are "
    "raw requests of one Python process, a connection each; with 10 and 100 they share 10 partitions. This process's "
    "CPU is shown. Told CONCURRENT_TRANSACTIONS, a producer asks again after 1 ms, sooner than clients do. A broker's "
    "CPU is user and system time of its process, all threads, divided by all transactions, those of the warm-up too. "
    "Transactional ids are made by InitProducerId over 32 connections; after kill -9 each of them is described. Aim "
    "for the rates, and for the broker's CPU: 5."
)

_TIMES = {1: 2_000, 10: 8_000, 100: 10_000}
_WARM_UP, _PARTITIONS = 5, 10
_IDS, _CONNECTIONS, _TIMEOUT_MS = 100_000, 32, 60_000
_PREFIX = "bench-id"
_TRANSACTIONS_TYPE = 1


def each_commits(producers: int, scale: float) -> int:
    """How many transactions every one of the producers is measured with."""
    return max(2, int(_TIMES[producers] * scale) // producers)


def all_commits(producers: int, scale: float) -> int:
    """How many transactions a run asks of the broker, those of the warm-up too."""
    return producers * (each_commits(producers, scale) + _WARM_UP)


class Transactor:
    """One transactional producer over a connection of its own."""

    def __init__(self, wire: Wire, transactional_id: str, topic: str, partition: int) -> None:
        records = [Record(n, NOW_MS, None, b"x" * 100, ()) for n in range(10)]
        self._batch = bytearray(encode_batch(records))
        self._wire, self._id, self._topic, self._partition = wire, transactional_id, topic, partition
        self._producer_id, self._epoch = -1, -1

    async def start(self) -> None:
        """Find the coordinator, get a producer id."""
        self._producer_id, self._epoch = await initialised(self._wire, self._id)

    async def commit(self, times: int) -> None:
        """So many transactions, one after the other. RefusedError for an error that no client would expect."""
        for _ in range(times):
            set_producer(self._batch, self._producer_id, self._epoch, 0, transactional=True)
            data = PartitionProduceData(self._partition, bytes(self._batch))
            request = ProduceRequest(
                self._id, -1, _TIMEOUT_MS, (TopicProduceData(name=self._topic, partition_data=(data,)),)
            )
            await settled(
                self._wire,
                ApiKey.PRODUCE,
                request,
                lambda answer: answer.responses[0].partition_responses[0].error_code,
            )
            await self._end()

    async def _end(self) -> None:
        request = EndTxnRequest(self._id, self._producer_id, self._epoch, True)
        answer = await settled(self._wire, ApiKey.END_TXN, request, lambda answer: answer.error_code)
        self._producer_id, self._epoch = answer.producer_id, answer.producer_epoch


async def initialised(wire: Wire, transactional_id: str) -> tuple[int, int]:
    """Producer id and epoch of a transactional id, as soon as its coordinator answers."""
    request = InitProducerIdRequest(transactional_id, _TIMEOUT_MS)
    answer = await settled(wire, ApiKey.INIT_PRODUCER_ID, request, lambda answer: answer.error_code)
    return answer.producer_id, answer.producer_epoch


async def find(wire: Wire, transactional_id: str) -> None:
    """Ask for the coordinator until there is one: the first who asks has its log made."""
    request = FindCoordinatorRequest(key_type=_TRANSACTIONS_TYPE, coordinator_keys=(transactional_id,))
    await settled(wire, ApiKey.FIND_COORDINATOR, request, lambda answer: answer.coordinators[0].error_code)


def _rate(producers: int, bootstrap: str, scale: float) -> Values:
    partitions = min(producers, _PARTITIONS)
    return asyncio.run(_committed(producers, bootstrap, new_topic(bootstrap, partitions), partitions, scale))


async def _committed(producers: int, bootstrap: str, topic: str, partitions: int, scale: float) -> Values:
    each = each_commits(producers, scale)
    async with AsyncExitStack() as stack:
        wires = [await stack.enter_async_context(Wire(bootstrap)) for _ in range(producers)]
        transactors = [Transactor(wire, f"{topic}-{n}", topic, n % partitions) for n, wire in enumerate(wires)]
        await find(wires[0], topic)
        await asyncio.gather(*(one.start() for one in transactors))
        await asyncio.gather(*(one.commit(_WARM_UP) for one in transactors))
        start, used = time.perf_counter(), time.process_time()
        await asyncio.gather(*(one.commit(each) for one in transactors))
        taken, used = time.perf_counter() - start, time.process_time() - used
    name = producers_name(producers)
    done = each * producers
    return {f"{name}, transactions": done / taken, f"{name}: CPU of the producers, a transaction": used / done * 1e6}


def producers_name(producers: int) -> str:
    """How the figures of so many producers are called."""
    return f"{producers} producer{'s' if producers > 1 else ''}"


def transactional_ids(scale: float) -> list[str]:
    """The ids that the restart has to load."""
    return [f"{_PREFIX}-{number:06}" for number in range(max(100, int(_IDS * scale)))]


def ids(bootstrap: str, scale: float) -> Values:
    """A hundred thousand transactional ids, made by InitProducerId: a record each in the coordinators' log."""
    return asyncio.run(_ids(bootstrap, transactional_ids(scale)))


async def _ids(bootstrap: str, names: Sequence[str]) -> Values:
    async def share(wire: Wire, mine: Sequence[str]) -> None:
        for name in mine:
            await initialised(wire, name)

    async with AsyncExitStack() as stack:
        wires = [await stack.enter_async_context(Wire(bootstrap)) for _ in range(_CONNECTIONS)]
        await find(wires[0], names[0])
        await initialised(wires[0], f"{_PREFIX}-{uuid.uuid4().hex}")
        name, cpu, start = f"{len(names):,} transactional ids made", Values(), time.perf_counter()
        with counted(cpu, name, len(names)):
            await asyncio.gather(*(share(wire, names[n::_CONNECTIONS]) for n, wire in enumerate(wires)))
        return {name: len(names) / (time.perf_counter() - start), **cpu}


def ids_are_there(bootstrap: str, scale: float) -> None:
    """After a restart: until every one of these ids is described, so that every coordinator has loaded."""
    asyncio.run(_described(bootstrap, transactional_ids(scale)))


async def _described(bootstrap: str, names: Sequence[str]) -> None:
    async with Wire(bootstrap) as wire:
        for begin in range(0, len(names), 500):
            request = DescribeTransactionsRequest(tuple(names[begin : begin + 500]))
            await settled(wire, ApiKey.DESCRIBE_TRANSACTIONS, request, _worst)


def _worst(answer: DescribeTransactionsResponse) -> int:
    """The error of the one that is furthest from being described; else 0."""
    errors = {each.error_code for each in answer.transaction_states} - {0}
    return next(iter(errors - AGAIN or errors), 0)


PRODUCERS = {f"producers_{number}": number for number in _TIMES}
FIGURES: dict[str, Measure] = {name: partial(_rate, number) for name, number in PRODUCERS.items()} | {"ids": ids}


def unit_of(name: str) -> Unit:
    """The unit of a value of this module."""
    if name.startswith("kill -9"):
        return SECONDS
    if name.endswith("made"):
        return IDS
    if name.endswith(": CPU"):
        return CPU
    if "CPU" in name:
        return MICROSECONDS
    return TRANSACTIONS
