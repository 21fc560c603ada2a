"""A connection of the listener without a loop's transport: the test brings its bytes and takes its answers."""

import asyncio
import socket
import struct

from ottla.broker.listening import Listener
from ottla.broker.server import Connection
from ottla.broker.sockets.transport import Push, SocketSide


class LoneSide(SocketSide):
    """A socket, written to when the loop says that it takes bytes."""

    def __init__(self, side: socket.socket, more: dict[str, object] | None = None) -> None:
        super().__init__({"socket": side, "peername": ("127.0.0.1", 1), **(more or {})})
        side.setblocking(False)
        self._side = side
        self._writes_in: asyncio.AbstractEventLoop | None = None

    @property
    def connected(self) -> socket.socket:
        """The socket, which does not block."""
        return self._side

    def watch_writing(self, push: Push | None) -> None:
        """Call `push` whenever the socket takes bytes, until None is given."""
        if push is not None:
            self._writes_in = asyncio.get_running_loop()
            self._writes_in.add_writer(self._side, push)
        elif self._writes_in is not None:
            self._writes_in.remove_writer(self._side)
            self._writes_in = None


class LoneTransport(LoneSide):
    """The loop's side of a connection."""

    def __init__(self, side: socket.socket, *, tls: bool = False) -> None:
        super().__init__(side, {"ssl_object": object()} if tls else None)
        self._reads = True
        self.aborted = False
        self.ended = asyncio.Event()

    def is_closing(self) -> bool:
        return self.ended.is_set()

    def is_reading(self) -> bool:
        return self._reads

    def pause_reading(self) -> None:
        self._reads = False

    def resume_reading(self) -> None:
        self._reads = True

    def write(self, data: object) -> None:
        """What is sent by TLS."""

    def close(self) -> None:
        self.ended.set()

    def abort(self) -> None:
        self.aborted = True
        self.ended.set()


class LoneClient:
    """A connection and what arrives on it."""

    def __init__(self, listener: Listener, name: bytes = b"x", *, tls: bool = False) -> None:
        """With `tls` it looks as if the loop had decrypted what comes. What is answered then goes nowhere."""
        ours, self._theirs = socket.socketpair()
        self.transport = LoneTransport(ours, tls=tls)
        self.connection = Connection(listener)
        self.connection.connection_made(self.transport)
        self._name = name
        self._ours = ours

    def send(self, count: int) -> None:
        """So many requests come in one read."""
        self.send_bytes(b"".join(struct.pack(">i", 1) + self._name for _ in range(count)))

    def send_bytes(self, data: bytes) -> None:
        """These bytes come, in as many reads as the connection has room for."""
        sent = 0
        while sent < len(data):
            sent = self.send_part(data, at=sent)

    def send_part(self, data: bytes, *, at: int) -> int:
        """Some of these bytes come, in one read; where the rest begins."""
        assert self.transport.is_reading()
        room = memoryview(self.connection.get_buffer(len(data) - at))
        part = data[at : at + len(room)]
        room[: len(part)] = part
        self.connection.buffer_updated(len(part))
        return at + len(part)

    def answers(self) -> bytes:
        """What was answered so far."""
        return self._theirs.recv(65_536, socket.MSG_DONTWAIT)

    def close(self) -> None:
        self.connection.connection_lost(None)
        self._ours.close()
        self._theirs.close()
