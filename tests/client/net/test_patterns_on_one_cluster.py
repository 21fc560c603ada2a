"""Several clients of one cluster object follow all topics, each for a pattern of its own, until the last one stops."""

import random
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ottla import AsyncConsumer
from ottla.client.config.producer import producer_config
from ottla.client.net.cluster import Cluster
from ottla.wire.apis import ApiKey
from tests.client.conftest import Watchdog
from tests.client.scripted_broker import Hold, ScriptedBroker


@asynccontextmanager
async def cluster_of(broker: ScriptedBroker) -> AsyncIterator[Cluster]:
    cluster = Cluster(producer_config(broker.config()), random.Random(0))
    await cluster.start()
    try:
        yield cluster
    finally:
        await cluster.close()


async def test_a_consumer_that_unsubscribes_leaves_the_others_their_patterns(watchdog: Watchdog) -> None:
    async with watchdog(), ScriptedBroker({"a1": 1, "b1": 1}) as broker, cluster_of(broker) as cluster:
        first, second = (AsyncConsumer(broker.config({"group.id": group}), cluster=cluster) for group in "ab")
        for consumer, pattern in ((first, "a.*"), (second, "b.*")):
            consumer.subscribe(re.compile(pattern))
        await cluster.refreshed()
        assert first.subscription() == {"a1"}
        assert second.subscription() == {"b1"}
        await first.unsubscribe()
        broker.kafka.create("b2")
        await cluster.refreshed()
        assert second.subscription() == {"b1", "b2"}
        first.subscribe(["a1"])
        broker.kafka.create("b3")
        await cluster.refreshed()
        assert second.subscription() == {"b1", "b2", "b3"}
        for consumer in (first, second):
            await consumer.close()


async def test_all_topics_are_followed_until_the_last_one_stops(watchdog: Watchdog) -> None:
    async with watchdog(), ScriptedBroker({"a": 1, "b": 1, "c": 1}) as broker, cluster_of(broker) as cluster:
        first, second, other = "first", "second", "other"
        cluster.track(["a"], by=other)
        for each in (first, second, first):
            cluster.follow_all_topics(True, by=each)
        await cluster.refreshed()
        cluster.follow_all_topics(False, by=first)
        cluster.follow_all_topics(False, by=other)
        await cluster.refreshed()
        assert broker.asked(ApiKey.METADATA)[-1].topics is None
        assert set(cluster.snapshot.topics) == {"a", "b", "c"}
        cluster.leave(second)
        assert set(cluster.snapshot.topics) == {"a"}, "nobody would hear of the others' new leaders"
        await cluster.refreshed()
        assert [topic.name for topic in broker.asked(ApiKey.METADATA)[-1].topics] == ["a"]


async def test_an_answer_about_all_topics_that_comes_too_late_brings_none_back(watchdog: Watchdog) -> None:
    async with watchdog(), ScriptedBroker({"a": 1, "b": 1}) as broker, cluster_of(broker) as cluster:
        cluster.track(["a"], by="other")
        await cluster.refreshed()
        held = Hold()
        broker.script(ApiKey.METADATA, held)
        cluster.follow_all_topics(True, by="follower")
        cluster.request_update()
        await held.reached.wait()
        cluster.leave("follower")
        held.release()
        await cluster.refreshed()
        assert set(cluster.snapshot.topics) == {"a"}
