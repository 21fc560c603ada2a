"""Requests that all members of a group send at once: what a turn of the loop carries out, and what a lost connection or
a fault does to it."""

import asyncio
from collections.abc import Callable

import pytest

from ottla.base.errors import CorruptDataError
from ottla.base.limits import HERD_AT_ONCE
from ottla.broker.answers import Answer, Later
from ottla.broker.handlers.herd import Herd
from ottla.broker.handlers.table import TABLE
from ottla.broker.runtime.slices import TURN_MS, Slices
from ottla.wire.apis import ApiKey
from tests.broker.ticking import TickingClock

_MANY = HERD_AT_ONCE + 3 * TURN_MS


class _Members:
    """Those who send, and what was carried out for them."""

    def __init__(self) -> None:
        self.herd = Herd(Slices(TickingClock()))
        self.done: list[int] = []

    def send(self, number: int) -> Answer:
        return self.herd.carry_out(self._request(number))

    def _request(self, number: int) -> Callable[[], Answer]:
        def request() -> Answer:
            self.done.append(number)
            return b"%d" % number

        return request


def _future(answer: Answer) -> "asyncio.Future[Answer]":
    assert isinstance(answer, Later)
    return answer.future


async def test_few_are_carried_out_at_once_and_the_others_in_slices() -> None:
    members = _Members()
    answers = [members.send(number) for number in range(_MANY)]
    assert answers[:HERD_AT_ONCE] == [b"%d" % number for number in range(HERD_AT_ONCE)]
    assert len(members.done) == HERD_AT_ONCE
    most = 0
    while len(members.done) < _MANY:
        before = len(members.done)
        await asyncio.sleep(0)  # a turn of the loop
        most = max(most, len(members.done) - before)
    assert most == TURN_MS
    assert members.done == list(range(_MANY))
    later = await asyncio.gather(*map(_future, answers[HERD_AT_ONCE:]))
    assert later == [b"%d" % number for number in range(HERD_AT_ONCE, _MANY)]


async def test_who_comes_while_others_wait_comes_behind_them() -> None:
    members = _Members()
    for number in range(_MANY):
        members.send(number)
    await asyncio.sleep(0)
    last = members.send(_MANY)
    assert members.done == list(range(len(members.done)))
    assert await _future(last) == b"%d" % _MANY
    assert members.done == list(range(_MANY + 1))


async def test_in_the_next_turn_a_few_are_carried_out_at_once_again() -> None:
    members = _Members()
    for number in range(HERD_AT_ONCE):
        members.send(number)
    await asyncio.sleep(0)
    assert members.send(HERD_AT_ONCE) == b"%d" % HERD_AT_ONCE


async def test_what_was_received_is_carried_out_although_its_connection_is_lost() -> None:
    members = _Members()
    answers = [members.send(number) for number in range(HERD_AT_ONCE + 1)]
    _future(answers[-1]).cancel()
    waits: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
    lost = members.herd.carry_out(lambda: Later(waits, lambda result: result))
    _future(lost).cancel()
    await _future(members.send(_MANY))
    assert members.done == [*range(HERD_AT_ONCE + 1), _MANY]
    assert waits.cancelled(), "nobody waits for the second one's answer"


async def test_a_request_that_fails_fails_alone() -> None:
    members = _Members()
    for number in range(HERD_AT_ONCE):
        members.send(number)

    def fails() -> Answer:
        raise CorruptDataError("no request")

    broken, next_one = members.herd.carry_out(fails), members.send(_MANY)
    with pytest.raises(CorruptDataError, match="no request"):
        await _future(broken)
    assert await _future(next_one) == b"%d" % _MANY


def test_these_requests_come_from_every_member() -> None:
    """All of a group send them in a rebalance; what stands in no herd is answered before them."""
    assert {ApiKey(key) for key, entry in TABLE.items() if entry.in_herds} == {
        ApiKey.FIND_COORDINATOR,
        ApiKey.JOIN_GROUP,
        ApiKey.SYNC_GROUP,
        ApiKey.HEARTBEAT,
        ApiKey.LEAVE_GROUP,
        ApiKey.OFFSET_COMMIT,
        ApiKey.OFFSET_FETCH,
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
    }
