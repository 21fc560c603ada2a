"""Members of one group that know nothing of each other: librdkafka, kafka-python, aiokafka, Java and ours.

Each reads a topic, or those that match a pattern (it begins with `^`), and commits what every poll returned. They may
share the test's process, or have one of their own (`matrix/`), so that it can be killed.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
from abc import abstractmethod
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Protocol

import aiokafka.coordinator.assignors.range
import aiokafka.coordinator.assignors.roundrobin
import aiokafka.errors
import kafka.coordinator.assignors.cooperative_sticky
import kafka.coordinator.assignors.range
import kafka.coordinator.assignors.roundrobin
import kafka.errors
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

import ottla
from ottla import CommitFailedError, SubscriptionPattern, TopicPartition
from ottla.testing import History
from ottla.testing.history.facts import Polled
from tests.interop import apache
from tests.interop.compiled import java_classes
from tests.interop.spoken import event_of, partitions_of
from tests.recording import aio_kafka, kafka_python, librdkafka, ours

PARTITIONS = 8
_WAIT_S = 120.0
_JAVA = "org.apache.kafka.clients.consumer"
_JAVA_CLASSES = {
    "range": f"{_JAVA}.RangeAssignor",
    "roundrobin": f"{_JAVA}.RoundRobinAssignor",
    "sticky": f"{_JAVA}.StickyAssignor",
    "cooperative-sticky": f"{_JAVA}.CooperativeStickyAssignor",
}
_KAFKA_PYTHON_CLASSES = {
    "range": kafka.coordinator.assignors.range.RangePartitionAssignor,
    "roundrobin": kafka.coordinator.assignors.roundrobin.RoundRobinPartitionAssignor,
    "cooperative-sticky": kafka.coordinator.assignors.cooperative_sticky.CooperativeStickyAssignor,
}
_AIOKAFKA_CLASSES = {
    "range": aiokafka.coordinator.assignors.range.RangePartitionAssignor,
    "roundrobin": aiokafka.coordinator.assignors.roundrobin.RoundRobinPartitionAssignor,
}
#: With these a commit of librdkafka's fails while its group or its coordinator changes: somebody reads on from before.
PASSING = {
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError.STALE_MEMBER_EPOCH,
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError._NO_OFFSET,
    KafkaError._STATE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError._TIMED_OUT,
    KafkaError._TRANSPORT,
    KafkaError._WAIT_COORD,
}

#: The same of kafka-python.
_KAFKA_PYTHON_PASSING = (
    kafka.errors.CommitFailedError,
    kafka.errors.IllegalGenerationError,
    kafka.errors.RebalanceInProgressError,
    kafka.errors.RetriableError,
    kafka.errors.UnknownMemberIdError,
)

Position = tuple[int, int]


class Member(Protocol):
    """One client in the group; each poll commits what it returns."""

    async def poll(self) -> list[Position]:
        """The (partition, offset) of what came."""

    async def owned(self) -> frozenset[TopicPartition]:
        """What it has now."""

    async def close(self) -> None:
        """Leave the group."""


#: Makes a member: bootstrap servers, topic, group, history, strategy; by keyword its name in the history (`who`), and
#: more settings by Kafka's keys, with underscores for dots.
Kind = Callable[..., Member]


def _settings(bootstrap: str, group: str, strategy: str, more: dict[str, Any]) -> dict[str, Any]:
    """For the clients that speak Kafka's keys."""
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "partition.assignment.strategy": strategy,
        "heartbeat.interval.ms": 200,
        "isolation.level": "read_uncommitted",
    } | {key.replace("_", "."): value for key, value in more.items()}
    if settings.get("group.protocol") == "consumer":  # whose coordinator says how often, and how long
        settings["group.remote.assignor"] = settings.pop("partition.assignment.strategy")
        for key in ("heartbeat.interval.ms", "session.timeout.ms"):
            settings.pop(key, None)
    return settings


class Blocking:
    """What the blocking clients have in common."""

    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer

    async def poll(self) -> list[Position]:
        return await asyncio.to_thread(self._poll)

    @abstractmethod
    def _poll(self) -> list[Position]:
        """As `poll`."""

    async def owned(self) -> frozenset[TopicPartition]:
        found = await asyncio.to_thread(self._consumer.assignment)
        return frozenset(TopicPartition(each.topic, each.partition) for each in found)

    async def close(self) -> None:
        await asyncio.to_thread(self._consumer.close)


class Librdkafka(Blocking):
    """confluent-kafka."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        group: str,
        history: History,
        strategy: str = "range",
        *,
        who: str = "librdkafka",
        **more: Any,
    ) -> None:
        settings = _settings(bootstrap, group, strategy, more)
        if "metadata.max.age.ms" in settings:  # where librdkafka, unlike Java, looks for new topics less often
            settings["topic.metadata.refresh.interval.ms"] = settings["metadata.max.age.ms"]
        super().__init__(librdkafka.RecordingConsumer(settings, history, who))
        self._consumer.subscribe([topic])

    def _poll(self) -> list[Position]:
        messages = [each for each in self._consumer.consume(20, 0.1) if not each.error()]
        if messages:
            try:
                self._consumer.commit(asynchronous=False)
            except KafkaException as failed:
                if failed.args[0].code() not in PASSING:
                    raise
        return [(each.partition(), each.offset()) for each in messages]


class KafkaPython(Blocking):
    """kafka-python."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        group: str,
        history: History,
        strategy: str = "range",
        *,
        who: str = "kafka-python",
        **more: Any,
    ) -> None:
        settings = {
            "bootstrap_servers": bootstrap,
            "group_id": group,
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            "partition_assignment_strategy": [_KAFKA_PYTHON_CLASSES[each] for each in strategy.split(",")],
            "heartbeat_interval_ms": 200,
        }
        super().__init__(kafka_python.RecordingConsumer(topic, history=history, who=who, **settings | more))

    def _poll(self) -> list[Position]:
        # A leader that joins again loses its assignment if the poll ends before (kafka-python 3.0.12).
        found: dict[Any, Any] = {}
        with suppress(kafka.errors.RetriableError, kafka.errors.KafkaConnectionError):  # while the broker restarts
            found = self._consumer.poll(timeout_ms=3_000)
        if found:
            with suppress(*_KAFKA_PYTHON_PASSING):  # the next commit, or the next owner's, has these offsets too
                self._consumer.commit()
        return [(each.partition, each.offset) for records in found.values() for each in records]


class AioKafka:
    """aiokafka, whose own choice would be round robin."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        group: str,
        history: History,
        strategy: str = "range",
        *,
        who: str = "aiokafka",
        **more: Any,
    ) -> None:
        settings = {
            "bootstrap_servers": bootstrap,
            "group_id": group,
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            "partition_assignment_strategy": tuple(_AIOKAFKA_CLASSES[each] for each in strategy.split(",")),
            "heartbeat_interval_ms": 200,
        }
        self._consumer = aio_kafka.RecordingConsumer(topic, history=history, who=who, **settings | more)
        self._started = False

    async def poll(self) -> list[Position]:
        if not self._started:
            await self._consumer.start()
            self._started = True
        found = await self._consumer.getmany(timeout_ms=100)
        if found:
            try:
                await self._consumer.commit()
            except (aiokafka.errors.CommitFailedError, aiokafka.errors.IllegalStateError):
                pass  # the group is changing; the next owner has these offsets too
            except aiokafka.errors.KafkaError as failed:
                if not failed.retriable:
                    raise
        return [(each.partition, each.offset) for records in found.values() for each in records]

    async def owned(self) -> frozenset[TopicPartition]:
        return frozenset(TopicPartition(each.topic, each.partition) for each in self._consumer.assignment())

    async def close(self) -> None:
        await self._consumer.stop()


class Ours(Blocking):
    """Ottla's own."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        group: str,
        history: History,
        strategy: str = "range",
        *,
        who: str = "ours",
        **more: Any,
    ) -> None:
        settings = _settings(bootstrap, group, strategy, more)
        super().__init__(ours.RecordingConsumer(settings, history, who))
        wanted: Any = [topic]
        if topic.startswith("^"):
            pattern = re.compile(topic)
            wanted = SubscriptionPattern(topic) if settings.get("group.protocol") == "consumer" else pattern
        self._consumer.subscribe(wanted)

    def _poll(self) -> list[Position]:
        records = self._consumer.poll(0.1)
        if records:
            try:
                self._consumer.commit(timeout_s=20)
            except (CommitFailedError, TimeoutError):
                pass  # the next commit, or the next owner's, has these offsets too
            except ottla.KafkaError as failed:
                if not failed.retriable:
                    raise
        return [(each.partition, each.offset) for each in records]


class Java:
    """Apache Kafka's own client, in a JVM of its own. Its events come into the history when they are heard of."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        group: str,
        history: History,
        strategy: str = "range",
        *,
        who: str = "java",
        **more: Any,
    ) -> None:
        self._process = subprocess.Popen(
            java_command(bootstrap, topic, group, strategy, who=who, **more),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        self._history = history
        self._has: frozenset[TopicPartition] = frozenset()

    async def poll(self) -> list[Position]:
        """One line of what it says."""
        assert self._process.stdout is not None
        line = await asyncio.to_thread(self._process.stdout.readline)
        what, _, _ = line.strip().partition(" ")
        if what == "HAS":
            self._has = partitions_of(line)
        elif what == "NOTE":
            return self._noted(line)
        elif not line:
            raise AssertionError(f"the Java member ended: {self._process.wait(10)}")
        return []

    def _noted(self, line: str) -> list[Position]:
        event = event_of(line)
        self._history.add(event.who, event.fact, event.at_s)
        if isinstance(event.fact, Polled):
            return [(read.tp.partition, read.offset) for read in event.fact.records]
        return []

    async def owned(self) -> frozenset[TopicPartition]:
        return self._has

    async def close(self) -> None:
        rest, _ = await asyncio.to_thread(self._process.communicate, "\n", 30)
        for line in rest.splitlines():
            if line.startswith("NOTE "):
                self._noted(line)


def java_command(bootstrap: str, topic: str, group: str, strategy: str, *, who: str, **more: Any) -> list[str]:
    """What starts a member of Java's."""
    chosen = strategy
    if more.get("group_protocol") != "consumer":
        chosen = ",".join(_JAVA_CLASSES[each] for each in strategy.split(","))
    settings = _settings(bootstrap, group, chosen, more)
    settings["enable.auto.commit"] = "false"
    del settings["bootstrap.servers"]
    flags = ["-Xmx128M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    flags += ["-Dorg.slf4j.simpleLogger.defaultLogLevel=off", "-cp", f"{apache.jars()}/*:{java_classes('Member')}"]
    said = [f"{key}={value}" for key, value in settings.items()]
    return [apache.java(), *flags, "Member", who, bootstrap, topic, *said]


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
        owned = [await member.owned() for member in self._tasks]
        return [{tp.partition for tp in found} for found in owned if found]

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


async def read_while_they_leave(members: Group, bootstrap: str, topic: str, history: History) -> None:
    """Everything is read once, whoever of the members has left."""
    for count in range(1, members.size + 1):
        await members.wait_for(members.settled)
        sizes = [len(share) for share in await members.shares()]
        assert max(sizes) - min(sizes) <= 1
        produce(bootstrap, topic, 10, history, count)
        await members.wait_for(lambda: all_there(members.seen, count * 10))  # noqa: B023
        await members.leave()
    assert set(members.seen.values()) == {1}
