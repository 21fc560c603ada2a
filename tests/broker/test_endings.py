"""Thousands of connections whose clients are gone at the same moment end a few in each turn of the loop."""

import asyncio

import pytest

from ottla.base.clock import ManualClock
from ottla.base.limits import ENDINGS_AT_ONCE
from ottla.broker.answers import Frame, Later
from ottla.broker.connections import Connections
from ottla.broker.listening import Listener
from ottla.broker.session import Session
from tests.broker.lone_connections import LoneClient


class _World:
    def __init__(self) -> None:
        clock = ManualClock()
        connections = Connections(clock, max_connections=10_000, max_idle_ms=-1)
        self.listener = Listener(
            lambda frame, _session: bytes(frame), clock, connections, name="PLAINTEXT", max_request_bytes=100
        )
        self.stayed: list[LoneClient] = []

    def go(self, count: int) -> int:
        """So many connect, and are gone at the same moment. How many end at once."""
        clients = [LoneClient(self.listener) for _ in range(count)]
        staying = [client for client in clients if client.connection.eof_received()]
        self.stayed += staying
        for client in clients:
            if client not in staying:
                client.close()
        return count - len(staying)

    async def turn(self) -> int:
        """How many end in the next turn."""
        await asyncio.sleep(0)
        ended = [client for client in self.stayed if client.transport.is_closing()]
        self.stayed = [client for client in self.stayed if client not in ended]
        for client in ended:
            client.close()
        return len(ended)


@pytest.mark.parametrize("few", [1, ENDINGS_AT_ONCE])
async def test_a_few_end_at_once(few: int) -> None:
    world = _World()
    for _ in range(3):
        assert world.go(few) == few
        assert await world.turn() == 0


@pytest.mark.parametrize("rest", [0, 1, ENDINGS_AT_ONCE - 1])
async def test_many_end_in_several_turns_again_and_again(rest: int) -> None:
    world = _World()
    for _ in range(2):
        assert world.go(3 * ENDINGS_AT_ONCE + rest) == ENDINGS_AT_ONCE
        assert await world.turn() == ENDINGS_AT_ONCE
        assert world.go(1) == 0, "behind those who wait"
        left = ENDINGS_AT_ONCE + rest + 1
        while left:
            ended = await world.turn()
            assert ended == min(left, ENDINGS_AT_ONCE)
            left -= ended
        await world.turn()


async def test_one_that_is_lost_meanwhile_has_ended() -> None:
    world = _World()
    world.go(ENDINGS_AT_ONCE + 2)
    lost, other = world.stayed
    lost.close()
    world.stayed.remove(lost)
    assert await world.turn() == 1
    assert not lost.transport.is_closing(), "it has no transport any more"
    assert not other.transport.aborted


async def test_one_whose_end_fails_keeps_no_other_from_it() -> None:
    class Failing:
        def end(self) -> None:
            raise ConnectionError("no end")

    told: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: told.append(context["exception"]))
    world = _World()
    world.go(ENDINGS_AT_ONCE)
    assert not world.listener.connections.endings.may_end(Failing())
    assert world.go(1) == 0
    ended = [await world.turn() for _ in range(3)]
    assert sum(ended) == 1
    assert [str(each) for each in told] == ["no end"]


async def test_an_end_that_is_told_again_does_not_end_what_is_carried_out_before_it() -> None:
    """uvloop tells of it whenever the socket is read again."""
    world = _World()
    answers: list[asyncio.Future[bytes]] = []

    def dispatch(frame: Frame, _session: Session) -> Later:
        answers.append(asyncio.get_running_loop().create_future())
        return Later(answers[-1], lambda answer: answer)

    world.listener.dispatch = dispatch
    client = LoneClient(world.listener)
    client.send(2)
    assert client.connection.eof_received()
    answers[0].set_result(b"1")
    await asyncio.sleep(0)
    assert len(answers) == 2
    assert client.connection.eof_received()
    answers[1].set_result(b"2")
    await asyncio.sleep(0)
    assert client.answers() == b"12"
    assert client.transport.is_closing()
    client.close()
