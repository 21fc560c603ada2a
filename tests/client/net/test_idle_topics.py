"""A topic that a producer has not used for `metadata.max.idle.ms` (five minutes) is forgotten, and not made again.

A deleted topic must not come back because somebody wrote to it once; and what is used again goes on where it was.
"""

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ottla import AsyncConsumer, AsyncProducer, TopicPartition
from ottla.client.config.producer import producer_config
from ottla.client.net.cluster import Cluster
from ottla.wire.apis import ApiKey
from tests.client.conftest import Watchdog
from tests.client.moved_time import MovableLoop, in_moved_time
from tests.client.scripted_broker import ScriptedBroker

#: Both `metadata.max.age.ms` and `metadata.max.idle.ms`, and a little.
_FIVE_MINUTES_S = 301.0


@asynccontextmanager
async def cluster_of(broker: ScriptedBroker) -> AsyncIterator[Cluster]:
    cluster = Cluster(producer_config(broker.config()), random.Random(1), auto_create_topics=False)
    await cluster.start()
    try:
        yield cluster
    finally:
        await cluster.close()


async def minutes_pass(loop: MovableLoop, broker: ScriptedBroker) -> None:
    """Five minutes later metadata is asked for."""
    asked = len(broker.asked(ApiKey.METADATA))
    await loop.move(_FIVE_MINUTES_S)
    assert len(broker.asked(ApiKey.METADATA)) > asked


def test_a_topic_that_was_deleted_is_not_made_again_by_a_producer_that_is_idle() -> None:
    async def test(loop: MovableLoop) -> None:
        async with ScriptedBroker({"t": 1}) as broker, broker.producer() as producer:
            await (await producer.send("t", b"v"))
            await minutes_pass(loop, broker)
            broker.kafka.delete("t")
            await minutes_pass(loop, broker)
            await minutes_pass(loop, broker)
            assert "t" not in {topic.name for topic in broker.asked(ApiKey.METADATA)[-1].topics}
            assert "t" not in broker.kafka.topics

    in_moved_time(test)


def test_a_topic_that_was_forgotten_goes_on_with_the_next_sequence() -> None:
    """The broker remembers the producer longer than that: a sequence begun again would be taken for a repetition."""

    async def test(loop: MovableLoop) -> None:
        async with ScriptedBroker({"t": 1}) as broker, broker.producer() as producer:
            for value in (b"1", b"2"):
                await (await producer.send("t", value))
            for _ in range(3):
                await minutes_pass(loop, broker)
            offset = (await (await producer.send("t", b"3"))).offset
            assert broker.kafka.log("t").values() == [b"1", b"2", b"3"]
            assert offset == 2

    in_moved_time(test)


def test_a_topic_in_use_is_kept() -> None:
    async def test(loop: MovableLoop) -> None:
        async with ScriptedBroker({"t": 1}) as broker, broker.producer() as producer:
            for _ in range(4):
                await (await producer.send("t", b"v"))
                await loop.move(_FIVE_MINUTES_S / 2)
            assert len(broker.asked(ApiKey.METADATA)) > 1
            assert {topic.name for topic in broker.asked(ApiKey.METADATA)[-1].topics} == {"t"}

    in_moved_time(test)


def test_a_topic_that_another_client_of_the_cluster_needs_is_kept() -> None:
    async def test(loop: MovableLoop) -> None:
        async with ScriptedBroker({"t": 1}) as broker:
            config = broker.config({"linger.ms": 0})
            cluster = Cluster(AsyncProducer(config).config, random.Random(1), auto_create_topics=True)
            producer, consumer = AsyncProducer(config, cluster=cluster), AsyncConsumer(broker.config(), cluster=cluster)
            consumer.assign([TopicPartition("t", 0)])
            await consumer.poll(0)
            await (await producer.send("t", b"v"))
            for _ in range(3):
                await minutes_pass(loop, broker)
            assert {topic.name for topic in broker.asked(ApiKey.METADATA)[-1].topics} == {"t"}
            await producer.close()
            await consumer.close()
            await cluster.close()

    in_moved_time(test)


def test_a_topic_that_is_not_there_yet_is_asked_for_again_in_seconds() -> None:
    """It may be made later, or the broker that was asked has not heard of it yet (simulator, pipeline 500111)."""

    async def test(loop: MovableLoop) -> None:
        async with ScriptedBroker() as broker, cluster_of(broker) as cluster:
            cluster.track(["new"], by=broker)
            await cluster.refreshed()
            for _ in range(10):  # the pauses grow to a second, and a fifth of it
                asked = len(broker.asked(ApiKey.METADATA))
                for pause_s in (0.1, 1.5):  # the one after every answer, and the one before the next request
                    await loop.move(pause_s)
                assert 1 <= len(broker.asked(ApiKey.METADATA)) - asked <= 3
            broker.kafka.create("new", 1)
            for pause_s in (0.1, 1.5):
                await loop.move(pause_s)
            assert cluster.snapshot.partition_count("new") == 1
            asked = len(broker.asked(ApiKey.METADATA))
            await loop.move(_FIVE_MINUTES_S / 2)
            assert len(broker.asked(ApiKey.METADATA)) == asked

    in_moved_time(test)


async def test_keys_go_to_the_partitions_that_a_topic_has_now(watchdog: Watchdog) -> None:
    config = {"metadata.max.age.ms": 5, "request.timeout.ms": 500, "delivery.timeout.ms": 900}
    async with watchdog(), ScriptedBroker({"t": 8}) as broker, broker.producer(config) as producer:
        await (await producer.send("t", b"v"))
        broker.kafka.delete("t")
        broker.kafka.create("t", 1)
        asked = len(broker.asked(ApiKey.METADATA))
        await broker.saw(ApiKey.METADATA, asked + 2)  # the first of them may be on its way already
        sent = [await producer.send("t", b"v", key=b"%d" % number) for number in range(20)]
        assert {(await delivery).partition for delivery in sent} == {0}
