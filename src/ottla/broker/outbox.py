"""What a connection sends: bytes, and slices of files that the kernel copies to the socket.

Three ways to send: `SocketOutbox` where there is a socket, `TlsOutbox` where what is sent is encrypted, and
`TransportOutbox` where the transport has no socket that may be written to (in the simulator).

A transport cannot send files. So a connection writes to the socket itself: at once while the socket takes bytes, and
later when the poller says that it takes bytes again.
"""

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeAlias

from ottla.base.errors import StorageError
from ottla.base.limits import SENT_AT_ONCE_BYTES, TLS_BYTES_AT_ONCE
from ottla.broker.sockets.tls import RECORD_BYTES, TlsTransport
from ottla.broker.sockets.transport import SocketSide
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
    if not isinstance(transport, SocketSide):
        return TransportOutbox(transport, drained, lost)
    if isinstance(transport, TlsTransport):
        return TlsOutbox(transport, drained, lost, unread)
    return SocketOutbox(transport, drained, lost, unread)


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


class SocketOutbox:
    """Sends over the connection's socket."""

    def __init__(
        self,
        side: SocketSide,
        drained: Callable[[], None],
        lost: Callable[[Exception], None],
        unread: Callable[[int], None],
    ) -> None:
        self._side, self._socket = side, side.connected
        self._drained = drained
        self._lost = lost
        self._unread = unread
        self._queue: deque[Piece] = deque()
        self._waiting = False
        #: Whether the other end takes nothing any more: TLS cannot go on behind a failure.
        self._has_failed = False
        self.progress = 0

    @property
    def busy(self) -> bool:
        """Whether the socket has not taken everything yet."""
        return bool(self._queue)

    def send(self, pieces: Sequence[Piece]) -> None:
        """Send `pieces` in order, after what is still waiting. Behind a failure nothing is sent."""
        if self._has_failed:
            return
        if not self._queue and len(pieces) == 1:
            pieces = self._sent_alone(pieces[0])
        self._queue.extend(pieces)
        if self._queue and not self._waiting:
            self._push()

    def _sent_alone(self, piece: Piece) -> Sequence[Piece]:
        """Nearly every answer is one piece, and the socket takes it. What is left to send of it."""
        if isinstance(piece, Slice):
            return (piece,)
        if not piece:
            return ()
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

    def pause(self) -> None:
        """Nothing is written through the transport."""

    def resume(self) -> None:
        """Nothing is written through the transport."""

    def _push(self) -> int:
        """Send what may be sent in one turn; how many bytes that were."""
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
        return SENT_AT_ONCE_BYTES - left_bytes

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

    def _ready(self) -> int:
        self.progress += 1
        sent_bytes = self._push()
        if not self.busy:
            self._drained()
        return sent_bytes

    def _wait(self, wanted: bool) -> None:
        if wanted is not self._waiting:
            self._waiting = wanted
            self._unread(self._unread_bytes() if wanted else 0)
            self._side.watch_writing(self._ready if wanted else None)

    def _unread_bytes(self) -> int:
        return sum(len(piece) for piece in self._queue if not isinstance(piece, Slice))

    def _fail(self, fault: Exception) -> None:
        self._has_failed = True
        self._queue.clear()
        self._wait(False)
        self._lost(fault)


class TlsOutbox(SocketOutbox):
    """Sends over a socket with TLS.

    The kernel cannot send a file here, for what is sent has to be encrypted: its slices are read, piece by piece.
    """

    def __init__(
        self,
        side: TlsTransport,
        drained: Callable[[], None],
        lost: Callable[[Exception], None],
        unread: Callable[[int], None],
    ) -> None:
        super().__init__(side, drained, lost, unread)
        self._tls = side

    @property
    def busy(self) -> bool:
        """Whether the socket has not taken everything yet. What only TLS says keeps no answer back: none would be
        told that it is sent."""
        return self._waiting

    def send(self, pieces: Sequence[Piece]) -> None:
        """Send `pieces` in order, after what is still waiting. Behind a failure nothing is sent."""
        if self._has_failed:
            return
        if len(pieces) == 1 and not self._queue and not self._waiting and not self._tls.unsent_bytes:
            pieces = self._sent_alone(pieces[0])
        self._queue.extend(pieces)
        if self._queue and not self._waiting:
            self._push()

    def _sent_alone(self, piece: Piece) -> Sequence[Piece]:
        """Nearly every answer is one piece, and a record. What is left to send of it."""
        if isinstance(piece, Slice) or len(piece) > RECORD_BYTES:
            return (piece,)
        if piece:
            try:
                self._tls.send(piece)
            except OSError as fault:
                self._fail(fault)
            else:
                self._wait(self._tls.unsent_bytes > 0)
        return ()

    def _push(self) -> int:
        left_bytes, queue = TLS_BYTES_AT_ONCE, self._queue
        try:
            if self._tls.unsent_bytes:
                self._tls.flush()
            while queue and left_bytes > 0 and not self._tls.unsent_bytes:
                piece = self._next(left_bytes)
                taken_bytes = self._tls.send(piece)
                if taken_bytes < len(piece):
                    queue.appendleft(memoryview(piece)[taken_bytes:])
                left_bytes -= taken_bytes
        except (OSError, StorageError) as fault:
            self._fail(fault)
        else:
            self._wait(bool(queue) or self._tls.unsent_bytes > 0)  # for the client, or for a turn of the others
        return TLS_BYTES_AT_ONCE - left_bytes

    def _next(self, at_most_bytes: int) -> bytes | memoryview:
        """What comes next; small pieces are joined, for each that is encrypted alone becomes a record of its own."""
        first = self._taken(at_most_bytes)
        if len(first) >= RECORD_BYTES or not self._queue:
            return first
        parts, left_bytes = [first], at_most_bytes - len(first)
        while self._queue and left_bytes > 0:
            parts.append(self._taken(left_bytes))
            left_bytes -= len(parts[-1])
        return b"".join(parts)

    def _taken(self, at_most_bytes: int) -> bytes | memoryview:
        """So much of the first piece."""
        piece = self._queue.popleft()
        if isinstance(piece, Slice):
            file, position, left = piece
            if left > at_most_bytes:
                self._queue.appendleft(Slice(file, position + at_most_bytes, left - at_most_bytes))
            return _whole(Slice(file, position, min(left, at_most_bytes)))
        if len(piece) > at_most_bytes:
            self._queue.appendleft(memoryview(piece)[at_most_bytes:])
            return memoryview(piece)[:at_most_bytes]
        return piece

    def _unread_bytes(self) -> int:
        return super()._unread_bytes() + self._tls.unsent_bytes


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
