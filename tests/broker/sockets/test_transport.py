"""The transport alone: what it does with the events that the poller tells, and what its connection is told."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator

import pytest

from ottla.broker.sockets.poller import BROKEN, READ, WRITE, Poller
from ottla.broker.sockets.transport import SocketTransport


class _Connection:
    """It notes what it is told."""

    def __init__(self) -> None:
        self.transport: SocketTransport | None = None
        self.received = 0
        self.stays = False
        self.told: list[object] = []

    def connection_made(self, transport: asyncio.BaseTransport, /) -> None:
        assert isinstance(transport, SocketTransport)
        self.transport = transport

    def get_buffer(self, _size_hint: int, /) -> memoryview:
        return memoryview(bytearray(10))

    def buffer_updated(self, nbytes: int, /) -> None:
        self.received += nbytes

    def eof_received(self) -> bool:
        self.told.append("end")
        return self.stays

    def connection_lost(self, exc: Exception | None, /) -> None:
        self.told.append(exc)


class _Lone:
    """One connection."""

    def __init__(self) -> None:
        self.poller = Poller(asyncio.get_running_loop())
        listening = socket.create_server(("127.0.0.1", 0))
        self.theirs = socket.create_connection(listening.getsockname())
        self.ours, peer = listening.accept()
        listening.close()
        self.ours.setblocking(False)
        self.connection = _Connection()
        self.transport = SocketTransport(self.poller, self.ours, peer)
        self.pushed = 0

    def begin(self) -> None:
        self.transport.begin(self.connection)

    def push(self) -> int:
        self.pushed += 1
        return 7

    def reset(self) -> None:
        self.theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.theirs.close()

    async def turns(self, count: int = 3) -> None:
        for _ in range(count):
            await asyncio.sleep(0)


@pytest.fixture
async def lone() -> AsyncIterator[_Lone]:
    lone = _Lone()
    lone.begin()
    yield lone
    lone.transport.abort()
    lone.transport.close()
    await lone.turns()
    assert sum(each != "end" for each in lone.connection.told) == 1, "it is told once that it is lost"
    assert lone.ours.fileno() == -1
    assert lone.transport._protocol is None, "no cycle stays"
    assert not lone.poller._watched
    lone.theirs.close()
    lone.poller.close()


async def test_one_that_is_not_read_receives_nothing_whatever_is_told(lone: _Lone) -> None:
    lone.theirs.send(b"more")
    lone.transport.pause_reading()
    lone.transport.watch_writing(lone.push)
    assert lone.transport.ready(READ | WRITE | BROKEN, False) == 7
    assert (lone.connection.received, lone.pushed) == (0, 1)
    lone.transport.watch_writing(None)
    lone.transport.resume_reading()
    assert lone.transport.is_reading()
    await lone.turns()
    assert lone.connection.received == 4


async def test_what_waits_to_be_sent_hears_of_a_socket_that_is_broken(lone: _Lone) -> None:
    lone.transport.pause_reading()
    lone.transport.watch_writing(lone.push)
    assert lone.transport.ready(BROKEN, False) == 7
    assert not lone.transport.is_reading()


async def test_one_that_is_closed_sends_and_receives_nothing_and_is_watched_no_more(lone: _Lone) -> None:
    lone.theirs.send(b"more")
    lone.transport.watch_writing(lone.push)
    lone.transport.close()
    assert (lone.transport.is_closing(), lone.transport.is_reading()) == (True, False)
    assert not lone.poller._watched
    assert lone.connection.told == [], "not in the call that closes it"
    lone.transport.watch_writing(lone.push)
    lone.transport.resume_reading()
    lone.transport.pause_reading()
    assert lone.transport.ready(READ | WRITE | BROKEN, False) == 0
    assert (lone.connection.received, lone.pushed) == (0, 0)
    lone.transport.watch_writing(None)
    await lone.turns()
    assert lone.connection.told == [None]


async def test_a_reset_is_told_with_its_reason(lone: _Lone) -> None:
    lone.reset()
    await lone.turns()
    (told,) = lone.connection.told
    assert isinstance(told, ConnectionResetError)


@pytest.mark.parametrize("stays", [True, False])
async def test_behind_an_end_nothing_is_received_and_the_socket_is_not_watched(lone: _Lone, stays: bool) -> None:
    """Its end would be told for ever."""
    lone.connection.stays = stays
    lone.theirs.shutdown(socket.SHUT_WR)
    await lone.turns()
    assert lone.connection.told == (["end"] if stays else ["end", None])
    assert not lone.poller._watched
    lone.transport.pause_reading()
    lone.transport.resume_reading()
    assert (lone.transport.is_reading(), lone.poller._watched) == (False, {})


async def test_an_event_that_does_not_hold_any_more_does_no_harm(lone: _Lone) -> None:
    assert lone.transport.ready(READ | BROKEN, False) == 0
    assert lone.connection.told == []


async def test_one_whose_connection_fails_at_its_end_is_closed() -> None:
    lone = _Lone()

    def lost(_exc: Exception | None) -> None:
        raise ValueError("it fails")

    told: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: told.append(context["exception"]))
    lone.connection.connection_lost = lost  # type: ignore[method-assign]
    lone.begin()
    lone.transport.close()
    await lone.turns()
    assert ([str(each) for each in told], lone.ours.fileno()) == (["it fails"], -1)
    lone.theirs.close()
    lone.poller.close()


async def test_what_is_asked_of_its_socket() -> None:
    lone = _Lone()
    lone.begin()
    assert lone.transport.get_extra_info("socket") is lone.ours
    assert lone.transport.get_extra_info("peername") == lone.theirs.getsockname()
    assert lone.transport.get_extra_info("ssl_object", "none") == "none"
    lone.transport.abort()
    await lone.turns()
    lone.theirs.close()
    lone.poller.close()
