"""A shard that counts its records, with a runner over partitions in a directory: for tests of the runner."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

from ottla.base.require import InvariantError
from ottla.base.types import TopicPartition
from ottla.broker.config import BrokerConfig
from ottla.broker.metadata.image import PartitionImage, TopicImage
from ottla.broker.runtime.partitions import Partitions
from ottla.broker.runtime.shard import Logged, ShardRunner, ShardRuntime, ShardState
from ottla.broker.runtime.slices import Slices
from ottla.broker.runtime.timers import Timers
from ottla.broker.storage import DirectoryDisk
from ottla.coordinator.decision import NOTHING, Decision, Effect, LogRecord, Reply, SetTimer
from ottla.wire.errors import ErrorCode
from tests.broker.ticking import TickingClock

TP = TopicPartition("log", 0)


class CountingShard:
    """A shard that counts its records and writes down what happens to it."""

    def __init__(self) -> None:
        self.is_busy = False
        self.total = 0
        self.events: list[str] = []

    def add(self, token: int, amount: int) -> Decision:
        self.events.append(f"decide {amount}")
        return Decision((LogRecord(b"k", b"%d" % amount),), (Reply(token, self.total + amount),))

    def timer(self, key: tuple[str, ...], now_ms: int) -> Decision:
        self.events.append(f"timer {key[0]}")
        return Decision((LogRecord(b"k", b"100"),))

    def append_failed(self, decision: Decision, error: ErrorCode) -> Decision:
        return Decision(replies=tuple(Reply(reply.token, error) for reply in decision.replies))

    def loaded(self, now_ms: int) -> Iterator[Decision]:
        self.events.append("loaded")
        yield Decision(timers=(SetTimer(("tick",), 1_000),))


def apply(shard: CountingShard, batch: Logged, now_ms: int) -> Decision:
    if batch.commit is not None:
        shard.events.append(f"marker {batch.producer_id} {batch.commit}")
    for record in batch.records:
        shard.total += int(record.value or b"0")
        shard.events.append(f"apply {int(record.value or b'0')}")
    return NOTHING


class _Handle:
    def cancel(self) -> None:
        """Nothing runs by itself here."""


class _NoLoop:
    def call_later(self, delay: float, callback: Callable[[], object], /) -> _Handle:
        return _Handle()


class World:
    """Partitions in a directory, timers on a clock held by the test, and a runner over them."""

    def __init__(self, data_dir: Path) -> None:
        self.clock = TickingClock()
        self.partitions = Partitions(BrokerConfig(), self.clock, DirectoryDisk(data_dir), Random(1))
        self.partitions.open_topic(TopicImage("log", b"i" * 16, [PartitionImage(1, 0, (1,))]), {})
        self.runtime = ShardRuntime(self.partitions, Timers(self.clock, _NoLoop()), self.clock, Slices(self.clock))
        self.effects: list[Effect] = []
        self.runner = self.new_runner()

    def new_runner(self) -> ShardRunner[CountingShard]:
        runner = ShardRunner(
            TP, lambda tp: CountingShard(), apply, self.runtime, lambda _, effect: self.effects.append(effect)
        )
        for _ in runner.load():
            pass
        return runner

    def lose_partition(self) -> None:
        list(self.partitions.take_out(TopicImage("log", b"i" * 16, [PartitionImage(1, 0, (1,))])))


async def reading(runner: ShardRunner[CountingShard]) -> list[int]:
    """Let the runner read its log; how many records it applies in each turn of the loop."""
    in_turns = []
    for _ in range(10_000):
        if runner.state is not ShardState.LOADING:
            break
        before = applied(runner)
        await asyncio.sleep(0)
        in_turns.append(applied(runner) - before)
    return in_turns


def applied(runner: ShardRunner[CountingShard]) -> int:
    return sum(event.startswith("apply") for event in runner.shard.events)


def broken(now_ms: int) -> Decision:
    raise InvariantError("broken")
