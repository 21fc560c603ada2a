"""A group of our consumers on our broker, both in the test's own loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from ottla import AsyncAdmin, AsyncConsumer, AsyncProducer, ConsumerRecord, NewTopic, TopicPartition
from ottla.testing.in_loop import AsyncBroker

PATIENCE_S = 60.0


class LiveGroup:
    """Consumers of group `g`; `taken`, `revoked` and `lost` are what their callbacks were told, per member."""

    def __init__(self, broker: AsyncBroker) -> None:
        self.broker = broker
        self.members: dict[str, AsyncConsumer] = {}
        self.revoked: dict[str, list[TopicPartition]] = {}
        self.taken: dict[str, list[TopicPartition]] = {}
        self.lost: dict[str, list[TopicPartition]] = {}
        self.read: dict[str, list[ConsumerRecord]] = {}

    @property
    def servers(self) -> dict[str, object]:
        """Where the broker is, for a client of the test's own."""
        return {"bootstrap.servers": self.broker.bootstrap_servers}

    def join(self, name: str, topics: tuple[str, ...], strategy: object = "range", **more: object) -> AsyncConsumer:
        """One more member. The coordinator makes its id from its name. `more` are Kafka's keys."""
        settings: dict[str, object] = {"client.id": name, "group.id": "g", **self.servers, **more}
        if more.get("group.protocol") != "consumer":
            settings |= {"partition.assignment.strategy": strategy, "heartbeat.interval.ms": 50}
        consumer = self.members[name] = AsyncConsumer(settings | more)
        heard = (self.taken, self.revoked, self.lost)
        came, gone, lost = (notes.setdefault(name, []).extend for notes in heard)
        consumer.subscribe(list(topics), on_assigned=came, on_revoked=gone, on_lost=lost)
        return consumer

    async def leave(self, name: str) -> None:
        """It leaves, by closing."""
        await self.members.pop(name).close()

    async def close(self) -> None:
        """All leave."""
        for name in list(self.members):
            await self.leave(name)

    @property
    def has(self) -> dict[str, str]:
        """Each member's partitions in the notes' way of writing."""
        return {
            name: " ".join(f"{tp.topic}p{tp.partition}" for tp in sorted(member.assignment()))
            for name, member in sorted(self.members.items())
        }

    async def until(self, done: Callable[[], bool]) -> None:
        """Poll all members until `done`."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not done():
                    polled = await asyncio.gather(*(member.poll(0.02) for member in self.members.values()))
                    for name, records in zip(self.members, polled, strict=True):
                        self.read.setdefault(name, []).extend(records)
        except TimeoutError:
            pytest.fail(f"it did not happen; the members have {self.has}")

    async def comes_to(self, expected: Mapping[str, str]) -> None:
        """Poll until the members have what is expected."""
        await self.until(lambda: self.has == expected)

    async def write(self, topic: str, *values: bytes, partition: int = 0) -> None:
        """Records, in this order."""
        async with AsyncProducer(self.servers) as producer:
            for value in values:
                await producer.send(topic, value, partition=partition)


@asynccontextmanager
async def live_group(
    *, together: bool = False, config: Mapping[str, str] | None = None, **topics: int
) -> AsyncIterator[LiveGroup]:
    """A broker, topics, and an empty group; `together`: its first members come in one generation."""
    delay = {"group.initial.rebalance.delay.ms": "1000"} if together else {}
    async with AsyncExitStack() as stack:
        broker = await stack.enter_async_context(AsyncBroker({**delay, **(config or {})}))
        group = LiveGroup(broker)
        async with AsyncAdmin(group.servers) as admin:
            await admin.create_topics([NewTopic(name, count) for name, count in topics.items()])
        stack.push_async_callback(group.close)
        yield group
