"""What one connection receives: cuts frames out of its bytes, and reads its socket while there is room for more.

Theory of operation. A connection reads into a buffer of its own. Whole frames wait here until the connection takes
them; when too many wait, the socket is not read. That it is not read may have several reasons; it is read when the
last of them has gone.
A frame larger than `socket.request.max.bytes` is refused as soon as its length is known. Others that are not whole at
once, and larger than what a connection begins with, take memory that all connections share, and their sockets are not
read while there is none (`frame_memory`). The buffer stays as large as it was, as far as all together keep not too much
(`connections`). A frame of megabytes is not received before those ahead of it are answered, and its memory stays
counted until nobody uses it any more: it may wait for a thread. Of a client that has not said yet who it is one frame
is taken at a time: until that is answered nothing more is read, and its memory stays counted.
"""

import asyncio
from contextlib import suppress
from typing import Final, Protocol
from weakref import finalize

from ottla.base.clock import Clock
from ottla.base.limits import (
    IDLE_BUFFER_BYTES,
    LARGE_FRAME_BYTES,
    SLOW_FRAME_MS,
    STALLED_FRAME_MS,
)
from ottla.broker.connections import Connections
from ottla.broker.kept_buffer import KeptBuffer
from ottla.broker.waiting_frames import WaitingFrames
from ottla.wire.frames import FrameBuffer

#: How a client that speaks TLS begins. As the length of a frame it is 369 million bytes.
_TLS_HELLO: Final = b"\x16\x03"
#: And one that speaks HTTP.
_HTTP: Final = (b"GET ", b"HEAD", b"POST", b"PUT ", b"DELE", b"OPTI", b"PRI ")


class Answering(Protocol):
    """The connection that answers the frames. It is told to the receiver with each call, for it knows the receiver."""

    @property
    def is_answering(self) -> bool:
        """Whether something is not answered yet, or its answer not taken."""
        ...


class Receiver:
    """The receiving half of one connection."""

    __slots__ = (
        "_clock",
        "_connections",
        "_frame_since_ms",
        "_frames",
        "_had_frame",
        "_held_bytes",
        "_is_reading",
        "_kept",
        "_memory",
        "_transport",
        "_turn",
        "_waits_for_memory",
        "active_ms",
        "has_whole_frame",
        "is_admitted",
        "is_held",
        "waiting",
        "waits_for_answers",
    )

    def __init__(self, connections: Connections, clock: Clock, first_bytes: int, *, is_guarded: bool) -> None:
        """A frame has at most `first_bytes` until it is known who the client is, if that `is_guarded`."""
        self._connections, self._clock = connections, clock
        self._turn = connections.turn
        self._memory = connections.strangers_memory if is_guarded else connections.memory
        self._frames = FrameBuffer(first_bytes, one_by_one=is_guarded)
        self._kept = KeptBuffer(self._frames, connections)
        #: Whole frames that nobody has taken yet.
        self.waiting = WaitingFrames(connections)
        self._had_frame = False
        #: When something came last, or was answered.
        self.active_ms = clock.monotonic_ms()
        #: Since when a frame is being received, by the monotonic clock; None when none is.
        self._frame_since_ms: int | None = None
        #: What the frame that is being received has of the listener's memory; and whether it waits for that.
        self._held_bytes = 0
        self._waits_for_memory = False
        #: A frame of megabytes has begun, and what came before it is not answered yet.
        self.waits_for_answers = False
        #: A stranger's frame, or one that has to wait for the next turn, is whole, has its memory, and nothing is read.
        self.has_whole_frame = False
        #: It is not its turn to be served yet, or it is refused and will be closed.
        self.is_held = False
        #: Whether the client may stay for longer than it takes to say who it is.
        self.is_admitted = not is_guarded
        self._is_reading = True
        self._transport: asyncio.Transport | None = None

    def begin(self, transport: asyncio.Transport) -> None:
        """The connection is made."""
        self._transport = transport

    def lost(self) -> None:
        """The connection is lost."""
        self._transport = None
        self.waits_for_answers = False
        self.waiting.forget()
        self._memory.forget(self)
        if self._held_bytes > LARGE_FRAME_BYTES:
            self._connections.let_go(self._frames)
        self._give_memory_back()
        self._kept.forget()

    def admit(self, max_bytes: int) -> None:
        """It is known who the client is: frames may be as large as `socket.request.max.bytes` allows."""
        self.is_admitted = True
        self._frames.allow(max_bytes)

    @property
    def begins_with_tls(self) -> bool:
        """Whether the first that has come is how a client that speaks TLS begins."""
        return not self._had_frame and self._frames.begun.startswith(_TLS_HELLO)

    @property
    def begins_with_http(self) -> bool:
        """The same of one that speaks HTTP."""
        return not self._had_frame and self._frames.begun.startswith(_HTTP)

    def get_buffer(self, size_hint: int = -1) -> memoryview:
        """Room for more bytes."""
        room = self._frames.get_buffer(size_hint)
        self._kept.grown()
        return room

    def take(self, nbytes: int, connection: Answering) -> bool:
        """So many more bytes are here. Whether a frame is whole. Raises CorruptDataError when its length makes no
        sense."""
        frames = self._frames.commit(nbytes)
        self._kept.count()
        if frames:
            self._frame_since_ms = None
            self._had_frame = True
            keeps_memory = self._held_bytes and self._turn.is_over and not connection.is_answering
            self.waiting.add(frames)
            if not self.is_admitted or (keeps_memory and isinstance(frames[0], bytes)):
                self.has_whole_frame = True
                return True
            if isinstance(frames[0], memoryview):
                self._leave_memory_to(frames[0])
            elif self._held_bytes:
                self._give_memory_back()
        begun_bytes = self._frames.begun_bytes
        if begun_bytes:
            self._begin_frame(begun_bytes, connection)
        return bool(frames)

    def drop(self) -> None:
        """More bytes are here, and nobody wants them."""
        self._kept.count()

    def release(self) -> None:
        """The frame that had kept its memory is carried out; what is behind it may be taken."""
        self.has_whole_frame = False
        self._give_memory_back()

    def all_answered(self) -> None:
        """A frame of megabytes has waited for the answers ahead of it, and they are given: receive it."""
        self.waits_for_answers = False
        self._take_memory(self._frames.begun_bytes)
        self._go_on()

    def granted(self) -> None:
        """There is memory for the frame that has begun: go on to read it."""
        self._waits_for_memory = False
        self._held_bytes = self._frames.begun_bytes
        self._go_on()

    def _go_on(self) -> None:
        """The time for its frame begins now."""
        self._frame_since_ms = self.active_ms = self._clock.monotonic_ms()
        self.regulate()

    def _begin_frame(self, begun_bytes: int, connection: Answering) -> None:
        """A frame has begun. One that is too large for the buffer that each connection begins with needs memory."""
        if self._frame_since_ms is None:
            self._frame_since_ms = self.active_ms
        self.waits_for_answers = False
        if begun_bytes <= IDLE_BUFFER_BYTES or self._held_bytes or self._waits_for_memory:
            return
        self.waits_for_answers = begun_bytes > LARGE_FRAME_BYTES and connection.is_answering
        if self.waits_for_answers:
            self.regulate()
        else:
            self._take_memory(begun_bytes)

    def _take_memory(self, begun_bytes: int) -> None:
        if self.is_admitted:  # what it holds or waits for now is of the strangers' memory, if it was one until now
            self._memory = self._connections.memory
        if self._memory.take(self, begun_bytes):
            self._held_bytes = begun_bytes
        else:
            self._waits_for_memory = True
            self.regulate()

    def _leave_memory_to(self, frame: memoryview) -> None:
        """A frame of megabytes is whole: its memory is given back when the last view of it is gone, in any thread."""
        given, self._held_bytes = self._held_bytes, 0
        loop, give_back = asyncio.get_running_loop(), self._memory.give_back

        def gone() -> None:
            with suppress(RuntimeError):  # the loop is closed: the broker has stopped
                loop.call_soon_threadsafe(give_back, given)

        finalize(frame.obj, gone).atexit = False

    def _give_memory_back(self) -> None:
        if self._held_bytes:
            given, self._held_bytes = self._held_bytes, 0
            self._memory.give_back(given)

    def hold(self) -> None:
        """Read nothing, and call no frame whole, until `is_held` is set back and `regulate` called."""
        self.is_held = True
        self.regulate()

    def regulate(self) -> None:
        """Read the socket, unless too much waits here or there is no memory for what comes."""
        stops = self.waiting.are_too_many() or self.has_whole_frame or self.is_held
        stops = stops or self._waits_for_memory or self.waits_for_answers
        if stops is self._is_reading and self._transport is not None and not self._transport.is_closing():
            self._is_reading = not stops
            if stops:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    @property
    def waits_for_others(self) -> bool:
        """Whether it is not read because of what other connections receive: its client does nothing wrong."""
        return self._waits_for_memory

    def is_in_the_way(self, now_ms: int) -> str:
        """Why it must not keep the memory of its frame any longer: others wait for it. Empty if it may."""
        held_bytes = self._held_bytes if self._is_reading or not self.is_admitted else 0
        if held_bytes and self._memory.is_short:
            if now_ms - self.active_ms > STALLED_FRAME_MS:
                return "its frame has stopped, and others wait for its memory (queued.max.request.bytes)"
            if self._frame_since_ms is not None and now_ms - self._frame_since_ms > SLOW_FRAME_MS:
                return "its frame takes too long, and others wait for its memory (queued.max.request.bytes)"
        return ""

    def is_late(self, now_ms: int, max_idle_ms: int) -> bool:
        """Whether its frame is not whole after so long a time, however often a byte comes."""
        since_ms = self._frame_since_ms
        return self._is_reading and since_ms is not None and now_ms - since_ms > max_idle_ms

    def rest(self, now_ms: int) -> None:
        """Others need the memory of buffers. One that has long received nothing gives up its own."""
        if self._transport is not None and now_ms - self.active_ms > STALLED_FRAME_MS:
            self._kept.count()
