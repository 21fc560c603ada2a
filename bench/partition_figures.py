"""What very many partitions, or topics, cost a broker: to make and write them, in memory, and at a start.

All of it by raw requests: librdkafka's own metadata of so many topics would take most of the time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from bench.broker_cpu import counted
from bench.figure import MEGABYTES, SECONDS, Measure, Unit, Values
from bench.wire import AGAIN, NOW_MS, Wire, check
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.records import Record, encode_batch

NOTE = (
    "10 topics of 1,000 partitions, and on other brokers 5,000 topics of one, by raw requests over one connection: a "
    "CreateTopics makes 1,000 partitions, a Produce writes a record of 100 bytes to each of 100. Apache Kafka says "
    "that they are made before it has them: made *and written* is what one waits for. A start goes from the command "
    "until ListOffsets has told of each partition that it ends behind its record; one that has lost it would be a "
    "fault. First comes kill -9 behind the writes, then a stop by SIGTERM and a start. Memory is resident; CPU is "
    "seconds of the broker's process, all threads. One round. Aim: 1.0."
)
_MADE_AT_ONCE, _WRITTEN_AT_ONCE = 1_000, 100
_WAIT_S, _TIMEOUT_MS, _PAUSE_S = 300.0, 300_000, 0.02
_RECORD = encode_batch([Record(0, NOW_MS, None, b"x" * 100, ())])

#: The name of a topic, and the number of one of its partitions.
Part = tuple[str, int]


class Many(NamedTuple):
    """So many topics of so many partitions."""

    prefix: str
    topics: int
    partitions: int

    def scaled(self, scale: float) -> Many:
        """Fewer topics."""
        return self._replace(topics=max(1, int(self.topics * scale)))

    @property
    def names(self) -> list[str]:
        """Of the topics."""
        return [f"{self.prefix}-{number}" for number in range(self.topics)]

    @property
    def title(self) -> str:
        """What there is many of."""
        if self.partitions > 1:
            return f"{self.topics * self.partitions:,} partitions"
        return f"{self.topics:,} topics"

    def parts(self, at_once: int) -> list[list[Part]]:
        """All partitions, so many of them together."""
        every = [(name, number) for name in self.names for number in range(self.partitions)]
        return [every[begin : begin + at_once] for begin in range(0, len(every), at_once)]


MANY = {"partitions": Many("bench-wide", 10, 1_000), "topics": Many("bench-topic", 5_000, 1)}


def _made(many: Many, bootstrap: str, scale: float) -> Values:
    """Make them, and write a record to each partition."""
    return asyncio.run(_make_and_write(bootstrap, many.scaled(scale)))


async def _make_and_write(bootstrap: str, many: Many) -> Values:
    found, cpu = Values(), Values()
    async with Wire(bootstrap) as wire:
        start = time.perf_counter()
        with counted(cpu, f"{many.title} made and written"):
            for part in many.parts(_MADE_AT_ONCE):
                topics = tuple(CreatableTopic(name, many.partitions, 1) for name in dict.fromkeys(n for n, _ in part))
                answer = await wire.ask(ApiKey.CREATE_TOPICS, CreateTopicsRequest(topics, _TIMEOUT_MS))
                check("CREATE_TOPICS", max(each.error_code for each in answer.topics))
            found[f"{many.title} made"] = time.perf_counter() - start
            for part in many.parts(_WRITTEN_AT_ONCE):
                await until_all(part, partial(_written, wire))
            found[f"{many.title} made and written"] = time.perf_counter() - start
    return found | cpu


async def _written(wire: Wire, parts: Sequence[Part]) -> list[tuple[Part, int]]:
    """The error of each partition, after a record was written to those that have none."""
    topics = tuple(
        TopicProduceData(name=name, partition_data=tuple(PartitionProduceData(number, _RECORD) for _, number in group))
        for name, group in groupby(parts, itemgetter(0))
    )
    answer = await wire.ask(ApiKey.PRODUCE, ProduceRequest(None, -1, _TIMEOUT_MS, topics))
    return [
        ((topic.name, each.index), each.error_code) for topic in answer.responses for each in topic.partition_responses
    ]


async def until_all(
    parts: Iterable[Part], ask: Callable[[Sequence[Part]], Awaitable[list[tuple[Part, int]]]], pause_s: float = _PAUSE_S
) -> None:
    """Ask about those that are not yet without an error, again and again.

    RefusedError for an error that no client expects; TimeoutError when some have one for _WAIT_S.
    """
    left, give_up = list(parts), time.perf_counter() + _WAIT_S
    while True:
        errors = {part: error for part, error in await ask(left) if error}
        for error in errors.values():
            check("a partition", 0 if error in _LATER else error)
        left = [part for part in left if part in errors]
        if not left:
            return
        if time.perf_counter() > give_up:
            said = ErrorCode(errors[left[0]]).name
            raise TimeoutError(f"after {_WAIT_S:.0f} s {said} of {len(left)} partitions, such as {left[0]}")
        await asyncio.sleep(pause_s)


_LATER = AGAIN | {ErrorCode.OFFSET_NOT_AVAILABLE}


def are_there(figure: str, bootstrap: str, scale: float) -> None:
    """After a restart: until each partition says that its record is there.

    RefusedError; TimeoutError when some never answer, or never have it.
    """

    async def ask() -> None:
        async with Wire(bootstrap) as wire:
            for part in MANY[figure].scaled(scale).parts(_MADE_AT_ONCE):
                await until_all(part, partial(_ends, wire))

    asyncio.run(ask())


async def _ends(wire: Wire, parts: Sequence[Part]) -> list[tuple[Part, int]]:
    """The error of each partition, of one that does not end behind its record OFFSET_NOT_AVAILABLE."""
    topics = tuple(
        ListOffsetsTopic(name, tuple(ListOffsetsPartition(number, timestamp=-1) for _, number in group))
        for name, group in groupby(parts, itemgetter(0))
    )
    answer = await wire.ask(ApiKey.LIST_OFFSETS, ListOffsetsRequest(-1, topics=topics))
    return [
        ((topic.name, each.partition_index), each.error_code or (each.offset != 1) * ErrorCode.OFFSET_NOT_AVAILABLE)
        for topic in answer.topics
        for each in topic.partitions
    ]


FIGURES: dict[str, Measure] = {figure: partial(_made, many) for figure, many in MANY.items()}


def unit_of(name: str) -> Unit:
    """The unit of a value of this module."""
    return MEGABYTES if "memory" in name else SECONDS
