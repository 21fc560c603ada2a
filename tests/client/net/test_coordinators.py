"""Where coordinators are (SPEC G1): one lookup for all who ask, and it goes on when they stop waiting."""

import asyncio
import random

import pytest

from ottla.client.config.producer import producer_config
from ottla.client.core.intents import CoordinatorKind
from ottla.client.errors import KafkaError
from ottla.client.net.cluster import Cluster
from ottla.client.net.coordinators import Coordinators
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from tests.client.conftest import Watchdog
from tests.client.scripted_broker import Hold, ScriptedBroker, instead

GROUP = (CoordinatorKind.GROUP, "g")
REFUSED = FindCoordinatorResponse(
    coordinators=(Coordinator("g", -1, "", -1, ErrorCode.GROUP_AUTHORIZATION_FAILED, None),)
)


async def _three_ask(broker: ScriptedBroker, coordinators: Coordinators) -> list[asyncio.Task[int]]:
    calls = [asyncio.ensure_future(coordinators.find(*GROUP)) for _ in range(3)]
    await broker.saw(ApiKey.FIND_COORDINATOR)
    return calls


async def test_those_who_stop_waiting_do_not_end_the_lookup(watchdog: Watchdog) -> None:
    async with watchdog(), ScriptedBroker() as broker:
        cluster = Cluster(producer_config(broker.config()), random.Random(0))
        coordinators, found = Coordinators(cluster), Hold()
        broker.script(ApiKey.FIND_COORDINATOR, found)
        for call in await _three_ask(broker, coordinators):
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
        found.release()
        assert await coordinators.find(*GROUP) >= 0
        assert len(broker.asked(ApiKey.FIND_COORDINATOR)) == 1
        await cluster.close()


async def test_a_lookup_that_fails_fails_for_all_who_wait_and_the_next_one_begins_anew(watchdog: Watchdog) -> None:
    async with watchdog(), ScriptedBroker() as broker:
        cluster = Cluster(producer_config(broker.config()), random.Random(0))
        coordinators, found = Coordinators(cluster), Hold(instead(REFUSED))
        broker.script(ApiKey.FIND_COORDINATOR, found)
        calls = await _three_ask(broker, coordinators)
        found.release()
        for call in calls:
            with pytest.raises(KafkaError, match="GROUP_AUTHORIZATION_FAILED"):
                await call
        assert await coordinators.find(*GROUP) >= 0
        assert len(broker.asked(ApiKey.FIND_COORDINATOR)) == 2
        await cluster.close()


async def test_what_is_forgotten_during_a_lookup_is_looked_up_again(watchdog: Watchdog) -> None:
    async with watchdog(), ScriptedBroker() as broker:
        cluster = Cluster(producer_config(broker.config()), random.Random(0))
        coordinators, found = Coordinators(cluster), Hold()
        broker.script(ApiKey.FIND_COORDINATOR, found)
        calls = await _three_ask(broker, coordinators)
        coordinators.forget(*GROUP)
        calls.append(asyncio.ensure_future(coordinators.find(*GROUP)))
        await broker.saw(ApiKey.FIND_COORDINATOR, 2)
        found.release()
        assert len({await call for call in calls}) == 1
        await cluster.close()


async def test_clients_that_share_a_cluster_know_what_one_of_them_has_found(watchdog: Watchdog) -> None:
    """A slot of the Spark sink has a producer of its own, and asked for its coordinator each time."""
    async with watchdog(), ScriptedBroker() as broker:
        cluster = Cluster(producer_config(broker.config()), random.Random(0))
        first, second = Coordinators(cluster), Coordinators(cluster)
        assert await first.find(*GROUP) == await second.find(*GROUP)
        assert len(broker.asked(ApiKey.FIND_COORDINATOR)) == 1
        second.forget(*GROUP)
        assert await first.find(*GROUP) >= 0
        assert len(broker.asked(ApiKey.FIND_COORDINATOR)) == 2
        await cluster.close()
