"""A connected socket of the broker: receives into the connection's own buffer, and tells of its end."""

import asyncio
import socket
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, Protocol

from ottla.base.limits import RECEIVED_PIECE_BYTES
from ottla.broker.sockets.poller import BROKEN, READ, WRITE, Poller

#: Sends what waits; how many bytes the socket took.
Push = Callable[[], int]


class Receiving(Protocol):
    """A connection: what asyncio calls a buffered protocol."""

    def connection_made(self, transport: asyncio.BaseTransport, /) -> None: ...

    def get_buffer(self, size_hint: int, /) -> memoryview:
        """Room for what comes, not empty."""
        ...

    def buffer_updated(self, nbytes: int, /) -> None: ...

    def eof_received(self) -> bool:
        """Whether the connection stays, behind its other end's end."""
        ...

    def connection_lost(self, exc: Exception | None, /) -> None: ...


class SocketSide(asyncio.Transport):
    """A transport whose socket its connection writes to itself (`outbox`)."""

    __slots__ = ()

    @property
    @abstractmethod
    def connected(self) -> socket.socket:
        """The socket, which does not block."""

    @abstractmethod
    def watch_writing(self, push: Push | None) -> None:
        """Call `push` whenever the socket takes bytes, until None is given."""


class SocketTransport(SocketSide):
    """The transport of one connection without TLS. What asyncio says of transports holds; `write` is the outbox's."""

    __slots__ = (
        "_has_ended",
        "_is_closing",
        "_is_paused",
        "_loop",
        "_peer",
        "_poller",
        "_protocol",
        "_push",
        "_socket",
        "_watched",
    )

    def __init__(self, poller: Poller, connected: socket.socket, peer: object) -> None:
        """`peer` is the other end's address. The socket is this one's from now on, and closed by it."""
        self._poller, self._socket, self._peer = poller, connected, peer
        self._loop = asyncio.get_running_loop()
        self._protocol: Receiving | None = None
        self._push: Push | None = None
        #: The events that the poller tells.
        self._watched = 0
        self._is_paused = self._is_closing = False
        #: Whether nothing more comes.
        self._has_ended = False

    @property
    def connected(self) -> socket.socket:
        """The socket, which does not block."""
        return self._socket

    def begin(self, protocol: Receiving) -> None:
        """Serve this connection."""
        self._protocol = protocol
        try:
            protocol.connection_made(self)
        except BaseException:
            self.abort()
            raise
        self._watch()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """`socket` and `peername`."""
        return {"socket": self._socket, "peername": self._peer}.get(name, default)

    def is_closing(self) -> bool:
        """Whether it is closed, or will be in this turn."""
        return self._is_closing

    def is_reading(self) -> bool:
        """Whether it is received from."""
        return not (self._is_paused or self._has_ended or self._is_closing)

    def pause_reading(self) -> None:
        """Receive nothing until `resume_reading`."""
        self._is_paused = True
        self._watch()

    def resume_reading(self) -> None:
        """Receive again. No-op behind the other end's end."""
        self._is_paused = False
        self._watch()

    def watch_writing(self, push: Push | None) -> None:
        """Call `push` whenever the socket takes bytes, until None is given."""
        self._push = push
        self._watch()

    def _watch(self) -> None:
        """Have the poller tell what is wanted now. Where the system has no memory for that, the connection is lost."""
        wanted = 0 if self._protocol is None or self._is_closing else self._wanted()
        if wanted != self._watched:
            try:
                self._poller.watch(self._socket.fileno(), self, wanted, self._watched)
            except OSError as fault:
                self._lose(fault)
            else:
                self._watched = wanted

    def _wanted(self) -> int:
        return (0 if self._is_paused or self._has_ended else READ) | (0 if self._push is None else WRITE)

    def ready(self, events: int, only_a_piece: bool, /) -> int:
        """The poller's: receive, and send what waits."""
        taken_bytes = 0
        if self._watched & READ and events & (READ | BROKEN):
            taken_bytes = self._receive(only_a_piece)
        if self._push is not None and events & (WRITE | BROKEN) and not self._is_closing:
            taken_bytes += RECEIVED_PIECE_BYTES if only_a_piece else self._push()
        return taken_bytes

    def _receive(self, only_a_piece: bool) -> int:
        protocol = self._protocol
        assert protocol is not None
        room = protocol.get_buffer(-1)
        try:
            received_bytes = self._socket.recv_into(room[:RECEIVED_PIECE_BYTES] if only_a_piece else room)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError as fault:
            self._lose(fault)
            return 0
        if received_bytes:
            protocol.buffer_updated(received_bytes)
        else:
            self._end()
        return received_bytes

    def _end(self) -> None:
        """The other end sends nothing more."""
        assert self._protocol is not None
        self._has_ended = True
        if self._protocol.eof_received():
            self._watch()
        else:
            self.close()

    def close(self) -> None:
        """Close the connection; its protocol is told in the next turn."""
        self._lose(None)

    def abort(self) -> None:
        """The same, and say nothing to the other end."""
        self._lose(None)

    def _lose(self, fault: Exception | None) -> None:
        if not self._is_closing:
            self._is_closing = True
            self._push = None
            self._watch()
            self._loop.call_soon(self._lost, fault)

    def _lost(self, fault: Exception | None) -> None:
        protocol, self._protocol = self._protocol, None
        try:
            if protocol is not None:
                protocol.connection_lost(fault)
        finally:
            self._socket.close()
