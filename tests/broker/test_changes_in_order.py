"""Changes that wait for others: one whose client goes meanwhile is given up, and what it named is free."""

import asyncio
import weakref
from collections.abc import AsyncIterator

import pytest

from ottla.broker.access.acls import Acl
from ottla.broker.runtime.slices import Slices
from ottla.testing import AsyncBroker
from ottla.wire.acls import AclOperation, AclPermissionType, PatternType, ResourceType
from ottla.wire.apis import ApiKey
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tests.broker.ticking import TickingClock
from tests.broker.wire_client import WireClient


class _Work:
    """What a request asks for."""

    def __init__(self, done: list[str], name: str) -> None:
        self._done, self._name = done, name

    async def __call__(self) -> None:
        await asyncio.sleep(0)
        self._done.append(self._name)


async def _turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_what_has_begun_is_carried_out_and_what_waits_is_given_up_with_who_asked() -> None:
    slices, lock, done = Slices(TickingClock()), asyncio.Lock(), list[str]()
    names = ("begun", "given up", "stays")
    begun, given_up, stays = (slices.in_order(lock, _Work(done, name), name) for name in names)
    await _turns(1)
    begun.cancel()
    given_up.cancel()
    await stays
    assert done == ["begun", "stays"]


async def test_what_is_given_up_keeps_nothing() -> None:
    """Each connection's request, up to ten megabytes, was kept as long as the ones before it took."""
    slices, lock = Slices(TickingClock()), asyncio.Lock()
    async with lock:
        work = _Work([], "given up")
        kept = weakref.ref(work)
        waiting = slices.in_order(lock, work, "given up")
        await _turns(2)
        waiting.cancel()
        await _turns(3)
        del work, waiting
        assert kept() is None


@pytest.fixture
async def broker() -> AsyncIterator[AsyncBroker]:
    async with AsyncBroker(clock=TickingClock()) as running:
        yield running


async def test_a_topic_is_not_made_for_a_client_that_goes_while_it_waits(broker: AsyncBroker) -> None:
    goes_on, made = asyncio.Event(), CreateTopicsRequest((CreatableTopic("made", 1, 1),), 60_000)
    first = broker.node.topics.change(goes_on.wait)
    async with WireClient(broker) as goes:
        asked = asyncio.create_task(
            goes.ask(ApiKey.CREATE_TOPICS, CreateTopicsRequest((CreatableTopic("given-up", 1, 1),), 60_000))
        )
        await _turns(100)
    asked.cancel()
    await _turns(100)
    goes_on.set()
    await first
    async with WireClient(broker) as stays:
        await stays.ask(ApiKey.CREATE_TOPICS, made)
    assert set(broker.node.image.topics) == {"made"}


async def test_acls_are_not_made_for_a_client_that_goes_while_they_wait(broker: AsyncBroker) -> None:
    acls = [
        Acl(ResourceType.TOPIC, name, PatternType.LITERAL, "User:a", "*", AclOperation.READ, AclPermissionType.ALLOW)
        for name in ("begun", "given-up", "made")
    ]
    begun, given_up, made = (broker.node.acls.create([each]) for each in acls)
    await _turns(1)
    begun.cancel()
    given_up.cancel()
    await made
    assert [each in broker.node.image.acls for each in acls] == [True, False, True]
