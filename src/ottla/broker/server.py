"""A connection: answers the frames of a client in order, one at a time.

Theory of operation. A connection is an `asyncio.BufferedProtocol`. What it receives goes to its `receiving.Receiver`,
which cuts frames out of it and says when the socket is read; whole frames go to `dispatch`. As in Kafka a connection
works on one request at a time. While an answer is outstanding, or the peer does not read its answers, later frames
wait. As in Kafka, a frame that cannot be understood closes the connection, and what waits behind it is dropped. What
comes behind a connection's last request is read and dropped: if it were left, its end might not let the answer through.
Nothing that a peer sends can raise an exception out of this module.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from ssl import SSLEOFError
from typing import Any, Protocol, cast

from ottla.base.clock import Clock
from ottla.base.errors import CorruptDataError, OttlaError
from ottla.base.limits import AUTHENTICATION_MS, FRAME_BYTES_AT_ONCE, FRAMES_AT_ONCE, ROW_MS
from ottla.broker.answers import Answer, Dispatch, Encoded, Frame, Last, Later, Throttled, forget
from ottla.broker.connections import IDLE, Connections
from ottla.broker.last_frames import is_produce
from ottla.broker.outbox import Outbox, make_outbox
from ottla.broker.quotas.connections import Admission
from ottla.broker.receiving import Receiver
from ottla.broker.session import Session
from ottla.broker.sockets.tls import UNEXPECTED_MESSAGE

_log = logging.getLogger(__name__)


class Home(Protocol):
    """The listener by which a connection came, as the connection needs it (`listening`)."""

    name: str
    dispatch: Dispatch
    clock: Clock
    connections: Connections
    max_request_bytes: int
    first_bytes: int

    @property
    def is_guarded(self) -> bool: ...

    def guarded(self, admit: Callable[[], None], /) -> Dispatch: ...

    def identify(self, connection: "Connection", transport: asyncio.BaseTransport, /) -> bool: ...


class Connection(asyncio.BufferedProtocol):
    """One client's connection."""

    def __init__(self, listener: Home) -> None:
        self._listener = listener
        connections = listener.connections
        self._receiver = Receiver(connections, listener.clock, listener.first_bytes, is_guarded=listener.is_guarded)
        self._waiting = self._receiver.waiting
        self._turn = connections.turn
        self._turn_is_due = False
        self._later: Later | None = None
        self._outbox: Outbox | None = None
        self._transport: asyncio.Transport | None = None
        self.session = Session(listener.name, "/")
        self.session.is_known = not listener.is_guarded
        self._since_ms = self._receiver.active_ms
        #: Whether it may stay, where that was asked before the handshake.
        self._admission: Admission | None = None
        #: Nothing more will come: it closes when the frames that wait are carried out, and their answers taken.
        self._is_at_end = False
        self._has_ended = False
        #: Its client is gone, and nobody hears the answers: only what it produced is carried out, as in `last_frames`.
        self._is_unheard = False
        #: What the outbox had told of its progress when that was last asked.
        self._progress = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have the methods of asyncio.Transport but are no subclass of it.
        self._transport = cast(asyncio.Transport, transport)
        self._receiver.begin(self._transport)
        # Not before: it may know this connection, and only `connection_lost` ends that cycle.
        self._dispatch: Dispatch = self._listener.guarded(self.admit)
        peer = transport.get_extra_info("peername")
        if isinstance(peer, tuple):
            self.session.client_host = f"/{peer[0]}"
        admission = self._admission or self._listener.connections.opened(self)
        self._outbox = make_outbox(self._transport, self._work, self._lost, self._unread)
        if self._listener.connections.is_closing or not self._listener.identify(self, transport):
            self.close()
        elif admission.delay_ms and self._admission is None:
            self._wait(admission)
        elif admission.refused:
            self.close()

    def opened(self) -> Admission:
        """Count it, before its handshake. Whoever calls keeps to what is said."""
        self._admission = self._listener.connections.opened(self)
        return self._admission

    def _wait(self, admission: Admission) -> None:
        self._receiver.hold()
        asyncio.get_running_loop().call_later(admission.delay_ms / 1000, self._waited, bool(admission.refused))

    def _waited(self, is_refused: bool) -> None:
        self._receiver.is_held = False
        if is_refused:
            self.close()
        else:
            self._work()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._listener.connections.closed(self)
        self.session.is_gone = True
        self._leave_the_last()
        self._receiver.lost()
        if self._outbox is not None:
            self._outbox.close()
            self._outbox = None
        self._dispatch = self._listener.dispatch  # what stood before it knows this connection: no cycle may stay

    def _leave_the_last(self) -> None:
        """Nobody waits any more for what is under way, but a producer with acks=0 wants it written."""
        later, self._later = self._later, None
        rest = self._waiting if self._has_ended else ()
        if later is not None and not later.outlives and not (rest and isinstance(later, Throttled)):
            later.future.cancel()
            later = None
        if later is not None or rest:
            connections = self._listener.connections
            if not connections.last_frames.take(later, tuple(rest), self._dispatch, self.session):
                connections.tell(self.session.client_host, f"what {self.session.client_host} sent last is dropped")

    def admit(self) -> None:
        """It is known who the client is."""
        self.session.is_known = True
        self._receiver.admit(self._listener.max_request_bytes)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._receiver.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        receiver = self._receiver
        receiver.active_ms = now_ms = self._listener.clock.monotonic_ms()
        if isinstance(self._later, Last):
            receiver.drop()
            return
        try:
            is_whole = receiver.take(nbytes, self)
        except CorruptDataError as fault:
            self._refuse(fault)
            return
        if is_whole and not receiver.is_held:
            self._work(now_ms)

    @property
    def active_ms(self) -> int:
        """When its client has said or heard something last, by the clock that never steps."""
        return self._receiver.active_ms

    @property
    def is_answering(self) -> bool:
        """Whether something is not answered yet, or its answer not taken."""
        return bool(self._waiting) or self._later is not None or (self._outbox is not None and self._outbox.busy)

    def rest(self, now_ms: int) -> None:
        self._receiver.rest(now_ms)

    def overdue(self, now_ms: int, max_idle_ms: int) -> str:
        """Why it is time to close this connection; empty if it is not. A `max_idle_ms` below 0 is no limit.

        It is idle; or its frame is not whole after as long a time, however often a byte comes; or its frame has
        stopped, or is slow, and others wait for the memory.
        """
        if self._transport is None:
            return ""
        receiver = self._receiver
        if not receiver.is_admitted and now_ms - self._since_ms > AUTHENTICATION_MS:
            return "it has not said in time who it is"
        if receiver.waits_for_others:
            return ""
        why = receiver.is_in_the_way(now_ms)
        if why or max_idle_ms < 0:
            return why
        if self._outbox is not None and self._outbox.progress != self._progress:  # it reads, however slowly
            self._progress, receiver.active_ms = self._outbox.progress, now_ms
        if receiver.is_late(now_ms, max_idle_ms):
            return "its frame is not whole after connections.max.idle.ms"
        return IDLE if now_ms - receiver.active_ms > max_idle_ms else ""

    def pause_writing(self) -> None:
        if self._outbox is not None:
            self._outbox.pause()

    def resume_writing(self) -> None:
        if self._outbox is not None:
            self._outbox.resume()

    def eof_received(self) -> bool:
        """Whether to stay: what has come before the end is carried out, and answered if that is heard."""
        self._has_ended = True
        is_busy = bool(self._waiting) or (self._outbox is not None and self._outbox.busy)
        self._is_at_end = is_busy and not self._is_unheard  # else `last_frames` has what waits
        return self._is_at_end

    def close(self) -> None:
        """Close now; what was not sent yet is dropped."""
        if self._transport is not None:
            self._transport.abort()

    def _work(self, now_ms: int | None = None) -> None:
        """Answer waiting frames until one has to wait. Then decide whether the socket should be read.

        After a few frames in a row, or large ones, or some that took long, the other connections have their turn.
        """
        if self._transport is None:
            return  # it is lost; this turn was due before
        receiver = self._receiver
        handled = handled_bytes = 0
        now_ms = begun_ms = self._listener.clock.monotonic_ms() if now_ms is None else now_ms
        while self._waiting and self._later is None and self._outbox is not None and not self._outbox.busy:
            is_long = handled == FRAMES_AT_ONCE or handled_bytes >= FRAME_BYTES_AT_ONCE
            is_over = self._turn.is_over
            if is_over or is_long or now_ms - begun_ms >= ROW_MS:
                self._wait_for_turn(is_over)
                break
            handled += 1
            frame = self._waiting.take()
            handled_bytes += len(frame)
            is_understood, now_ms = self._carry_out(frame), self._spend_since(now_ms)
            if not is_understood:
                self._waiting.forget()
                return
            if receiver.has_whole_frame:
                self._cut_behind()
        if self._is_at_end and not self.is_answering:
            self._transport.close()
        elif receiver.waits_for_answers and not self.is_answering:
            receiver.all_answered()
        else:
            receiver.regulate()

    def _cut_behind(self) -> None:
        """The frame that had kept its memory is carried out. The next one may be here already."""
        self._receiver.release()
        if not isinstance(self._later, Last):
            try:
                self._receiver.take(0, self)
            except CorruptDataError as fault:
                self._refuse(fault)

    def _carry_out(self, frame: Frame) -> bool:
        """Whether it is understood. If not, the connection is closed."""
        if self._is_unheard and not is_produce(frame):
            return True  # a fetch or a join may wait for as long as the client liked
        try:
            answer = self._dispatch(frame, self.session)
        except CorruptDataError as fault:
            self._refuse(fault)
            return False
        except Exception:  # noqa: BLE001 - logged; one bad request must not stop the broker
            _log.exception("a request of %s failed; its connection is closed", self.session.client_host)
            self.close()
            return False
        self._reply(answer)
        return True

    def _spend_since(self, begun_ms: int) -> int:
        """What goes on since then has kept the loop. What time it is now."""
        self._receiver.active_ms = now_ms = self._listener.clock.monotonic_ms()
        if now_ms != begun_ms:
            self._turn.spend(now_ms - begun_ms)
        return now_ms

    def _wait_for_turn(self, is_over: bool) -> None:
        """The next turn: behind those who wait already if this one is over, else before others send."""
        if not self._turn_is_due:
            self._turn_is_due = True
            wait: Callable[..., object] = self._turn.wait if is_over else asyncio.get_running_loop().call_soon
            wait(self._take_turn)

    def _take_turn(self) -> None:
        self._turn_is_due = False
        self._work()

    def _answered(self, future: asyncio.Future[Any]) -> None:
        if self._turn.is_over:  # one record may answer thousands
            self._turn.wait(partial(self._answered, future))
            return
        later, self._later = self._later, None
        if later is None or future.cancelled() or self._transport is None:
            forget(future)
            return
        begun_ms = self._listener.clock.monotonic_ms()
        met = future.exception() or future.result()
        if isinstance(met, BaseException):  # not raised here: its traceback would keep this request alive
            self._give_up(met)
            return
        try:
            answer = later.encode(met)
        except Exception as raised:  # noqa: BLE001 - one bad request must not stop the broker
            self._give_up(raised)
            return
        self._reply(answer)
        self._spend_since(begun_ms)
        if isinstance(later, Last):
            self._end(later)
        elif self._later is None:
            self._work()

    def _give_up(self, fault: BaseException) -> None:
        if isinstance(fault, OttlaError):
            self._listener.connections.tell_closed(self.session.client_host, fault)
        else:
            _log.error("a request of %s failed; its connection is closed", self.session.client_host, exc_info=fault)
        self.close()

    def _end(self, last: Last) -> None:
        """Close when what was sent is on its way. Nothing more is answered meanwhile."""
        self._later = last
        self._waiting.forget()
        if self._outbox is None or self._outbox.busy or self._transport is None:
            self.close()
        else:
            self._transport.close()

    def _reply(self, answer: "Answer") -> None:
        if isinstance(answer, Later):
            if isinstance(answer, Throttled):
                self._send(answer.encoded)
            self._later = answer
            answer.future.add_done_callback(self._answered)
        else:
            self._send(answer)

    def _send(self, encoded: Encoded) -> None:
        if self._outbox is not None and encoded is not None:
            self._outbox.send(encoded if isinstance(encoded, list) else (encoded,))

    def _unread(self, size_bytes: int) -> None:
        """The client does not take so much of an answer; 0: it has."""
        if size_bytes:
            self._listener.connections.unread.waits(self, size_bytes)
        else:
            self._listener.connections.unread.taken(self)

    def _lost(self, fault: Exception) -> None:
        """An answer cannot be sent. A client that is gone may have sent more before: that is received first."""
        if isinstance(fault, ConnectionError | SSLEOFError):
            self._has_ended = self._is_unheard = True
            if self._is_at_end:
                self.close()
        else:
            _log.info("the connection of %s is lost: %s", self.session.client_host, fault)
            self.close()

    def _refuse(self, fault: CorruptDataError) -> None:
        begins_tls = self._receiver.begins_with_tls
        why: object = fault
        if begins_tls:
            why = "it speaks TLS, and this listener does not (security.protocol of the client?)"
        elif self._receiver.begins_with_http:
            why = "it speaks HTTP, and this is a port for Kafka's clients"
        self._listener.connections.tell_closed(self.session.client_host, why)
        if begins_tls and self._transport is not None:
            self._send(UNEXPECTED_MESSAGE)
            self._transport.close()
        else:
            self.close()
