"""TLS on a connected socket of the broker: the handshake, step by step, and the transport behind it.

OpenSSL works in memory: what has come is taken from the socket into memory that all connections share, decrypted into
the connection's own buffer, and what is encrypted is sent from here. A system call brings many records that way, and a
record costs no call of its own.
"""

import asyncio
import socket
import ssl
from contextlib import suppress
from typing import Any, Final

from ottla.base.limits import HANDSHAKE_STEP_BYTES, RECEIVED_PIECE_BYTES, TLS_BYTES_AT_ONCE
from ottla.broker.sockets.poller import READ, WRITE, Poller
from ottla.broker.sockets.transport import SocketTransport

#: The bytes that one record has at most.
RECORD_BYTES: Final = 16_384
#: The alert "unexpected message": OpenSSL makes none for a client whose first bytes are not TLS. A client of Kafka sees
#: no answer in it, and ours knows what it is; and a listener without TLS answers one to a client that begins with TLS.
UNEXPECTED_MESSAGE: Final = b"\x15\x03\x03\x00\x02\x02\x0a"

#: The other end sends nothing more.
_EOF: Final = EOFError()


class Sealed:
    """A socket and the TLS on it."""

    def __init__(self, poller: Poller, connected: socket.socket) -> None:
        self.socket = connected
        self.incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls: ssl.SSLObject | None = None
        self._shared = poller.shared_memory
        #: What is encrypted, and the socket has not taken yet.
        self.unsent = b""

    def begin(self, context: ssl.SSLContext) -> None:
        """Behave as this context says. Once, before anything else."""
        self._tls = context.wrap_bio(self.incoming, self._outgoing, server_side=True)

    @property
    def tls(self) -> ssl.SSLObject:
        """OpenSSL's side."""
        assert self._tls is not None
        return self._tls

    @property
    def has_rest(self) -> bool:
        """Whether something has come that is not taken: the kernel knows nothing of it."""
        return self.incoming.pending > 0 or self.tls.pending() > 0

    def receive(self, at_most_bytes: int) -> int:
        """Take so much from the socket; how many bytes that were, 0 at the end. Raises OSError, as a socket does."""
        received_bytes = self.socket.recv_into(self._shared[:at_most_bytes])
        self.incoming.write(self._shared[:received_bytes])
        return received_bytes

    def flush(self) -> bool:
        """Send what is encrypted; whether the socket took all of it. Raises OSError, as a socket does."""
        if self._outgoing.pending:
            more = self._outgoing.read()
            self.unsent = self.unsent + more if self.unsent else more
        if self.unsent:
            try:
                sent_bytes = self.socket.send(self.unsent)
            except (BlockingIOError, InterruptedError):
                return False
            self.unsent = self.unsent[sent_bytes:]
        return not self.unsent

    def send_alert(self) -> None:
        """Tell the other end why the handshake has failed (RFC 8446, section 6.2)."""
        self.unsent += self._outgoing.read() or UNEXPECTED_MESSAGE
        with suppress(OSError):  # it is gone
            self.flush()


class Handshake:
    """The handshake of one client."""

    def __init__(self, poller: Poller, accepted: socket.socket) -> None:
        self._poller = poller
        self._descriptor = accepted.fileno()
        self.sealed = Sealed(poller, accepted)
        self._has_begun = False
        self._watched = 0
        self._done: asyncio.Future[None] | None = None

    async def hello(self) -> None:
        """Wait until the client has said something."""
        await self._wait()

    async def shake_hands(self, context: ssl.SSLContext) -> Sealed:
        """By what the client is heard from now on. Raises OSError if it cannot be agreed with: it is told why."""
        self.sealed.begin(context)
        self._has_begun = True
        await self._wait()
        return self.sealed

    async def _wait(self) -> None:
        done = self._done = asyncio.get_running_loop().create_future()
        self._watch(READ)
        try:
            await done
        finally:
            self._watch(0)
            self._done = None
            del done  # it may have the error, whose traceback has this frame

    def _watch(self, events: int) -> None:
        if events != self._watched:
            before, self._watched = self._watched, events
            self._poller.watch(self._descriptor, self, events, before)

    def ready(self, _events: int, only_a_piece: bool, /) -> int:
        """The poller's: the next step."""
        done = self._done
        if done is None or done.done():
            return 0
        if self._has_begun and only_a_piece:
            return RECEIVED_PIECE_BYTES
        try:
            is_over = not self._has_begun or self._step()
        except OSError as fault:
            done.set_exception(fault.with_traceback(None))  # it has this frame, and that the future
            is_over = True
        else:
            if is_over:
                done.set_result(None)
        if is_over:
            self._watch(0)
        return HANDSHAKE_STEP_BYTES if self._has_begun else 0

    def _step(self) -> bool:
        """Whether it is over. Raises OSError when it has failed."""
        sealed = self.sealed
        if sealed.unsent:
            self._watch(READ if sealed.flush() else WRITE)
            return False
        try:
            if not sealed.receive(TLS_BYTES_AT_ONCE):
                raise ConnectionResetError("the client has closed the connection")
        except (BlockingIOError, InterruptedError):
            return False
        try:
            sealed.tls.do_handshake()
        except ssl.SSLWantReadError:
            self._watch(READ if sealed.flush() else WRITE)
            return False
        except ssl.SSLError:
            sealed.send_alert()
            raise
        sealed.flush()
        return True

    def abort(self) -> None:
        """It has failed in a way that was not foreseen."""
        self._watch(0)
        if self._done is not None and not self._done.done():
            self._done.set_exception(ConnectionAbortedError("the handshake has failed"))


class TlsTransport(SocketTransport):
    """The transport of one connection with TLS, behind its handshake."""

    __slots__ = ("_sealed",)

    def __init__(self, poller: Poller, sealed: Sealed, peer: object) -> None:
        super().__init__(poller, sealed.socket, peer)
        self._sealed = sealed

    def begin(self, protocol: Any) -> None:
        """Serve this connection, and what came with the end of its handshake."""
        super().begin(protocol)
        self._tell_rest()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """`socket`, `peername` and `ssl_object`."""
        return self._sealed.tls if name == "ssl_object" else super().get_extra_info(name, default)

    @property
    def unsent_bytes(self) -> int:
        """What is encrypted and not sent."""
        return len(self._sealed.unsent)

    def send(self, piece: bytes | memoryview) -> int:
        """Encrypt and send a part of this; how much of it that was. 0 while the socket has not taken what was before.

        Raises OSError when it cannot be sent.
        """
        if not self.flush():
            return 0
        tls, size_bytes, taken_bytes = self._sealed.tls, min(len(piece), TLS_BYTES_AT_ONCE), 0
        with memoryview(piece) as whole:
            while taken_bytes < size_bytes:
                taken_bytes += tls.write(whole[taken_bytes:size_bytes])
        self.flush()
        return taken_bytes

    def flush(self) -> bool:
        """Send what is encrypted; whether the socket took all of it. Raises OSError when it cannot be sent."""
        return self._sealed.flush()

    def resume_reading(self) -> None:
        """Receive again, and what has come already first: the kernel knows nothing of that."""
        super().resume_reading()
        self._tell_rest()

    def _tell_rest(self) -> None:
        if self._watched & READ and self._sealed.has_rest:
            self._poller.again(self._socket.fileno())

    def _wanted(self) -> int:
        return super()._wanted() | (WRITE if self._sealed.unsent else 0)

    def ready(self, events: int, only_a_piece: bool, /) -> int:
        """The poller's."""
        taken_bytes = super().ready(events, only_a_piece)
        if self._push is None and events & WRITE and self._sealed.unsent:
            self._send_own()
        return taken_bytes

    def _receive(self, only_a_piece: bool) -> int:
        sealed = self._sealed
        if not sealed.has_rest:
            try:
                if not sealed.receive(RECORD_BYTES if only_a_piece else TLS_BYTES_AT_ONCE):
                    self._end()
                    return 0
            except (BlockingIOError, InterruptedError):
                return 0
            except OSError as fault:
                self._lose(fault)
                return 0
        return 2 * self._decrypt()  # each byte is moved twice, and decrypted

    def _decrypt(self) -> int:
        """Give the connection all that has come, as far as it is read; how many bytes that were."""
        protocol, sealed = self._protocol, self._sealed
        assert protocol is not None
        received_bytes = 0
        end: Exception | None = None
        while end is None and self.is_reading() and sealed.has_rest:
            more_bytes, end = self._decrypt_into(protocol.get_buffer(-1))
            if more_bytes:
                received_bytes += more_bytes
                protocol.buffer_updated(more_bytes)
        if end is _EOF:
            self._end()
        elif end is not None:
            self._lose(end)
        else:
            self._send_own()
        return received_bytes

    def _decrypt_into(self, room: memoryview) -> tuple[int, Exception | None]:
        """How many bytes came into the room, and why there are no more for now."""
        tls, size_bytes = self._sealed.tls, len(room)
        received_bytes = 0
        while received_bytes < size_bytes and self._sealed.has_rest:
            try:
                more_bytes: Any = tls.read(size_bytes - received_bytes, room[received_bytes:])
            except ssl.SSLWantReadError:
                break  # OpenSSL has taken a part of a record, and nothing is left here
            except ssl.SSLZeroReturnError:
                return received_bytes, _EOF
            except OSError as fault:
                return received_bytes, fault
            if not more_bytes:
                return received_bytes, _EOF
            received_bytes += more_bytes
        return received_bytes, None

    def _send_own(self) -> None:
        """OpenSSL may have something to say, as when keys are updated. What is not taken is sent when it may be."""
        if not self._is_closing:
            try:
                self.flush()
            except OSError:
                return  # it is lost, which is heard next
            self._watch()

    def close(self) -> None:
        """Say goodbye (`close_notify`), and close the connection."""
        if not self._is_closing:
            with suppress(OSError):
                self._sealed.tls.unwrap()  # it waits for the other end's goodbye, and nobody else does
            with suppress(OSError):
                self.flush()
        super().close()
