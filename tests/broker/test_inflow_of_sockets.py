"""How much is received in one turn, on asyncio's loop and on uvloop: nothing is lost, and every end is seen."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from ottla.base.clock import SystemClock
from ottla.base.limits import BUSY_BUFFER_BYTES, RECEIVED_PIECE_BYTES, RECEIVED_TURN_BYTES
from ottla.broker.answers import Frame
from ottla.broker.connections import Connections
from ottla.broker.listening import Listener
from ottla.broker.server import Connection
from ottla.broker.session import Session
from tests.broker.ticking import some_turns_until

_ANY_LOOP = pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
_Loop = Callable[[], asyncio.AbstractEventLoop]

_SIZE = 50_000
_MANY = 3 * RECEIVED_TURN_BYTES // _SIZE


def _frame(number: int) -> bytes:
    return struct.pack(">ii", _SIZE, number) + bytes(_SIZE - 4)


class _Counted(Connection):
    """It notes what it receives."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        assert isinstance(self._listener, _Counting)
        self._listener.made += 1

    def buffer_updated(self, nbytes: int) -> None:
        assert isinstance(self._listener, _Counting)
        turn = self._listener.received[-1]
        turn[self] = turn.get(self, 0) + nbytes
        super().buffer_updated(nbytes)


class _Counting(Listener):
    """Its connections answer a frame with its first four bytes."""

    def __init__(self) -> None:
        clock = SystemClock()
        connections = Connections(clock, max_connections=10_000, max_idle_ms=-1)
        super().__init__(self._answer, clock, connections, name="PLAINTEXT", max_request_bytes=10 * _SIZE)
        #: What each connection has received, turn by turn of the loop.
        self.received: list[dict[Connection, int]] = [{}]
        self.answered = self.made = 0

    def _answer(self, frame: Frame, session: Session) -> bytes:
        self.answered += 1
        return bytes(frame[:4])

    def _make(self) -> Connection:
        return _Counted(self)

    def tick(self) -> None:
        """A turn begins; the next one will tell it again."""
        self.received.append({})
        asyncio.get_running_loop().call_soon(self.tick)

    def most(self) -> int:
        """The most bytes that were received in a turn, beyond a piece for each connection."""
        return max(sum(max(0, each - RECEIVED_PIECE_BYTES) for each in turn.values()) for turn in self.received)


def _send(clients: list[socket.socket]) -> None:
    for number, each in enumerate(clients):
        each.sendall(_frame(number))


async def _with(many: int, then: Callable[[_Counting, list[socket.socket]], Coroutine[Any, Any, None]]) -> None:
    """So many clients with a frame each, all of which comes in one turn of the loop."""
    listener = _Counting()
    host, port = await listener.bind("127.0.0.1", 0, many)
    await listener.listen()
    clients = [socket.create_connection((host, port)) for _ in range(many)]
    try:
        await some_turns_until(lambda: listener.made == many)
        await asyncio.sleep(0)
        listener.tick()
        _send(clients)
        await then(listener, clients)
        assert listener.most() <= RECEIVED_TURN_BYTES + BUSY_BUFFER_BYTES
    finally:
        for each in clients:
            each.close()
        listener.stop()
        listener.connections.close()
        await listener.connections.ended()
        await listener.stopped()


def _run(loop: _Loop, many: int, then: Callable[[_Counting, list[socket.socket]], Coroutine[Any, Any, None]]) -> None:
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(_with(many, then))


@_ANY_LOOP
def test_a_turn_has_so_many_bytes_and_everything_arrives(loop: _Loop) -> None:
    async def then(listener: _Counting, clients: list[socket.socket]) -> None:
        await some_turns_until(lambda: listener.answered == _MANY)
        _send(clients)
        await some_turns_until(lambda: listener.answered == 2 * _MANY)
        for number, each in enumerate(clients):
            assert each.recv(100) == struct.pack(">ii", number, number)
        assert sum(map(bool, listener.received)) <= 20, "those whose turn it is have their room"

    _run(loop, _MANY, then)


@_ANY_LOOP
def test_ends_and_resets_behind_it_are_seen(loop: _Loop) -> None:
    async def then(listener: _Counting, clients: list[socket.socket]) -> None:
        await some_turns_until(lambda: listener.connections.inflow.is_over)
        for number, each in enumerate(clients):
            if number % 2:
                each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            each.close()
        await some_turns_until(lambda: listener.answered >= _MANY // 2)
        await listener.connections.ended()

    _run(loop, _MANY, then)


@_ANY_LOOP
def test_who_ends_only_one_way_gets_the_answer(loop: _Loop) -> None:
    async def then(listener: _Counting, clients: list[socket.socket]) -> None:
        for each in clients:
            each.shutdown(socket.SHUT_WR)
        await some_turns_until(lambda: listener.answered == _MANY)
        await listener.connections.ended()
        for number, each in enumerate(clients):
            assert struct.unpack(">i", each.recv(100)) == (number,)
            assert each.recv(100) == b""

    _run(loop, _MANY, then)


@_ANY_LOOP
def test_a_stop_does_not_wait_for_those_that_wait(loop: _Loop) -> None:
    async def then(listener: _Counting, clients: list[socket.socket]) -> None:
        await some_turns_until(lambda: listener.connections.inflow.is_over)
        listener.connections.close()
        await listener.connections.ended()
        assert listener.answered < _MANY

    _run(loop, _MANY, then)
