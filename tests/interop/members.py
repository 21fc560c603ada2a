"""Members of one group that know nothing of each other: librdkafka, kafka-python, aiokafka, Java and ours."""

from __future__ import annotations

import asyncio
import subprocess
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Protocol

from aiokafka.coordinator.assignors.range import RangePartitionAssignor as AioKafkaRange
from confluent_kafka.admin import AdminClient, NewTopic
from kafka.coordinator.assignors.range import RangePartitionAssignor as KafkaPythonRange

from ottla.testing import History
from tests.interop import apache
from tests.recording import aio_kafka, kafka_python, librdkafka, ours

PARTITIONS = 8
_WAIT_S = 60.0
_JAVA = "org.apache.kafka.clients.consumer"
_JAVA_CLASSES = {
    "range": f"{_JAVA}.RangeAssignor",
    "roundrobin": f"{_JAVA}.RoundRobinAssignor",
    "sticky": f"{_JAVA}.StickyAssignor",
    "cooperative-sticky": f"{_JAVA}.CooperativeStickyAssignor",
}

Position = tuple[int, int]


class Member(Protocol):
    """One client in the group; each poll commits what it returns."""

    async def poll(self) -> list[Position]:
        """The (partition, offset) of what came."""

    async def partitions(self) -> set[int]:
        """What it has now."""

    async def close(self) -> None:
        """Leave the group."""


#: Makes a member: bootstrap servers, topic, group, history, strategy.
Kind = Callable[[str, str, str, History, str], Member]


def _settings(bootstrap: str, group: str, strategy: str) -> dict[str, Any]:
    """For the clients that speak Kafka's keys."""
    return {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "partition.assignment.strategy": strategy,
        "heartbeat.interval.ms": 200,
    }


class Blocking:
    """What the blocking clients have in common."""

    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer

    async def partitions(self) -> set[int]:
        return {each.partition for each in await asyncio.to_thread(self._consumer.assignment)}

    async def close(self) -> None:
        await asyncio.to_thread(self._consumer.close)


class Librdkafka(Blocking):
    """confluent-kafka."""

    def __init__(self, bootstrap: str, topic: str, group: str, history: History, strategy: str = "range") -> None:
        super().__init__(librdkafka.RecordingConsumer(_settings(bootstrap, group, strategy), history, "librdkafka"))
        self._consumer.subscribe([topic])

    async def poll(self) -> list[Position]:
        messages = [each for each in await asyncio.to_thread(self._consumer.consume, 20, 0.1) if not each.error()]
        if messages:
            await asyncio.to_thread(self._consumer.commit, asynchronous=False)
        return [(each.partition(), each.offset()) for each in messages]


class KafkaPython(Blocking):
    """kafka-python."""

    def __init__(self, bootstrap: str, topic: str, group: str, history: History) -> None:
        super().__init__(
            kafka_python.RecordingConsumer(
                topic,
                history=history,
                who="kafka-python",
                bootstrap_servers=bootstrap,
                group_id=group,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                partition_assignment_strategy=[KafkaPythonRange],
                heartbeat_interval_ms=200,
            )
        )

    async def poll(self) -> list[Position]:
        found: dict[Any, Any] = await asyncio.to_thread(self._consumer.poll, timeout_ms=100)
        if found:
            await asyncio.to_thread(self._consumer.commit)
        return [(each.partition, each.offset) for records in found.values() for each in records]


class AioKafka:
    """aiokafka, whose own choice would be round robin."""

    def __init__(self, bootstrap: str, topic: str, group: str, history: History) -> None:
        self._consumer = aio_kafka.RecordingConsumer(
            topic,
            history=history,
            who="aiokafka",
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            partition_assignment_strategy=(AioKafkaRange,),
            heartbeat_interval_ms=200,
        )
        self._started = False

    async def poll(self) -> list[Position]:
        if not self._started:
            await self._consumer.start()
            self._started = True
        found = await self._consumer.getmany(timeout_ms=100)
        if found:
            await self._consumer.commit()
        return [(each.partition, each.offset) for records in found.values() for each in records]

    async def partitions(self) -> set[int]:
        return {each.partition for each in self._consumer.assignment()}

    async def close(self) -> None:
        await self._consumer.stop()


class Ours(Blocking):
    """Ottla's own."""

    def __init__(self, bootstrap: str, topic: str, group: str, history: History, strategy: str = "range") -> None:
        super().__init__(ours.RecordingConsumer(_settings(bootstrap, group, strategy), history, "ours"))
        self._consumer.subscribe([topic])

    async def poll(self) -> list[Position]:
        records = await asyncio.to_thread(self._consumer.poll, 0.1)
        if records:
            await asyncio.to_thread(self._consumer.commit)
        return [(each.partition, each.offset) for each in records]


class Java:
    """Apache Kafka's own client, in a JVM of its own. What it does is not in the history."""

    def __init__(self, bootstrap: str, topic: str, group: str, history: History, strategy: str = "range") -> None:
        named = ",".join(_JAVA_CLASSES[each] for each in strategy.split(","))
        settings = {**_settings(bootstrap, group, named), "enable.auto.commit": "false"}
        del settings["bootstrap.servers"]
        flags = [
            "-Xmx128M",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=off",
        ]
        source = str(Path(__file__).parent / "java" / "Member.java")
        self._process = subprocess.Popen(
            [apache.java(), *flags, "-cp", f"{apache.jars()}/*", source, bootstrap, topic]
            + [f"{key}={value}" for key, value in settings.items()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._has: set[int] = set()

    async def poll(self) -> list[Position]:
        """One line of what it says."""
        assert self._process.stdout is not None
        line = await asyncio.to_thread(self._process.stdout.readline)
        what, *numbers = line.split() or ("END",)
        if what == "HAS":
            self._has = set(map(int, numbers))
        elif what not in ("READ", "POLLED"):
            raise AssertionError(f"the Java member ended: {self._process.wait(10)}")
        return [(int(numbers[0]), int(numbers[1]))] if what == "READ" else []

    async def partitions(self) -> set[int]:
        return self._has

    async def close(self) -> None:
        await asyncio.to_thread(self._process.communicate, "\n", 30)


class Group:
    """The members, each polled by a task of its own, as applications of their own would."""

    def __init__(self, members: list[Member]) -> None:
        self.seen: Counter[Position] = Counter()
        self._polled = asyncio.Condition()
        self._tasks = {member: asyncio.create_task(self._run(member)) for member in members}
        self._leaving: set[Member] = set()

    async def _run(self, member: Member) -> None:
        while member not in self._leaving:
            self.seen.update(await member.poll())
            async with self._polled:
                self._polled.notify_all()
        await member.close()

    async def __aenter__(self) -> Group:
        return self

    async def __aexit__(self, *_: object) -> None:
        """However the test ends, nobody is left."""
        self._leaving.update(self._tasks)
        if self._tasks:
            await asyncio.wait(self._tasks.values(), timeout=_WAIT_S)

    def join(self, member: Member) -> None:
        """One more member."""
        self._tasks[member] = asyncio.create_task(self._run(member))

    @property
    def size(self) -> int:
        """How many members there are."""
        return len(self._tasks)

    async def leave(self) -> None:
        """The member that is longest there leaves."""
        member, task = next(iter(self._tasks.items()))
        self._leaving.add(member)
        await task
        del self._tasks[member]

    async def wait_for(self, done: Callable[[], Awaitable[bool]]) -> None:
        """Until `done`, asked after every poll; what ended a member ends the test."""
        async with asyncio.timeout(_WAIT_S), self._polled:
            while not await done():
                ended = [task for task in self._tasks.values() if task.done()]
                assert not ended, [task.exception() for task in ended]
                await self._polled.wait()

    async def shares(self) -> list[set[int]]:
        """Each member's partitions, those without any left out."""
        return [found for member in self._tasks if (found := await member.partitions())]

    async def settled(self) -> bool:
        """Whether every member has partitions, and every partition one member."""
        shares = await self.shares()
        return len(shares) == len(self._tasks) and sorted(set().union(*shares)) == sorted(
            partition for share in shares for partition in share
        ) == list(range(PARTITIONS))


def produce(bootstrap: str, topic: str, each: int, history: History, turn: int) -> None:
    """`each` records into every partition, all different if `turn` is."""
    producer = librdkafka.RecordingProducer({"bootstrap.servers": bootstrap}, history, f"producer {turn}")
    for partition in range(PARTITIONS):
        for number in range(each):
            producer.produce(topic, b"%d %d %d" % (turn, partition, number), partition=partition)
    assert producer.flush(30) == 0


def create(bootstrap: str, topic: str) -> None:
    """A topic with `PARTITIONS` partitions."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(30)


async def all_there(seen: Counter[Position], each: int) -> bool:
    """Whether exactly the first `each` offsets of every partition have been seen."""
    return set(seen) == {(partition, offset) for partition in range(PARTITIONS) for offset in range(each)}
