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

from ottla.base.limits import (
    HANDSHAKE_STEP_BYTES,
    MAX_OWN_WORDS_BYTES,
    RECEIVED_LEAST_BYTES,
    RECEIVED_PIECE_BYTES,
    TLS_BYTES_AT_ONCE,
    TLS_RECORDS_AT_ONCE,
    TLS_RECORDS_OF_HANDSHAKE,
    TLS_RECORDS_OF_PIECE,
)
from ottla.broker.sockets.poller import READ, WRITE, Poller
from ottla.broker.sockets.records import Records
from ottla.broker.sockets.transport import SocketTransport

#: The bytes that one record has at most.
RECORD_BYTES: Final = 16_384
#: What OpenSSL is given, and gives, at once: its memory for it grows so far, and stays.
_STEP_BYTES: Final = 4 * RECORD_BYTES
#: The alert "unexpected message": OpenSSL makes none for a client whose first bytes are not TLS. A client of Kafka sees
#: no answer in it, and ours knows what it is; and a listener without TLS answers one to a client that begins with TLS.
UNEXPECTED_MESSAGE: Final = b"\x15\x03\x03\x00\x02\x02\x0a"

_NOTHING: Final = memoryview(b"")
#: The other end sends nothing more.
_EOF: Final = EOFError()


class Sealed:
    """A socket and the TLS on it."""

    __slots__ = (
        "_come",
        "_is_broken",
        "_outgoing",
        "_records",
        "_shared",
        "incoming",
        "left_records",
        "socket",
        "tls",
        "unsent",
    )

    def __init__(self, poller: Poller, connected: socket.socket) -> None:
        self.socket = connected
        self.incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        #: OpenSSL's side, from `begin` on.
        self.tls: ssl.SSLObject
        self._shared = poller.shared_memory
        #: What has come and OpenSSL has not yet, and where its records begin.
        self._come = _NOTHING
        self._records = Records()
        #: How many more of them OpenSSL may be given in this turn.
        self.left_records = 0
        #: What is encrypted, and the socket has not taken yet.
        self.unsent = b""
        self._is_broken = False

    def begin(self, context: ssl.SSLContext) -> None:
        """Behave as this context says. Once, before anything else."""
        self.tls = context.wrap_bio(self.incoming, self._outgoing, server_side=True)

    @property
    def has_more(self) -> bool:
        """Whether something has come that OpenSSL has not."""
        return len(self._come) > 0

    @property
    def has_words(self) -> bool:
        """Whether something is encrypted that is not sent."""
        return bool(self.unsent or self._outgoing.pending)

    @property
    def has_rest(self) -> bool:
        """Whether something has come that is not taken: the kernel knows nothing of it."""
        return self.has_more or self.incoming.pending > 0 or self.tls.pending() > 0

    def receive(self, at_most_bytes: int) -> int:
        """Take so much from the socket; how many bytes that were, 0 at the end. Raises OSError, as a socket does.

        To be called when there is no more of what came before. `keep` comes before others receive.
        """
        received_bytes = self.socket.recv_into(self._shared[:at_most_bytes])
        self._come = self._shared[:received_bytes]
        return received_bytes

    def feed(self) -> bool:
        """Whether OpenSSL has something; it is given a step of what has come, if that has no record too many."""
        if self.incoming.pending or self.tls.pending():
            return True
        come = self._come
        if not come or self.left_records <= 0:
            return False
        step = come if len(come) <= _STEP_BYTES else come[:_STEP_BYTES]
        size_bytes, records = self._records.cut(step, self.left_records)
        self.left_records -= records
        if size_bytes == len(come):
            self.incoming.write(come)
            self._come = _NOTHING
        else:
            self.incoming.write(come[:size_bytes])
            self._come = come[size_bytes:]
        return True

    def keep(self) -> None:
        """Have what was not fed in memory of its own."""
        if self._come:
            self._come = memoryview(bytes(self._come))

    def encrypt(self, piece: memoryview) -> None:
        """All of this. To be called when nothing is unsent."""
        if len(piece) <= _STEP_BYTES:
            self.tls.write(piece)
            self.unsent = self._outgoing.read()
            return
        parts = []
        for begin in range(0, len(piece), _STEP_BYTES):
            self.tls.write(piece[begin : begin + _STEP_BYTES])
            parts.append(self._outgoing.read())
        self.unsent = b"".join(parts)

    def flush(self) -> bool:
        """Send what is encrypted; whether the socket took all of it. Raises OSError, as a socket does, and again."""
        if self._is_broken:
            self.unsent = b""
            raise BrokenPipeError("nothing can be sent any more")
        if self._outgoing.pending:
            more = self._outgoing.read()
            self.unsent = self.unsent + more if self.unsent else more
        if self.unsent:
            try:
                sent_bytes = self.socket.send(self.unsent)
            except (BlockingIOError, InterruptedError):
                return False
            except OSError:
                self._is_broken, self.unsent = True, b""  # nobody waits for room to send it
                raise
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
            self._go_on()
            return False
        try:
            if not sealed.has_more and not sealed.receive(_STEP_BYTES):
                raise ConnectionResetError("the client has closed the connection")
        except (BlockingIOError, InterruptedError):
            return False
        sealed.left_records = TLS_RECORDS_OF_HANDSHAKE
        sealed.feed()
        sealed.keep()
        try:
            sealed.tls.do_handshake()
        except ssl.SSLWantReadError:
            self._go_on()
            return False
        except ssl.SSLError:
            sealed.send_alert()
            raise
        sealed.flush()
        return True

    def _go_on(self) -> None:
        """Send what OpenSSL says. What is here already comes next, or what comes."""
        is_sent = self.sealed.flush()
        self._watch(READ if is_sent else WRITE)
        if is_sent and self.sealed.has_more:
            self._poller.again(self._descriptor)

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
        sealed = self._sealed
        if sealed.unsent and not sealed.flush():
            return 0
        with memoryview(piece)[:TLS_BYTES_AT_ONCE] as taken:
            sealed.encrypt(taken)
            sealed.flush()
            return len(taken)

    def flush(self) -> bool:
        """Send what is encrypted; whether the socket took all of it. Raises OSError when it cannot be sent."""
        return self._sealed.flush()

    def is_reading(self) -> bool:
        """Whether it is received from: not while so much waits here of what only OpenSSL may have said."""
        if self._is_paused or self._has_ended or self._is_closing:
            return False
        return len(self._sealed.unsent) <= MAX_OWN_WORDS_BYTES

    def _watch(self) -> None:
        before = self._watched
        super()._watch()
        if self._watched & READ and not before & READ and self._sealed.has_rest:
            self._poller.again(self._socket.fileno())  # what has come already: the kernel knows nothing of that

    def _wanted(self) -> int:
        writing = WRITE if self._push is not None or self._sealed.unsent else 0
        return (READ if self.is_reading() else 0) | writing

    def ready(self, events: int, only_a_piece: bool, /) -> int:
        """The poller's."""
        taken_bytes = super().ready(events, only_a_piece)
        if self._push is None and events & WRITE and self._sealed.unsent:
            self._send_own()
        return taken_bytes

    def _receive(self, only_a_piece: bool) -> int:
        sealed, protocol = self._sealed, self._protocol
        assert protocol is not None
        come_bytes, room = 0, protocol.get_buffer(-1)
        if not sealed.has_rest:
            # Little more than there is room for: what a connection that is not read leaves here is counted nowhere.
            at_most_bytes = RECEIVED_PIECE_BYTES if only_a_piece else max(RECORD_BYTES, len(room))
            try:
                come_bytes = sealed.receive(min(at_most_bytes, TLS_BYTES_AT_ONCE))
            except (BlockingIOError, InterruptedError):
                return 0
            except OSError as fault:
                self._lose(fault)
                return 0
            if not come_bytes:
                self._end()
                return 0
        return max(come_bytes, self._decrypt(room, TLS_RECORDS_OF_PIECE if only_a_piece else TLS_RECORDS_AT_ONCE))

    def _decrypt(self, room: memoryview | None, at_most_records: int) -> int:
        """Give the connection what has come, as far as it is read; how much of the turn that has taken."""
        protocol, sealed = self._protocol, self._sealed
        assert protocol is not None
        received_bytes, sealed.left_records = 0, at_most_records
        end: Exception | None = None
        is_dry = False
        while end is None and not is_dry and self.is_reading() and sealed.feed():
            here = protocol.get_buffer(-1) if room is None else room
            more_bytes, end = self._decrypt_into(here)
            is_dry = more_bytes < len(here)  # OpenSSL has nothing, and may be given no more
            if more_bytes:
                received_bytes, room = received_bytes + more_bytes, None
                protocol.buffer_updated(more_bytes)
        sealed.keep()
        if end is _EOF:
            self._end()
        elif end is not None:
            self._send_own()  # OpenSSL's alert
            self._lose(end)
        elif sealed.has_words:
            self._send_own()
        records = at_most_records - sealed.left_records
        if self._watched & READ and (sealed.has_more if is_dry else sealed.has_rest):
            self._poller.again(self._socket.fileno())
            records = max(records, TLS_RECORDS_OF_PIECE + 1)  # it waits for its turn
        # Each byte is moved twice, and decrypted.
        return max(2 * received_bytes, (records - TLS_RECORDS_OF_PIECE) * RECEIVED_LEAST_BYTES)

    def _decrypt_into(self, room: memoryview) -> tuple[int, Exception | None]:
        """How many bytes came into the room, and what has ended the connection. OpenSSL has something at first."""
        sealed, tls, size_bytes = self._sealed, self._sealed.tls, len(room)
        received_bytes = 0
        while True:
            try:
                more_bytes: Any = tls.read(size_bytes - received_bytes, room[received_bytes:])
            except ssl.SSLWantReadError:
                more_bytes = 0  # OpenSSL has taken a part of a record
            except ssl.SSLZeroReturnError:
                return received_bytes, _EOF
            except OSError as fault:
                return received_bytes, fault.with_traceback(None)  # it has the frame that keeps the fault
            else:
                if not more_bytes:
                    return received_bytes, _EOF
            received_bytes += more_bytes
            if received_bytes == size_bytes or not sealed.feed():
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
