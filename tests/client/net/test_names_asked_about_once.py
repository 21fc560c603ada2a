"""A name that no topic has is asked about while somebody needs it, and not a second longer.

It would be asked about every second for as long as the client lives, and a producer would make the topic of a mistyped
name whenever the brokers begin to allow it.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from ottla import AsyncAdmin, RequestTimeoutError, TopicPartition
from ottla.client.admin.types import OffsetSpec
from ottla.client.config.producer import producer_config
from ottla.client.net.cluster import Cluster
from ottla.wire.apis import ApiKey
from tests.client.conftest import Watchdog
from tests.client.moved_time import MovableLoop, in_moved_time
from tests.client.scripted_broker import Hold, ScriptedBroker

_GONE = TopicPartition("gone", 0)
_FIVE_MINUTES_S = 301.0
Call = Callable[[AsyncAdmin], Awaitable[object]]


@asynccontextmanager
async def cluster_of(broker: ScriptedBroker) -> AsyncIterator[Cluster]:
    cluster = Cluster(producer_config(broker.config()), random.Random(1), auto_create_topics=True)
    await cluster.start()
    try:
        yield cluster
    finally:
        await cluster.close()


async def seconds_pass(loop: MovableLoop, seconds: int) -> None:
    for _ in range(seconds):
        await loop.move(1)


async def minutes_pass(loop: MovableLoop) -> None:
    for _ in range(3):
        await loop.move(_FIVE_MINUTES_S)


def named(broker: ScriptedBroker, since: int) -> set[str | None]:
    """The names in all metadata requests but the first `since`."""
    return {topic.name for request in broker.asked(ApiKey.METADATA)[since:] for topic in request.topics or ()}


async def asked_later(loop: MovableLoop, broker: ScriptedBroker) -> set[str | None]:
    """The names that are still asked about after what is on its way now."""
    await loop.move(1)
    asked = len(broker.asked(ApiKey.METADATA))
    await minutes_pass(loop)
    assert len(broker.asked(ApiKey.METADATA)) > asked
    return named(broker, asked)


def test_a_producer_does_not_make_the_topic_of_a_mistyped_name_later() -> None:
    async def test(loop: MovableLoop) -> None:
        async with ScriptedBroker({"t": 1}) as broker, broker.producer({"max.block.ms": 5_000}) as producer:
            broker.kafka.auto_create = False
            sending = asyncio.ensure_future(producer.send("typo", b"v"))
            await seconds_pass(loop, 6)
            with pytest.raises(RequestTimeoutError, match="metadata of topic typo"):
                await sending
            broker.kafka.auto_create = True
            assert await asked_later(loop, broker) == set()
            assert "typo" not in broker.kafka.topics
            await (await producer.send("typo", b"v"))  # now it is meant
            assert broker.kafka.log("typo").values() == [b"v"]

    in_moved_time(test)


def test_a_name_is_asked_about_until_the_last_record_stops_waiting_for_it() -> None:
    async def test(loop: MovableLoop) -> None:
        async with ScriptedBroker() as broker, broker.producer({"max.block.ms": 5_000}) as producer:
            broker.kafka.auto_create = False
            first = asyncio.ensure_future(producer.send("new", b"1"))
            await seconds_pass(loop, 3)
            given_up, last = (asyncio.ensure_future(producer.send("new", value)) for value in (b"2", b"3"))
            await loop.move(0)
            given_up.cancel()
            await seconds_pass(loop, 3)
            with pytest.raises(RequestTimeoutError):
                await first
            broker.kafka.create("new")
            await loop.move(1)
            await (await last)
            assert broker.kafka.log("new").values() == [b"3"]
            assert await asked_later(loop, broker) == set(), "it is not used, and forgotten like any other topic"

    in_moved_time(test)


_LOOKUPS: dict[str, Call] = {
    "list_offsets": lambda admin: admin.list_offsets({_GONE: OffsetSpec.LATEST}),
    "delete_records": lambda admin: admin.delete_records({_GONE: 1}),
    "describe_producers": lambda admin: admin.describe_producers([_GONE]),
}


@pytest.mark.parametrize("call", _LOOKUPS.values(), ids=_LOOKUPS.keys())
def test_a_lookup_of_an_admin_leaves_no_name_behind(call: Call) -> None:
    async def test(loop: MovableLoop) -> None:
        async with ScriptedBroker() as broker, AsyncAdmin(broker.config({"default.api.timeout.ms": 5_000})) as admin:
            looking = asyncio.ensure_future(call(admin))
            await seconds_pass(loop, 6)
            with pytest.raises(RequestTimeoutError, match="UNKNOWN_TOPIC_OR_PARTITION"):
                await looking
            assert await asked_later(loop, broker) == set()

    in_moved_time(test)


@pytest.mark.parametrize("call", _LOOKUPS.values(), ids=_LOOKUPS.keys())
def test_a_lookup_of_an_admin_waits_for_a_topic_that_is_made(call: Call) -> None:
    async def test(loop: MovableLoop) -> None:
        async with ScriptedBroker() as broker, AsyncAdmin(broker.config()) as admin:
            for api in (ApiKey.DELETE_RECORDS, ApiKey.DESCRIBE_PRODUCERS):
                broker.always(api, Hold())
            looking = asyncio.ensure_future(call(admin))
            await seconds_pass(loop, 3)
            broker.kafka.create("gone")
            await seconds_pass(loop, 2)
            apis = (ApiKey.LIST_OFFSETS, ApiKey.DELETE_RECORDS, ApiKey.DESCRIBE_PRODUCERS)
            assert sum(len(broker.asked(api)) for api in apis) == 1
            looking.cancel()

    in_moved_time(test)


def test_lags_in_a_deleted_topic_leave_no_name_behind() -> None:
    async def test(loop: MovableLoop) -> None:
        async with ScriptedBroker({"t": 1}) as broker, AsyncAdmin(broker.config()) as admin:
            kept = TopicPartition("t", 0)
            broker.kafka.write(kept, b"v")
            for _ in range(2):
                lags = await admin.list_group_lags("g", [kept, _GONE])
                assert {tp: lag.end_offset for tp, lag in lags.items()} == {kept: 1, _GONE: None}
            assert await asked_later(loop, broker) == {"t"}
            broker.kafka.delete("t")
            await minutes_pass(loop)
            assert await asked_later(loop, broker) == set(), "nobody needs it, and it is not there any more"

    in_moved_time(test)


def test_what_a_client_that_has_ended_has_waited_for_is_forgotten() -> None:
    async def test(loop: MovableLoop) -> None:
        async with ScriptedBroker({"t": 1}) as broker, cluster_of(broker) as cluster:
            broker.kafka.auto_create = False
            for client, topics in (("first", ["t", "typo"]), ("second", ["typo", "other"])):
                cluster.track(topics, by=client)
            await cluster.refreshed()
            cluster.leave("first")
            assert await asked_later(loop, broker) == {"t", "typo", "other"}
            cluster.leave("second")
            broker.kafka.auto_create = True
            assert await asked_later(loop, broker) == {"t"}
            assert set(broker.kafka.topics) == {"t"}
            assert cluster.snapshot.topic_errors == {}

    in_moved_time(test)


async def test_a_block_that_tracks_a_topic_says_whether_it_is_new(watchdog: Watchdog) -> None:
    async with watchdog(), ScriptedBroker({"t": 1}) as broker, cluster_of(broker) as cluster:
        for expected in (True, False):
            with cluster.tracking(["t"]) as is_new:
                assert is_new is expected
                await cluster.refreshed()
        assert set(cluster.snapshot.topics) == {"t"}, "the next lookup need not wait for metadata"
