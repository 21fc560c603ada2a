"""What a connection sends: bytes, and slices of files that the kernel copies to the socket.

Three ways to send: `SocketOutbox` where there is a socket, `TlsOutbox` where what is sent is encrypted, and
`TransportOutbox` where there is no socket (in the simulator).

The event loop's transport cannot send files (uvloop has no sendfile, asyncio's needs a task). So a connection writes to
a duplicate of its socket: at once while the socket takes bytes, and later when the loop says that it takes bytes again.
"""

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeAlias

from ottla.base.errors import StorageError
from ottla.base.limits import SENT_AT_ONCE_BYTES, TLS_BYTES_AT_ONCE
from ottla.log.storage import Slice

Piece: TypeAlias = bytes | memoryview | Slice

#: Buffers of one sendmsg; the system's own limit (IOV_MAX) is 1024.
_MAX_BUFFERS: Final = 512
#: Tells the kernel that more follows, so that a response's header and the file after it fill packets. Linux only.
_MORE: Final = getattr(socket, "MSG_MORE", 0)


class Outbox(Protocol):
    """The sending half of one connection."""

    #: Grows when the peer takes something of what waits.
    progress: int

    @property
    def busy(self) -> bool:
        """Whether the peer has not taken everything yet."""
        ...

    def send(self, pieces: Sequence[Piece]) -> None:
        """Send `pieces` in order, after what is still waiting."""
        ...

    def close(self) -> None:
        """Forget what was not sent."""
        ...

    def pause(self) -> None:
        """The transport takes no more for now."""
        ...

    def resume(self) -> None:
        """The transport takes more."""
        ...


def make_outbox(
    transport: asyncio.Transport,
    drained: Callable[[], None],
    lost: Callable[[Exception], None],
    unread: Callable[[int], None],
) -> Outbox:
    """What sends over this connection. `drained` is called when a send that had to wait is complete, `lost` when one
    fails; `unread` when one has to wait, with the bytes that it has in memory, and with 0 when it waits no more."""
    if transport.get_extra_info("ssl_object") is not None:
        return TlsOutbox(transport, drained, lost, unread)
    connected = transport.get_extra_info("socket")
    if connected is None:
        return TransportOutbox(transport, drained, lost)
    return SocketOutbox(connected.fileno(), drained, lost, unread)


class TransportOutbox:
    """Sends through the transport, which keeps what the peer does not take yet. Files are read into memory."""

    def __init__(
        self, transport: asyncio.Transport, drained: Callable[[], None], lost: Callable[[Exception], None]
    ) -> None:
        self._transport = transport
        self._drained = drained
        self._lost = lost
        self.busy = False
        self.progress = 0

    def send(self, pieces: Sequence[Piece]) -> None:
        try:
            for piece in pieces:
                self._transport.write(_whole(piece) if isinstance(piece, Slice) else piece)
        except StorageError as fault:
            self._lost(fault)

    def close(self) -> None:
        self.busy = False

    def pause(self) -> None:
        self.busy = True

    def resume(self) -> None:
        if self.busy:
            self.busy = False
            self.progress += 1
            self._drained()


class TlsOutbox:
    """Sends through a transport with TLS, a piece in each turn of the loop, and only while the transport takes more.

    The kernel cannot send a file here, for what is sent has to be encrypted: its slices are read, piece by piece.
    """

    def __init__(
        self,
        transport: asyncio.Transport,
        drained: Callable[[], None],
        lost: Callable[[Exception], None],
        unread: Callable[[int], None],
    ) -> None:
        self._transport = transport
        self._drained = drained
        self._lost = lost
        self._unread = unread
        self._queue: deque[Piece] = deque()
        self._is_paused = False
        self.progress = 0
        self._next: asyncio.Handle | None = None

    @property
    def busy(self) -> bool:
        """Whether something waits here, or the transport has enough."""
        return self._is_paused or bool(self._queue)

    def send(self, pieces: Sequence[Piece]) -> None:
        """Send `pieces` in order, after what is still waiting."""
        self._queue.extend(pieces)
        if not self._is_paused and self._next is None:
            self._push()

    def close(self) -> None:
        """Forget what was not sent."""
        self._queue.clear()
        self._is_paused = False
        self._unread(0)
        if self._next is not None:
            self._next.cancel()
            self._next = None

    def pause(self) -> None:
        """The transport takes no more for now."""
        self._is_paused = True
        self._unread(_in_memory(self._queue))

    def resume(self) -> None:
        """The transport takes more."""
        if self._is_paused:
            self._is_paused = False
            self.progress += 1
            self._unread(0)
            if self._next is None:
                self._turn()

    def _turn(self) -> None:
        self._next = None
        self._push()
        if not self.busy:
            self._drained()

    def _push(self) -> None:
        left_bytes = TLS_BYTES_AT_ONCE
        gathered: list[bytes | memoryview] = []
        try:
            while self._queue and left_bytes > 0:
                piece = self._cut(left_bytes)
                gathered.append(piece)
                left_bytes -= len(piece)
        except (OSError, StorageError) as fault:
            self._queue.clear()
            self._lost(fault)
            return
        if gathered:
            self._transport.write(gathered[0] if len(gathered) == 1 else b"".join(gathered))
        if self._queue and not self._is_paused:
            self._next = asyncio.get_running_loop().call_soon(self._turn)

    def _cut(self, at_most_bytes: int) -> bytes | memoryview:
        """The next bytes; what is left of their piece stays in front."""
        piece = self._queue.popleft()
        if isinstance(piece, Slice):
            file, position, left = piece
            if left > at_most_bytes:
                self._queue.appendleft(Slice(file, position + at_most_bytes, left - at_most_bytes))
                piece = Slice(file, position, at_most_bytes)
            return _whole(piece)
        if len(piece) > at_most_bytes:
            self._queue.appendleft(memoryview(piece)[at_most_bytes:])
            return memoryview(piece)[:at_most_bytes]
        return piece


class SocketOutbox:
    """Sends over the connection's own socket."""

    def __init__(
        self,
        descriptor: int,
        drained: Callable[[], None],
        lost: Callable[[Exception], None],
        unread: Callable[[int], None],
    ) -> None:
        self._socket = socket.socket(fileno=os.dup(descriptor))
        self._socket.setblocking(False)
        self._loop = asyncio.get_running_loop()
        self._drained = drained
        self._lost = lost
        self._unread = unread
        self._queue: deque[Piece] = deque()
        self._waiting = False
        self.progress = 0

    @property
    def busy(self) -> bool:
        """Whether the socket has not taken everything yet."""
        return bool(self._queue)

    def send(self, pieces: Sequence[Piece]) -> None:
        """Send `pieces` in order, after what is still waiting."""
        if not self._queue and len(pieces) == 1:
            pieces = self._sent_alone(pieces[0])
        self._queue.extend(pieces)
        if self._queue and not self._waiting:
            self._push()

    def _sent_alone(self, piece: Piece) -> Sequence[Piece]:
        """Nearly every answer is one piece, and the socket takes it. What is left to send of it."""
        if isinstance(piece, Slice):
            return (piece,)
        try:
            sent = self._socket.send(piece)
        except (BlockingIOError, InterruptedError):
            return (piece,)
        except OSError as fault:
            self._fail(fault)
            return ()
        return () if sent == len(piece) else (memoryview(piece)[sent:],)

    def close(self) -> None:
        """Forget what was not sent."""
        self._queue.clear()
        self._wait(False)
        self._socket.close()

    def pause(self) -> None:
        """Nothing is written through the transport."""

    def resume(self) -> None:
        """Nothing is written through the transport."""

    def _push(self) -> None:
        queue, left_bytes = self._queue, SENT_AT_ONCE_BYTES
        try:
            while queue and left_bytes > 0:
                first = queue[0]
                left_bytes -= self._send_file(first, left_bytes) if isinstance(first, Slice) else self._send_bytes()
        except (BlockingIOError, InterruptedError):
            self._wait(True)
        except OSError as fault:
            self._fail(fault)
        else:
            self._wait(bool(queue))  # for a turn of the others

    def _send_bytes(self) -> int:
        queue = self._queue
        buffers: list[bytes | memoryview] = []
        flags = 0
        for piece in queue:
            if isinstance(piece, Slice):
                flags = _MORE
                break
            if len(buffers) == _MAX_BUFFERS:
                break
            buffers.append(piece)
        sent = total = self._socket.sendmsg(buffers, (), flags)
        for buffer in buffers:
            if sent < len(buffer):
                queue[0] = memoryview(buffer)[sent:]
                break
            sent -= len(buffer)
            queue.popleft()
        return total

    def _send_file(self, piece: Slice, at_most_bytes: int) -> int:
        file, position, left = piece
        sent = os.sendfile(self._socket.fileno(), file.fileno(), position, min(left, at_most_bytes))
        if sent == 0:
            raise OSError(f"a file ends {left} bytes before what was promised of it")
        if sent < left:
            self._queue[0] = Slice(file, position + sent, left - sent)
        else:
            self._queue.popleft()
        return sent

    def _ready(self) -> None:
        self.progress += 1
        self._push()
        if not self._queue:
            self._drained()

    def _wait(self, wanted: bool) -> None:
        if wanted is not self._waiting:
            self._waiting = wanted
            self._unread(_in_memory(self._queue) if wanted else 0)
            if wanted:
                self._loop.add_writer(self._socket.fileno(), self._ready)
            else:
                self._loop.remove_writer(self._socket.fileno())

    def _fail(self, fault: OSError) -> None:
        self._queue.clear()
        self._wait(False)
        self._lost(fault)


def _in_memory(pieces: Sequence[Piece]) -> int:
    """The bytes of what is not in a file."""
    return sum(len(piece) for piece in pieces if not isinstance(piece, Slice))


def sendable(piece: Slice, at_least_bytes: int) -> Piece:
    """The slice itself if the kernel can send it and it is large enough for a system call; else its bytes.

    Raises StorageError when the file has fewer bytes than the log says.
    """
    if piece.length_bytes >= at_least_bytes and piece.file.fileno() >= 0:
        return piece
    return _whole(piece)


def _whole(piece: Slice) -> bytes:
    data = piece.read()
    if len(data) != piece.length_bytes:
        raise StorageError(f"a log file gave {len(data)} bytes of {piece.length_bytes}")
    return data
