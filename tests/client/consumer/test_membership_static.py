"""A static member that leads its group, goes, and comes back: it leads on, without dividing anew (KIP-814)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from ottla import AsyncAdmin, AsyncConsumer, NewTopic, TopicPartition
from ottla.testing.in_loop import AsyncBroker
from tests.client.conftest import Watchdog
from tests.client.scripted_broker import QUICK


@asynccontextmanager
async def member(broker: AsyncBroker, topic: str, instance_id: str) -> AsyncIterator[AsyncConsumer]:
    """A static member whose metadata is never old, subscribed to `topic`."""
    consumer = AsyncConsumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            **QUICK,
            "group.id": "g",
            "group.instance.id": instance_id,
            "metadata.max.age.ms": 5,
            "heartbeat.interval.ms": 5,
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    try:
        yield consumer
    finally:
        with suppress(Exception):
            async with asyncio.timeout(1):
                await consumer.close()


def partitions(topic: str, count: int) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(topic, number) for number in range(count))


async def has(consumer: AsyncConsumer, topic: str, count: int, *others: AsyncConsumer) -> None:
    """Poll all of them until the first has so many partitions of `topic`."""
    while consumer.assignment() != partitions(topic, count):
        for each in (consumer, *others):
            await each.poll(0.005)


@pytest.mark.parametrize("comes_back", [False, True])
async def test_a_static_leader_sees_partitions_that_are_added(watchdog: Watchdog, comes_back: bool) -> None:
    async with (
        watchdog(),
        AsyncBroker() as broker,
        AsyncAdmin({"bootstrap.servers": broker.bootstrap_servers}) as admin,
    ):
        await admin.create_topics([NewTopic("t", 2)])
        async with member(broker, "t", "leader") as leader:
            await has(leader, "t", 2)
            if not comes_back:
                await admin.create_partitions({"t": 3})
                await has(leader, "t", 3)
        if comes_back:
            async with member(broker, "t", "leader") as leader:
                await has(leader, "t", 2)
                await admin.create_partitions({"t": 3})
                await has(leader, "t", 3)


async def test_a_static_leader_that_comes_back_looks_after_the_topics_of_all_members(watchdog: Watchdog) -> None:
    async with (
        watchdog(),
        AsyncBroker() as broker,
        AsyncAdmin({"bootstrap.servers": broker.bootstrap_servers}) as admin,
    ):
        await admin.create_topics([NewTopic("mine"), NewTopic("theirs")])
        async with member(broker, "mine", "leader") as leader:
            await has(leader, "mine", 1)
            async with member(broker, "theirs", "follower") as follower:
                await has(follower, "theirs", 1, leader)
                await has(leader, "mine", 1, follower)
                await leader.close()
                async with member(broker, "mine", "leader") as back:
                    await has(back, "mine", 1, follower)
                    await admin.create_partitions({"theirs": 2})
                    await has(follower, "theirs", 2, back)
