"""Requests to a coordinator that is known and connected: without a task, and otherwise as the others."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ottla.client.core import intents
from ottla.client.core.intents import Ask, Coordinator, CoordinatorKind
from ottla.client.errors import DisconnectedError, UnsupportedVersionError
from ottla.wire.apis import ApiKey
from ottla.wire.messages.heartbeat import HeartbeatRequest
from tests.client.conftest import Watchdog
from tests.client.fake_kafka import NODE_ID
from tests.client.scripted_broker import Hold, hang_up
from tests.client.shell.small import PATIENCE_MS, Shell, ask, connected_shell

GROUP = Coordinator(CoordinatorKind.GROUP, "g")
#: It is found anew for this one.
OTHER = Coordinator(CoordinatorKind.GROUP, "other")


@asynccontextmanager
async def known_coordinator() -> AsyncIterator[Shell]:
    """The group's coordinator has answered a request."""
    async with connected_shell() as it:
        it.do(ask("first", GROUP))
        assert (await it.core.saw("answered"))[1] == "first"
        it.core.events.clear()
        yield it


def in_flight(it: Shell) -> int:
    connection = it.cluster.open_connection(NODE_ID)
    return 0 if connection is None else connection.in_flight


async def test_it_is_sent_in_the_same_turn_and_answered_once(watchdog: Watchdog) -> None:
    async with watchdog(), known_coordinator() as it:
        before = in_flight(it)
        it.do(ask("second", GROUP))
        assert in_flight(it) == before + 1
        assert (await it.core.saw("answered"))[1] == "second"
        assert it.core.names() == ["do", "answered"]


async def test_it_does_not_overtake_one_whose_coordinator_is_being_found(watchdog: Watchdog) -> None:
    async with watchdog(), known_coordinator() as it:
        found = Hold()
        it.broker.script(ApiKey.FIND_COORDINATOR, found)
        it.do(ask("early", OTHER))
        await found.reached.wait()
        it.do(ask("late", GROUP))
        assert in_flight(it) == 1  # FindCoordinator
        found.release()
        while it.core.names().count("answered") < 2:
            it.core.news.clear()
            await it.core.news.wait()


async def test_what_was_given_up_does_not_come_back(watchdog: Watchdog) -> None:
    async with watchdog(), known_coordinator() as it:
        held = Hold()
        it.broker.script(ApiKey.METADATA, held)
        ticket = "given up"
        it.do(ask(ticket, GROUP))
        await held.reached.wait()
        it.do(intents.GiveUp(ticket))
        it.do(ask("behind", GROUP))
        held.release()
        await it.core.saw("answered")
        assert [event[1] for event in it.core.events if event[0] == "answered"] == ["behind"]


async def test_what_was_given_up_as_soon_as_it_failed_does_not_come_back(watchdog: Watchdog) -> None:
    async with watchdog(), known_coordinator() as it:
        it.core.intend(ask("given up", GROUP, least=99))
        it.core.intend(intents.GiveUp("given up"))
        it.driver.feed(it.core.woken)
        assert it.core.names() == ["woken"]


async def test_a_lost_connection_makes_it_be_found_again(watchdog: Watchdog) -> None:
    async with watchdog(), known_coordinator() as it:
        asked = len(it.broker.asked(ApiKey.FIND_COORDINATOR))
        it.broker.script(ApiKey.METADATA, hang_up)
        it.do(ask("lost", GROUP))
        _, ticket, error = await it.core.saw("failed")
        assert ticket == "lost"
        assert isinstance(error, DisconnectedError)
        it.do(ask("again", GROUP))
        assert (await it.core.saw("answered"))[1] == "again"
        assert len(it.broker.asked(ApiKey.FIND_COORDINATOR)) == asked + 1


async def test_a_version_that_nobody_speaks_fails_it_alone(watchdog: Watchdog) -> None:
    async with watchdog(), known_coordinator() as it:
        it.do(Ask("old", GROUP, ApiKey.HEARTBEAT, HeartbeatRequest("g", 1, "m"), PATIENCE_MS, least=99))
        _, ticket, error = await it.core.saw("failed")
        assert ticket == "old"
        assert isinstance(error, UnsupportedVersionError)
        it.do(ask("good", GROUP))
        assert (await it.core.saw("answered"))[1] == "good"
