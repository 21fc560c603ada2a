"""A listener: makes connections of those who come by it."""

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeAlias

from ottla.base.clock import Clock
from ottla.broker.answers import Dispatch
from ottla.broker.connections import Connections
from ottla.broker.server import Connection
from ottla.broker.sockets.acceptor import Acceptor
from ottla.broker.sockets.poller import Poller
from ottla.broker.sockets.transport import SocketTransport

#: Makes what stands before a connection's dispatcher; it calls the function when it knows who the client is.
Guard: TypeAlias = Callable[[Dispatch, Callable[[], None]], Dispatch]


class Listener:
    """One listener of the broker, without TLS."""

    def __init__(
        self, dispatch: Dispatch, clock: Clock, connections: Connections, *, name: str, max_request_bytes: int
    ) -> None:
        """`name` is in capitals; `max_request_bytes` is `socket.request.max.bytes`."""
        self.name = name
        self.dispatch = dispatch
        self.clock = clock
        self.connections = connections
        self.memory = connections.memory
        #: How large a frame may be, and the first ones of a new connection.
        self.max_request_bytes = self.first_bytes = max_request_bytes
        #: Stands before the dispatcher until a client has said who it is, if clients have to.
        self._guard: Guard | None = None
        self._acceptor: Acceptor | None = None
        #: Where there is no poller: the loop's own.
        self._server: asyncio.Server | None = None

    async def bind(self, host: str, port: int, backlog: int) -> tuple[str, int]:
        """Take the address; the host and port that were bound. Raises OSError when it cannot be had."""
        poller = self.connections.poller()
        if poller is not None:
            self._acceptor = Acceptor(poller, self.name, self._taker(poller))
            return await self._acceptor.bind(host, port, backlog)
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._make, host or None, port, backlog=backlog, start_serving=False)
        bound = self._server.sockets[0].getsockname()
        return str(bound[0]), int(bound[1])

    async def listen(self) -> None:
        """Let them come, behind `bind`. Raises OSError when another program listens there meanwhile."""
        if self._acceptor is not None:
            self._acceptor.listen()
        if self._server is not None:
            await self._server.start_serving()

    def _taker(self, poller: Poller) -> Callable[[socket.socket, tuple[Any, ...]], None]:
        """What is done with each new socket."""

        def take(accepted: socket.socket, address: tuple[Any, ...]) -> None:
            send_at_once(accepted)
            SocketTransport(poller, accepted, address).begin(self._make())

        return take

    def _make(self) -> Connection:
        return Connection(self)

    def guard(self, make: Guard, max_receive_bytes: int) -> None:
        """Have every connection guarded, and its frames no larger than this, until it is known who the client is."""
        self._guard, self.first_bytes = make, min(max_receive_bytes, self.max_request_bytes)

    @property
    def is_guarded(self) -> bool:
        """Whether clients have to say who they are."""
        return self._guard is not None

    def guarded(self, admit: Callable[[], None]) -> Dispatch:
        """What answers a new connection's frames."""
        return self.dispatch if self._guard is None else self._guard(self.dispatch, admit)

    def identify(self, connection: Connection, transport: asyncio.BaseTransport) -> bool:
        """Find out who is at the other end, as far as that is known before the first frame; False: it may not stay."""
        return True

    def stop(self) -> None:
        """Take no more connections."""
        if self._acceptor is not None:
            self._acceptor.close()
        if self._server is not None:
            self._server.close()

    async def stopped(self) -> None:
        """Wait until the connections that came by it are closed."""
        if self._server is not None:
            await self._server.wait_closed()
            self._server = None


def send_at_once(accepted: socket.socket) -> None:
    """Have no answer wait in the kernel for the next request (Nagle's algorithm)."""
    with suppress(OSError):  # its other end has reset it already
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
