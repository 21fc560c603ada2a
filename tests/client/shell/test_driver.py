"""The shell around a core: events come one at a time, intents are carried out in order, and a fault ends the client."""

import asyncio
import logging
import threading
from collections.abc import Callable
from typing import NamedTuple

import pytest

from ottla.client.blocking.loop_thread import new_event_loop
from ottla.client.core import intents
from ottla.client.core.intents import AnyBroker, Ask, Broker, Channel, Finish, NotSentError
from ottla.client.errors import DisconnectedError, IllegalStateError, InternalError
from ottla.wire.apis import ApiKey
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.metadata import MetadataRequest
from tests.client.conftest import Watchdog
from tests.client.fake_kafka import NODE_ID
from tests.client.scripted_broker import Hold, hang_up, silence
from tests.client.shell.small import FAULT, PATIENCE_MS, ask, connected_shell, shell


class Note(NamedTuple):
    """An intent of these tests."""

    text: object


# events and intents


async def test_an_event_that_an_intent_causes_waits_until_the_others_are_carried_out() -> None:
    async with shell() as it:
        seen: list[object] = []

        def note(intent: Note) -> None:
            seen.append(intent.text)
            if intent.text == "first":
                it.driver.feed(it.core.do, Note("caused"))
                seen.append(it.core.names())

        it.driver.handle(Note, note)
        it.core.intend(Note("first"))
        it.core.intend(Note("second"))
        it.driver.feed(it.core.woken)
        assert seen == ["first", ["woken"], "second", "caused"]


async def test_the_lock_is_held_for_the_core_and_not_for_what_it_intends() -> None:
    lock = threading.Lock()
    held: list[bool] = []
    async with shell(lock) as it:
        it.driver.handle(Note, lambda intent: held.append(lock.locked()))

        def event(now_s: float) -> None:
            held.append(lock.locked())
            it.core.intend(Note(""))

        it.driver.feed(event)
    assert held == [True, False]
    assert not lock.locked()


@pytest.mark.parametrize("where", ["in the core", "in a handler", "an intent that nobody knows"])
async def test_a_fault_while_events_are_fed_ends_the_client_and_gives_the_lock_back(
    watchdog: Watchdog, where: str
) -> None:
    lock = threading.Lock()
    async with watchdog(), shell(lock) as it:
        waiting = asyncio.ensure_future(it.driver.call(it.core.call))
        await it.core.saw("call")
        if where == "in the core":
            it.driver.feed(it.core.fail)
        else:
            if where == "in a handler":
                it.driver.handle(Note, lambda intent: 1 // 0)
            it.do(Note(""))
        with pytest.raises(InternalError) as caught:
            await waiting
        assert isinstance(caught.value.__cause__, KeyError if where.startswith("an intent") else ZeroDivisionError)
        assert not lock.locked()


async def test_nothing_is_fed_or_carried_out_after_stop() -> None:
    async with shell() as it:
        seen: list[Note] = []
        it.driver.handle(Note, seen.append)
        it.driver.stop()
        it.driver.stop()
        it.do(Note("too late"))
        it.cluster.learn(it.cluster.snapshot._replace(cluster_id="another"))
        assert (it.core.events, seen) == ([], [])


async def test_an_intent_that_stops_the_driver_is_the_last_event() -> None:
    async with shell() as it:

        def stop(intent: Note) -> None:
            it.driver.feed(it.core.woken)
            it.driver.stop()

        it.driver.handle(Note, stop)
        it.do(Note("stop"))
        assert it.core.names() == ["do"]


# calls


async def test_a_call_ends_with_its_value_or_its_error(watchdog: Watchdog) -> None:
    async with watchdog(), shell() as it:
        first, second = (asyncio.ensure_future(it.driver.call(it.core.call)) for _ in range(2))
        await it.core.saw("call")
        calls = [event[1] for event in it.core.events]
        it.do(Finish(calls[0], "value"), Finish(calls[1], error=IllegalStateError("no")))
        assert await first == "value"
        with pytest.raises(IllegalStateError, match="no"):
            await second
        it.do(Finish(calls[0], "again"))  # it is over: nobody minds
        assert it.supervisor.failure is None


async def test_a_call_that_is_given_up_is_told_to_the_core(watchdog: Watchdog) -> None:
    async with watchdog(), shell() as it:
        waiting = asyncio.ensure_future(it.driver.call(it.core.call))
        _, call = await it.core.saw("call")
        waiting.cancel()
        await asyncio.wait({waiting})
        assert waiting.cancelled()
        assert it.core.events[-1] == ("abandoned", call)


async def test_a_fault_of_the_cluster_is_one_of_its_clients(watchdog: Watchdog) -> None:
    async with watchdog(), shell() as it:
        waiting = asyncio.ensure_future(it.driver.call(it.core.call))
        await it.core.saw("call")
        it.cluster.supervisor.crash(FAULT)
        with pytest.raises(InternalError) as caught:
            await waiting
        failure = caught.value.__cause__
        assert isinstance(failure, InternalError)
        assert failure.__cause__ is FAULT
        with pytest.raises(InternalError):
            await it.driver.call(it.core.call)


async def test_a_client_that_has_stopped_hears_nothing_of_its_cluster() -> None:
    async with shell() as it:
        it.driver.stop()
        it.cluster.supervisor.crash(FAULT)
        assert it.supervisor.failure is None


# time


@pytest.mark.parametrize("loop_of", [asyncio.new_event_loop, new_event_loop])
def test_the_core_is_woken_at_its_time_also_when_that_has_passed(
    loop_of: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def test() -> None:
        async with asyncio.timeout(10), shell() as it:
            now_s = asyncio.get_running_loop().time()
            for at_s in (now_s - 5.0, now_s, now_s + 0.005):
                it.core.events.clear()
                it.core.wake_at_s = at_s
                it.do(intents.Say(logging.DEBUG, "said"))
                assert (await it.core.saw("woken"))[1] >= at_s - 0.001  # a loop's clock has its resolution

    with asyncio.Runner(loop_factory=loop_of) as runner:
        runner.run(test())


async def test_the_earliest_time_counts(watchdog: Watchdog) -> None:
    async with watchdog(), shell() as it:
        now_s = asyncio.get_running_loop().time()
        it.core.wake_at_s = now_s + 3600.0
        it.do(intents.Say(logging.DEBUG, "said"))
        it.core.wake_at_s = now_s
        it.do(intents.Say(logging.DEBUG, "said"))
        await it.core.saw("woken")


async def test_a_stopped_driver_wakes_nobody(watchdog: Watchdog) -> None:
    async with watchdog(), shell() as it:
        it.core.wake_at_s = asyncio.get_running_loop().time()
        it.do(intents.Say(logging.DEBUG, "said"))
        it.driver.stop()
        passed = asyncio.Event()
        asyncio.get_running_loop().call_later(0.002, passed.set)
        await passed.wait()
        assert it.core.names() == ["do"]


# requests


async def test_every_request_comes_back_once_with_its_ticket(watchdog: Watchdog) -> None:
    async with watchdog(), connected_shell() as it:
        targets: list[intents.Target] = [
            Broker(NODE_ID),
            AnyBroker(),
            intents.Coordinator(intents.CoordinatorKind.GROUP, "g"),
        ]
        for ticket, to in enumerate(targets):
            it.do(ask(ticket, to))
        it.do(intents.AskVersions("versions"))
        it.do(intents.RefreshMetadata("metadata", PATIENCE_MS))
        tickets = {0, 1, 2, "versions", "metadata"}
        while {event[1] for event in it.core.events if event[0] == "answered"} < tickets:
            it.core.news.clear()
            await it.core.news.wait()
        assert len([event for event in it.core.events if event[0] in ("answered", "failed")]) == len(tickets)


async def test_a_request_to_a_broker_that_is_not_connected_was_not_sent() -> None:
    async with shell() as it:
        it.do(ask("ticket", Broker(NODE_ID)))
        ((_, ticket, error),) = [event for event in it.core.events if event[0] == "failed"]
        assert ticket == "ticket"
        assert isinstance(error, NotSentError)


async def test_a_large_request_is_made_and_sent_in_a_turn_of_its_own(watchdog: Watchdog) -> None:
    made: list[list[str]] = []

    def request() -> MetadataRequest:
        made.append(it.core.names())
        return MetadataRequest(topics=())

    async with watchdog(), connected_shell() as it:
        it.do(Ask("large", Broker(NODE_ID), ApiKey.METADATA, request, PATIENCE_MS, is_large=True))
        assert not made
        it.do(intents.Say(logging.DEBUG, "in between"))
        assert (await it.core.saw("answered"))[1] == "large"
        assert [names[-2:] for names in made] == [["do", "do"]]


async def test_a_large_request_that_cannot_be_sent_fails_and_none_is_made_behind_the_end() -> None:
    made: list[str] = []

    def request() -> MetadataRequest:
        made.append("late")
        return MetadataRequest(topics=())

    async with shell() as it:
        it.do(ask("lost", Broker(NODE_ID), is_large=True))
        assert (await it.core.saw("failed"))[1] == "lost"
        it.do(Ask("late", Broker(NODE_ID), ApiKey.METADATA, request, PATIENCE_MS, is_large=True))
        it.driver.stop()
        await asyncio.sleep(0)
        assert not made
        assert it.core.names().count("failed") == 1


async def test_a_request_whose_connection_breaks_fails_after_the_core_has_heard_of_that(watchdog: Watchdog) -> None:
    async with watchdog(), connected_shell() as it:
        it.broker.script(ApiKey.FIND_COORDINATOR, hang_up)
        request = FindCoordinatorRequest(coordinator_keys=("g",))
        it.do(Ask("ticket", Broker(NODE_ID), ApiKey.FIND_COORDINATOR, lambda: request, PATIENCE_MS))
        _, ticket, error = await it.core.saw("failed")
        assert ticket == "ticket"
        assert isinstance(error, DisconnectedError)
        assert not isinstance(error, NotSentError)
        assert it.core.names().index("disconnected") < it.core.names().index("failed")


async def test_a_version_that_nobody_speaks_fails_the_request_alone(watchdog: Watchdog) -> None:
    async with watchdog(), connected_shell() as it:
        it.do(ask("old", Broker(NODE_ID), cap=-1), ask("good", Broker(NODE_ID)))
        assert (await it.core.saw("failed"))[1] == "old"
        assert (await it.core.saw("answered"))[1] == "good"


async def test_a_broker_that_nobody_knows_is_unreachable(watchdog: Watchdog) -> None:
    async with watchdog(), connected_shell() as it:
        it.do(intents.Connect(77, Channel.FETCH))
        _, node_id, channel, error = await it.core.saw("unreachable")
        assert (node_id, channel) == (77, Channel.FETCH)
        assert isinstance(error, DisconnectedError)


async def test_what_waits_when_the_client_ends_is_given_up(watchdog: Watchdog) -> None:
    async with watchdog(), connected_shell() as it:
        held = Hold(silence)
        it.broker.always(ApiKey.FIND_COORDINATOR, held)
        waiting = asyncio.ensure_future(it.driver.call(it.core.call))
        it.do(ask("ticket", intents.Coordinator(intents.CoordinatorKind.GROUP, "g")))
        await held.reached.wait()
        it.driver.stop()
        await it.supervisor.close(IllegalStateError("the client is closed"))
        with pytest.raises(IllegalStateError, match="the client is closed"):
            await waiting
        assert "answered" not in it.core.names()


# topics


async def test_a_name_that_no_topic_can_have_is_passed_over(watchdog: Watchdog) -> None:
    """The leader of a group tracks what all members subscribe to, whatever their clients let through."""
    async with watchdog(), connected_shell() as it:
        it.do(intents.Track(frozenset({"t", "", "no topic", "x" * 40_000})))
        while "t" not in it.cluster.snapshot.topics:
            it.core.news.clear()
            await it.core.news.wait()
        assert it.supervisor.failure is None
        it.do(intents.Untrack(frozenset({"t", "never tracked"})))
        assert "t" not in it.cluster.snapshot.topics
