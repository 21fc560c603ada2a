"""The two ends of a simulated connection, and the pipes between them."""

import asyncio
from collections import deque
from contextvars import Context
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sim.network import Link, Network

#: Pieces in a pipe that are not bytes: the connection is accepted; the sender sends no more; the connection is broken.
ACCEPT, EOF, RESET = object(), object(), object()


class Pipe:
    """One direction of a link. It delivers pieces in order, each at its time."""

    __slots__ = ("_last_at", "_pieces", "_timer", "dead", "receiver", "sender")

    def __init__(self, sender: "SimTransport", receiver: "SimTransport") -> None:
        self.sender = sender
        self.receiver = receiver
        #: It accepts no more pieces.
        self.dead = False
        self._pieces: deque[tuple[float, object]] = deque()
        self._last_at = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def push(self, piece: object, extra_s: float = 0.0) -> None:
        """Send a piece; it arrives after a delay by chance and `extra_s`, and not before the pieces sent earlier."""
        if self.dead:
            return
        network = self.receiver.network
        at = max(self._last_at, network.loop.time() + network.delay_s() + extra_s)
        self._last_at = at
        self._pieces.append((at, piece))
        if self._timer is None:
            self._arm(at)

    def stall(self, extra_s: float) -> None:
        """Delay the pieces that are on their way."""
        self._pieces = deque((at + extra_s, piece) for at, piece in self._pieces)
        self._last_at += extra_s

    def clear(self) -> None:
        """Lose the pieces that are on their way."""
        self._pieces.clear()

    def kill(self) -> None:
        """Lose the pieces that are on their way, and accept no more."""
        self.clear()
        self.dead = True

    def move(self) -> None:
        """Deliver the pieces that are due."""
        self._timer = None
        network = self.receiver.network
        while self._pieces:
            at, piece = self._pieces[0]
            if network.holds(self):
                return
            if at > network.loop.time():
                self._arm(at)
                return
            self._pieces.popleft()
            if isinstance(piece, bytes):
                self.sender.sent(len(piece))
            self.receiver.arrived(piece)

    def rearm(self) -> None:
        """The pipe was held and may try again."""
        if self._timer is None and self._pieces:
            self._arm(self.receiver.network.loop.time() + self.receiver.network.delay_s())

    def _arm(self, at: float) -> None:
        self._timer = self.receiver.network.loop.call_at(at, self.move, context=self.receiver.context)


class SimTransport(asyncio.Transport):
    """One end of a link, as a protocol sees it."""

    def __init__(self, network: "Network", host: str, peer_host: str, context: Context) -> None:
        super().__init__()
        self.network = network
        self.host = host
        self.peer_host = peer_host
        self.context = context
        self.reading_paused = False
        self._protocol: asyncio.BaseProtocol | None = None
        self._link: Link | None = None
        self._out: Pipe | None = None
        self._made = False
        self._closing = False
        self._lost = False
        self._eof_sent = False
        self._unsent_bytes = 0
        self._writing_paused = False
        self._high = network.rng.choice((8_192, 65_536, 262_144))

    def attach(self, link: "Link", out: Pipe, protocol: asyncio.BaseProtocol) -> None:
        """Make this an end of `link`, which sends through `out`, for `protocol`."""
        self._link, self._out, self._protocol = link, out, protocol

    # protocols call these

    def write(self, data: Any) -> None:
        if self._closing or self._eof_sent or self._out is None or self._link is None:
            return
        piece = bytes(data)
        weather, rng = self.network.weather, self.network.rng
        self._unsent_bytes += len(piece)
        if len(piece) > 1 and weather.fragment and rng.random() < weather.fragment:
            at = rng.randrange(1, len(piece))
            self._out.push(piece[:at])
            self._out.push(piece[at:])
        else:
            self._out.push(piece)
        if weather.cut and rng.random() < weather.cut:
            self.network.cut_soon(self._link)
        if self._unsent_bytes > self._high and not self._writing_paused:
            self._writing_paused = True
            self._call("pause_writing")

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def write_eof(self) -> None:
        if not self._eof_sent and not self._closing and self._out is not None:
            self._eof_sent = True
            self._out.push(EOF)

    def can_write_eof(self) -> bool:
        return True

    def close(self) -> None:
        if self._closing or self._out is None:
            return
        self._closing = True
        if not self._eof_sent:
            self._out.push(EOF)
        self.network.loop.call_soon(self.lose, None, context=self.context)

    def abort(self) -> None:
        if self._lost or self._out is None:
            return
        self._closing = True
        if self.network.rng.random() < 0.5:  # the bytes are lost; else they were on the wire already
            self._out.clear()
        self._out.push(RESET)
        self.network.loop.call_soon(self.lose, None, context=self.context)

    def is_closing(self) -> bool:
        return self._closing

    def pause_reading(self) -> None:
        self.reading_paused = True

    def resume_reading(self) -> None:
        self.reading_paused = False
        self.network.release()

    def is_reading(self) -> bool:
        return not self.reading_paused and not self._closing

    def get_write_buffer_size(self) -> int:
        return self._unsent_bytes

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"peername": (self.peer_host, 0), "sockname": (self.host, 0)}.get(name, default)

    def get_protocol(self) -> asyncio.BaseProtocol:
        assert self._protocol is not None
        return self._protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    # pipes call these

    def sent(self, size: int) -> None:
        """So many of the bytes that were written have arrived."""
        self._unsent_bytes -= size
        if self._writing_paused and self._unsent_bytes <= self._high // 4:
            self._writing_paused = False
            if not self._lost:
                self.network.loop.call_soon(self._call, "resume_writing", context=self.context)

    def arrived(self, piece: object) -> None:
        """A piece has come through the other end's pipe."""
        if piece is ACCEPT:
            self.accept()
        elif self._lost or self._closing:
            if isinstance(piece, bytes) and self._out is not None:
                self._out.push(RESET)
                self._out.dead = True
        elif piece is RESET:
            self.lose(ConnectionResetError("connection reset by peer"))
        elif piece is EOF:
            if not self._call("eof_received"):
                self.close()
        elif isinstance(piece, bytes):
            self._received(piece)

    def accept(self) -> None:
        """The connection is made: tell the protocol."""
        if not self._lost:
            self._made = True
            self._call("connection_made", self)

    def lose(self, reason: Exception | None) -> None:
        """This end has lost the connection: tell the protocol."""
        if self._lost:
            return
        self._lost = self._closing = True
        if self._link is not None:
            self._link.ended()
        if self._made:
            # in this end's own context: whoever cuts a link, or writes to it, may live on another host
            self.network.loop.call_soon(self._call, "connection_lost", reason, context=self.context)

    def vanish(self) -> None:
        """This end's process is gone: tell nobody."""
        self._made = False
        self.lose(None)

    @property
    def lost(self) -> bool:
        """Whether this end has lost the connection."""
        return self._lost

    # inside

    def _received(self, piece: bytes) -> None:
        protocol = self._protocol
        try:
            if isinstance(protocol, asyncio.BufferedProtocol):
                view = memoryview(piece)
                while view and not self._closing:
                    room = memoryview(protocol.get_buffer(len(view)))
                    size = min(len(room), len(view))
                    room[:size] = view[:size]
                    view = view[size:]
                    protocol.buffer_updated(size)
            elif isinstance(protocol, asyncio.Protocol):
                protocol.data_received(piece)
        except Exception as error:  # noqa: BLE001 - as asyncio: report it, and close the connection
            self._broke(error)

    def _call(self, name: str, *args: object) -> object:
        try:
            return getattr(self._protocol, name)(*args)
        except Exception as error:  # noqa: BLE001 - as asyncio: report it, and close the connection
            self._broke(error)
            return None

    def _broke(self, error: Exception) -> None:
        self.network.loop.call_exception_handler({"message": "a protocol raised", "exception": error})
        self.abort()
