"""Connections whose other ends the test has, with TLS and without, and what a turn of the loop receives of them."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ottla.base.clock import ManualClock
from ottla.broker.answers import Frame
from ottla.broker.connections import Connections
from ottla.broker.listening import Listener
from ottla.broker.server import Connection
from ottla.broker.session import Session
from ottla.broker.sockets.poller import Poller
from ottla.broker.sockets.tls import Sealed, TlsTransport
from ottla.broker.sockets.transport import SocketTransport
from tests.client.certificates import Authority


class TlsPair:
    """The contexts of a broker and of its clients."""

    def __init__(self, directory: Path) -> None:
        authority = Authority(directory, "authority")
        self.server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.server.load_cert_chain(authority.certificate("here", host="127.0.0.1"))
        self.client = ssl.create_default_context(cafile=str(authority.file))

    def agree(self, sealed: Sealed, theirs: socket.socket) -> ssl.SSLSocket:
        """The client's end, behind their handshake."""
        sealed.begin(self.server)
        client = self.client.wrap_socket(theirs, server_hostname="127.0.0.1", do_handshake_on_connect=False)
        for _ in range(2):
            with suppress(ssl.SSLWantReadError):
                client.do_handshake()
            with suppress(ssl.SSLWantReadError):
                sealed.receive(10_000)
                sealed.left_records = 100
                assert sealed.feed()
                sealed.tls.do_handshake()
            assert sealed.flush()
        with suppress(ssl.SSLWantReadError):
            client.read()  # the tickets for another session
        return client


class Counted(Connection):
    """It notes what it receives."""

    world: World
    is_lost = False

    def buffer_updated(self, nbytes: int) -> None:
        turn = self.world.received[-1]
        turn[self] = turn.get(self, 0) + nbytes
        super().buffer_updated(nbytes)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True
        self.world.ended[-1] += 1
        super().connection_lost(exc)


class Peer:
    """A client of a connection."""

    def __init__(self, world: World) -> None:
        ours, theirs = socket.socketpair()
        for each in (ours, theirs):
            each.setblocking(False)
        self.connection = Counted(world.listener)
        self.connection.world = world
        self.socket = theirs
        if world.tls is None:
            self.transport = SocketTransport(world.poller, ours, ("127.0.0.1", 1))
        else:
            sealed = Sealed(world.poller, ours)
            self.socket = world.tls.agree(sealed, theirs)
            self.transport = TlsTransport(world.poller, sealed, ("127.0.0.1", 1))
        self.transport.begin(self.connection)

    def send(self, data: bytes) -> int:
        """Put what its socket takes of this; how many bytes that were."""
        sent = 0
        with suppress(BlockingIOError, ssl.SSLWantWriteError):
            while sent < len(data):
                sent += self.socket.send(memoryview(data)[sent:])
        return sent

    def answers(self) -> bytes:
        """What was answered so far."""
        heard = b""
        with suppress(BlockingIOError, ssl.SSLWantReadError, ssl.SSLZeroReturnError):
            while more := self.socket.recv(65_536):
                heard += more
        return heard

    def end(self) -> None:
        """Say that nothing more will be sent. TLS ends without a word (no close_notify)."""
        with socket.socket(fileno=os.dup(self.socket.fileno())) as same:
            same.shutdown(socket.SHUT_WR)


class World:
    """A listener, and what its connections receive, turn by turn of the loop."""

    def __init__(
        self,
        tls: TlsPair | None = None,
        dispatch: Callable[[Frame, Session], bytes | None] | None = None,
        *,
        largest_bytes: int = 1_000_000,
    ) -> None:
        self.tls = tls
        self.clock = ManualClock()
        self.connections = Connections(self.clock, max_connections=10_000, max_idle_ms=60_000)
        self.sizes: list[int] = []
        self.listener = Listener(
            dispatch or self._answer, self.clock, self.connections, name="LISTENER", max_request_bytes=largest_bytes
        )
        poller = self.connections.poller()
        assert poller is not None
        self.poller: Poller = poller
        self.received: list[dict[Connection, int]] = [{}]
        self.ended = [0]
        self.peers: list[Peer] = []

    def _answer(self, frame: Frame, _session: Session) -> bytes:
        self.sizes.append(len(frame))
        return b"!"

    def come(self, count: int, data: bytes = b"") -> list[Peer]:
        """So many clients, each with this in its socket."""
        peers = [Peer(self) for _ in range(count)]
        for each in peers:
            assert each.send(data) == len(data)
        self.peers += peers
        return peers

    async def turn(self) -> dict[Connection, int]:
        """What is received in the next turn of the loop."""
        self.received.append({})
        self.ended.append(0)
        await asyncio.sleep(0)
        return self.received[-1]

    async def until(self, holds: Callable[[], bool], at_most: int = 1_000) -> int:
        """How many turns that takes."""
        for number in range(at_most):
            if holds():
                return number
            await self.turn()
        raise AssertionError(f"not in {at_most} turns")

    async def end(self) -> None:
        """Close everything."""
        for each in self.peers:
            each.socket.close()
        self.connections.close()
        await self.connections.ended()
