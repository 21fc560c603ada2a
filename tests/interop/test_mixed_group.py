"""One group, four clients that know nothing of each other: librdkafka, kafka-python, aiokafka and ours."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import pytest
from aiokafka.coordinator.assignors.range import RangePartitionAssignor as AioKafkaRange
from confluent_kafka.admin import AdminClient, NewTopic
from kafka.coordinator.assignors.range import RangePartitionAssignor as KafkaPythonRange

from ottla import TopicPartition
from ottla.testing import History
from tests.recording import aio_kafka, kafka_python, librdkafka, ours
from tests.recording.final import assert_good, note_logs, note_positions

pytestmark = pytest.mark.interop

_PARTITIONS = 8
_WAIT_S = 60.0

Position = tuple[int, int]


class Member(Protocol):
    """One client in the group; each poll commits what it returns."""

    async def poll(self) -> list[Position]:
        """The (partition, offset) of what came."""

    async def partitions(self) -> set[int]:
        """What it has now."""

    async def close(self) -> None:
        """Leave the group."""


def _settings(bootstrap: str, group: str) -> dict[str, Any]:
    """For the clients that speak Kafka's keys."""
    return {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "partition.assignment.strategy": "range",
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

    def __init__(self, bootstrap: str, topic: str, group: str, history: History) -> None:
        super().__init__(librdkafka.RecordingConsumer(_settings(bootstrap, group), history, "librdkafka"))
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

    def __init__(self, bootstrap: str, topic: str, group: str, history: History) -> None:
        super().__init__(ours.RecordingConsumer(_settings(bootstrap, group), history, "ours"))
        self._consumer.subscribe([topic])

    async def poll(self) -> list[Position]:
        records = await asyncio.to_thread(self._consumer.poll, 0.1)
        if records:
            await asyncio.to_thread(self._consumer.commit)
        return [(each.partition, each.offset) for each in records]


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
        ) == list(range(_PARTITIONS))


def _produce(bootstrap: str, topic: str, each: int, history: History, turn: int) -> None:
    producer = librdkafka.RecordingProducer({"bootstrap.servers": bootstrap}, history, f"producer {turn}")
    for partition in range(_PARTITIONS):
        for number in range(each):
            producer.produce(topic, b"%d %d %d" % (turn, partition, number), partition=partition)
    assert producer.flush(30) == 0


async def test_g11_four_kinds_of_client_share_one_group(any_broker: str, fresh: Callable[[str], str]) -> None:
    topic, group, history = fresh("mixed"), fresh("mixed-group"), History()
    admin = AdminClient({"bootstrap.servers": any_broker})
    admin.create_topics([NewTopic(topic, _PARTITIONS, 1)])[topic].result(30)
    group_of_four = Group(
        [kind(any_broker, topic, group, history) for kind in (Librdkafka, KafkaPython, AioKafka, Ours)]
    )
    for count in range(1, 5):
        await group_of_four.wait_for(group_of_four.settled)
        sizes = [len(share) for share in await group_of_four.shares()]
        assert max(sizes) - min(sizes) <= 1
        _produce(any_broker, topic, 10, history, count)
        await group_of_four.wait_for(lambda: _all_there(group_of_four.seen, count * 10))  # noqa: B023
        await group_of_four.leave()
    assert set(group_of_four.seen.values()) == {1}
    note_logs(history, any_broker, {topic: _PARTITIONS})
    note_positions(history, any_broker, group)
    history.drained(group, [TopicPartition(topic, number) for number in range(_PARTITIONS)], read_committed=False)
    assert_good(history)


async def _all_there(seen: Counter[Position], each: int) -> bool:
    return set(seen) == {(partition, offset) for partition in range(_PARTITIONS) for offset in range(each)}
