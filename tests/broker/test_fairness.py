"""Connections share one loop: whoever pipelines many requests lets the others have their turn between them."""

import asyncio
import socket
import struct
from typing import Any

from ottla.base.clock import ManualClock
from ottla.base.limits import FRAMES_AT_ONCE
from ottla.broker.server import Connection, Frame, Listener

_MANY = 10 * FRAMES_AT_ONCE


class _Transport(asyncio.Transport):
    """The loop's side of a connection, whose bytes the test brings itself."""

    def __init__(self, side: socket.socket) -> None:
        super().__init__({"socket": side, "peername": ("127.0.0.1", 1)})
        self._reads = True

    def is_closing(self) -> bool:
        return False

    def is_reading(self) -> bool:
        return self._reads

    def pause_reading(self) -> None:
        self._reads = False

    def resume_reading(self) -> None:
        self._reads = True


class _Client:
    """A connection and what arrives on it."""

    def __init__(self, listener: Listener, name: bytes) -> None:
        ours, self._theirs = socket.socketpair()
        self.transport = _Transport(ours)
        self.connection = Connection(listener)
        self.connection.connection_made(self.transport)
        self._name = name
        self._ours = ours

    def send(self, count: int) -> None:
        """So many requests come in one read."""
        data = b"".join(struct.pack(">i", 1) + self._name for _ in range(count))
        room = self.connection.get_buffer(len(data))
        memoryview(room)[: len(data)] = data
        self.connection.buffer_updated(len(data))

    def answers(self) -> bytes:
        """What was answered so far."""
        return self._theirs.recv(65_536, socket.MSG_DONTWAIT)

    def close(self) -> None:
        self.connection.connection_lost(None)
        self._ours.close()
        self._theirs.close()


async def test_a_connection_with_many_requests_does_not_keep_the_others_waiting() -> None:
    order: list[bytes] = []

    def dispatch(frame: Frame, client_host: str) -> Any:
        order.append(bytes(frame))
        return bytes(frame)

    listener = Listener(dispatch, ManualClock(), max_request_bytes=100, max_connections=10, max_idle_ms=-1)
    greedy, modest = _Client(listener, b"g"), _Client(listener, b"m")
    greedy.send(_MANY)
    assert order == [b"g"] * FRAMES_AT_ONCE
    assert not greedy.transport.is_reading(), "with so many waiting its socket is left alone"
    turns = _MANY // FRAMES_AT_ONCE - 1
    for _ in range(turns):
        handled = len(order)
        modest.send(1)
        assert order[handled:] == [b"m"], "answered at once"
        await asyncio.sleep(0)  # a turn of the loop
        assert order[handled + 1 :] == [b"g"] * FRAMES_AT_ONCE
    assert greedy.transport.is_reading()
    assert greedy.answers() == b"g" * _MANY
    assert modest.answers() == b"m" * turns
    greedy.close()
    modest.close()
