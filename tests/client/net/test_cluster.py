"""One view of the cluster for several clients: what each tracks, what is made once, and who ends with whom."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from ottla import AsyncProducer, InternalError
from ottla.client.config.producer import producer_config
from ottla.client.core.intents import Channel
from ottla.client.errors import DisconnectedError, KafkaError, RequestTimeoutError
from ottla.client.net.cluster import Cluster
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.metadata import MetadataResponse
from tests.client.blame import blames
from tests.client.conftest import Watchdog
from tests.client.fake_kafka import NODE_ID
from tests.client.scripted_broker import Hold, ScriptedBroker, instead, silence

_FAULT = ZeroDivisionError("nobody expects this")


@asynccontextmanager
async def cluster_of(broker: ScriptedBroker, **config: object) -> AsyncIterator[Cluster]:
    cluster = Cluster(producer_config({**broker.config(), **config}), random.Random(0), auto_create_topics=True)
    try:
        yield cluster
    finally:
        await cluster.close()


@asynccontextmanager
async def two_producers(broker: ScriptedBroker) -> AsyncIterator[tuple[Cluster, AsyncProducer, AsyncProducer]]:
    async with cluster_of(broker) as cluster:
        first, second = (AsyncProducer(broker.config({"linger.ms": 0}), cluster=cluster) for _ in range(2))
        try:
            yield cluster, first, second
        finally:
            await first.close(0)
            await second.close(0)


async def write(producer: AsyncProducer, topic: str, value: bytes) -> None:
    await (await producer.send(topic, value))


def topics_asked(broker: ScriptedBroker, *, creating: bool) -> list[str]:
    """The names in all metadata requests that may make topics, or that may not."""
    return [
        topic.name
        for request in broker.asked(ApiKey.METADATA)
        if request.allow_auto_topic_creation == creating
        for topic in request.topics or ()
    ]


async def test_two_producers_share_connections_and_topics(watchdog: Watchdog) -> None:
    async with watchdog(), ScriptedBroker({"t": 1}) as broker, two_producers(broker) as (_, first, second):
        await write(first, "t", b"1")
        asked = len(broker.asked(ApiKey.METADATA))
        await write(second, "t", b"2")
        assert broker.kafka.log("t").values() == [b"1", b"2"]
        assert len(broker.asked(ApiKey.METADATA)) == asked  # it was known
        assert len({each.connection for each in broker.requests if each.api is ApiKey.PRODUCE}) == 1


async def test_a_topic_that_two_producers_want_is_made_once(watchdog: Watchdog) -> None:
    async with watchdog(), ScriptedBroker() as broker, two_producers(broker) as (cluster, first, second):
        await asyncio.gather(write(first, "new", b"1"), write(second, "new", b"2"))
        assert sorted(v or b"" for v in broker.kafka.log("new").values()) == [b"1", b"2"]
        broker.kafka.delete("new")
        for _ in range(2):
            await cluster.refreshed()
        assert "new" not in broker.kafka.topics  # nobody has written to it since
        assert topics_asked(broker, creating=False).count("new") >= 2


async def test_what_one_producer_gives_up_the_other_may_go_on_with(watchdog: Watchdog) -> None:
    """As after `metadata.max.idle.ms` of the one."""
    async with watchdog(), ScriptedBroker({"t": 1}) as broker, two_producers(broker) as (cluster, first, second):
        await write(first, "t", b"1")
        await write(second, "t", b"2")
        cluster.untrack(["t"])
        await write(second, "t", b"3")
        await write(first, "t", b"4")
        assert broker.kafka.log("t").values() == [b"1", b"2", b"3", b"4"]


async def test_a_producer_that_is_closed_leaves_the_cluster_to_the_other(watchdog: Watchdog) -> None:
    async with watchdog(), ScriptedBroker({"t": 1}) as broker, two_producers(broker) as (cluster, first, second):
        await write(first, "t", b"1")
        await first.close()
        await write(second, "t", b"2")
        assert cluster.supervisor.failure is None


async def test_a_fault_of_the_cluster_ends_all_its_clients(watchdog: Watchdog) -> None:
    async with watchdog(), ScriptedBroker({"t": 1}) as broker, two_producers(broker) as (cluster, first, second):
        held = Hold(silence)
        broker.always(ApiKey.PRODUCE, held)
        open_ones = [await producer.send("t", b"v") for producer in (first, second)]
        await held.reached.wait()
        cluster.supervisor.crash(_FAULT)
        for delivery in open_ones:
            with pytest.raises(InternalError) as caught:
                await delivery
            assert blames(caught.value, _FAULT)
        for producer in (first, second):
            with pytest.raises(InternalError):
                await producer.flush()


async def test_whoever_waits_for_the_cluster_hears_of_its_end(watchdog: Watchdog) -> None:
    async with watchdog(), ScriptedBroker() as broker, cluster_of(broker) as cluster:
        broker.always(ApiKey.API_VERSIONS, silence)
        await cluster.start()
        waiting = [
            asyncio.ensure_future(each)
            for each in (cluster.refreshed(), cluster.ensure_metadata(60_000), cluster.connection(-1))
        ]
        await broker.saw(ApiKey.API_VERSIONS)
        cluster.supervisor.crash(_FAULT)
        await asyncio.wait(waiting)
        for each in waiting:
            error = each.exception()
            assert isinstance(error, InternalError)
            assert error.__cause__ is _FAULT
        with pytest.raises(InternalError):
            await cluster.start()


async def test_a_listener_that_raises_ends_the_client_loudly(watchdog: Watchdog) -> None:
    async with watchdog(), ScriptedBroker() as broker, cluster_of(broker) as cluster:
        cluster.on_update(lambda before, after: 1 // 0)
        await cluster.start()
        with pytest.raises(InternalError) as caught:
            await cluster.refreshed()
        assert isinstance(caught.value.__cause__, ZeroDivisionError)


async def test_topics_are_tracked_until_they_are_given_up(watchdog: Watchdog) -> None:
    async with watchdog(), ScriptedBroker({"a": 1, "b": 1}) as broker, cluster_of(broker) as cluster:
        await cluster.start()
        assert cluster.track(["a", "b"])
        await cluster.refreshed()
        assert not cluster.track(["a"])
        assert set(cluster.snapshot.topics) == {"a", "b"}
        cluster.untrack(["a", "never tracked"])
        assert set(cluster.snapshot.topics) == {"b"}
        await cluster.refreshed()
        assert set(cluster.snapshot.topics) == {"b"}
        assert {topic.name for topic in broker.asked(ApiKey.METADATA)[-1].topics} == {"b"}


async def test_a_topic_that_is_given_up_stays_known_while_all_topics_are_followed(watchdog: Watchdog) -> None:
    """A pattern is matched with all topics. One that no partition is read of must go on matching."""
    async with watchdog(), ScriptedBroker({"a": 1, "b": 1}) as broker, cluster_of(broker) as cluster:
        cluster.follow_all_topics(True, by=broker)
        await cluster.start()
        cluster.track(["a"])
        await cluster.refreshed()
        cluster.untrack(["a"])
        assert set(cluster.snapshot.topics) == {"a", "b"}


async def test_a_topic_that_is_given_up_while_it_is_asked_for_stays_unknown(watchdog: Watchdog) -> None:
    async with watchdog(), ScriptedBroker({"t": 1}) as broker, cluster_of(broker) as cluster:
        await cluster.start()
        await cluster.refreshed()
        held = Hold()
        broker.script(ApiKey.METADATA, held)
        cluster.track(["t"])
        refreshed = asyncio.ensure_future(cluster.refreshed())
        await held.reached.wait()
        cluster.untrack(["t"])
        held.release()
        await refreshed
        assert "t" not in cluster.snapshot.topics


async def test_a_bad_name_among_good_ones_changes_nothing(watchdog: Watchdog) -> None:
    async with watchdog(), ScriptedBroker({"t": 1}) as broker, cluster_of(broker) as cluster:
        await cluster.start()
        with pytest.raises(KafkaError, match="INVALID_TOPIC_EXCEPTION"):
            cluster.track(["t", "no topic"])
        await cluster.refreshed()
        assert cluster.snapshot.topics == {}


async def test_a_look_up_keeps_nothing_and_makes_nothing(watchdog: Watchdog) -> None:
    async with watchdog(), ScriptedBroker({"a": 1, "b": 2}) as broker, cluster_of(broker) as cluster:
        await cluster.start()
        cluster.track(["a"])
        await cluster.refreshed()
        assert set((await cluster.look_up(None)).topics) == {"a", "b"}
        found = await cluster.look_up(["b", "missing"])
        assert (set(found.topics), set(found.topic_errors)) == ({"b"}, {"missing"})
        assert set(cluster.snapshot.topics) == {"a"}
        assert set(broker.kafka.topics) == {"a", "b"}


async def test_a_connection_that_opens_while_the_client_begins_again_is_closed(watchdog: Watchdog) -> None:
    """REBOOTSTRAP_REQUIRED: the brokers are forgotten, and so nobody would ever close it."""
    held = Hold()
    async with watchdog(), ScriptedBroker() as broker:
        async with cluster_of(broker) as cluster:
            await cluster.start()
            await cluster.ensure_metadata(60_000)
            broker.script(ApiKey.API_VERSIONS, held)
            opening = asyncio.ensure_future(cluster.connection(NODE_ID, Channel.FETCH))
            await held.reached.wait()
            broker.script(ApiKey.METADATA, instead(MetadataResponse(error_code=ErrorCode.REBOOTSTRAP_REQUIRED)))
            await cluster.refreshed()
            held.release()
            (error,) = await asyncio.gather(opening, return_exceptions=True)
        await broker.deserted()
    assert isinstance(error, DisconnectedError)
    assert "the client begins again from bootstrap.servers" in str(error)


async def test_a_time_of_nothing_is_no_time(watchdog: Watchdog) -> None:
    async with watchdog(), ScriptedBroker() as broker, cluster_of(broker) as cluster:
        await cluster.start()
        await cluster.ensure_metadata(60_000)
        broker.always(ApiKey.METADATA, silence)
        with pytest.raises(RequestTimeoutError):
            await cluster.refreshed(0)
        broker.always(ApiKey.FIND_COORDINATOR, silence)
        request = broker.asked(ApiKey.METADATA)[0]
        with pytest.raises((RequestTimeoutError, DisconnectedError)):
            await cluster.request(NODE_ID, ApiKey.METADATA, request, timeout_ms=0)
