"""A simulated network: connections between named hosts, which delay, break and lie as real ones do.

A connection is a Link of two ends and two pipes, one for each direction. A pipe delivers in order, each piece after a
drawn delay. What goes wrong is decided by `Weather` (chances, drawn at each write and connect) and by whoever calls
`cut`, `block`, `freeze` and `kill`. The ways in which a connection ends are `Cut`: they differ in who notices when, and
in whether what was sent before still arrives.

Whose host a connection comes from is a context variable, HOST: set it in the task of each simulated process.
"""

import asyncio
import random
from collections import deque
from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context
from dataclasses import dataclass
from enum import Enum
from typing import Any

from sim.loop import SimLoop

#: The host on which the running task lives.
HOST: ContextVar[str] = ContextVar("host", default="nowhere")

#: What a piece in a pipe can be beside bytes.
_ACCEPT, _EOF, _RESET = object(), object(), object()
#: Longest time that what was sent before a cut stays on its way.
_LATE_S = 12.0


class Cut(Enum):
    """How a connection breaks."""

    #: Both sides notice at once; what is on its way is gone.
    BOTH = "both notice"
    #: The client notices; what it has sent still arrives, perhaps much later; then the server notices.
    CLIENT_FIRST = "the client notices, its requests still arrive"
    #: The server notices; the client hears of it later, and of no answer any more.
    SERVER_FIRST = "the server notices first"
    #: The server goes on for a while, but no answer comes back.
    ANSWERS_LOST = "answers are lost"
    #: Nobody notices, and nothing arrives any more.
    SILENT = "nobody notices"


_CUTS = tuple(Cut)


@dataclass(slots=True)
class Weather:
    """Chances, each for one write or connect, and delays in seconds."""

    delay_s: float = 0.001
    #: How often a piece takes far longer than the others, and how long.
    spike: float = 0.0
    spike_s: float = 0.5
    #: How often a connect is refused, a connection cut at a write, a piece delivered in two.
    refuse: float = 0.0
    cut: float = 0.0
    fragment: float = 0.0

    def calm(self) -> None:
        """No more faults; delays stay."""
        self.spike = self.refuse = self.cut = self.fragment = 0.0


class _Pipe:
    """One direction of a link."""

    __slots__ = ("_last_at", "_pieces", "_timer", "dead", "receiver", "sender")

    def __init__(self, sender: "SimTransport", receiver: "SimTransport") -> None:
        self.sender = sender
        self.receiver = receiver
        #: Nothing goes in any more.
        self.dead = False
        self._pieces: deque[tuple[float, object]] = deque()
        self._last_at = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def push(self, piece: object, extra_s: float = 0.0) -> None:
        if self.dead:
            return
        network = self.receiver.network
        at = max(self._last_at, network.loop.time() + network.delay_s() + extra_s)
        self._last_at = at
        self._pieces.append((at, piece))
        if self._timer is None:
            self._arm(at)

    def stall(self, extra_s: float) -> None:
        """What is on its way comes so much later."""
        self._pieces = deque((at + extra_s, piece) for at, piece in self._pieces)
        self._last_at += extra_s

    def clear(self) -> None:
        """What is on its way is gone."""
        self._pieces.clear()

    def kill(self) -> None:
        """Nothing arrives any more."""
        self.clear()
        self.dead = True

    def move(self) -> None:
        """Deliver what is due; called by the timer, and when what held it is over."""
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
        """What held it is over."""
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
        self._out: _Pipe | None = None
        self._made = False
        self._closing = False
        self._lost = False
        self._eof_sent = False
        self._unsent_bytes = 0
        self._writing_paused = False
        self._high = network.rng.choice((8_192, 65_536, 262_144))

    def attach(self, link: "Link", out: _Pipe, protocol: asyncio.BaseProtocol) -> None:
        """Give it what it needs to be an end of `link`."""
        self._link, self._out, self._protocol = link, out, protocol

    # what protocols call

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
            self._out.push(_EOF)

    def can_write_eof(self) -> bool:
        return True

    def close(self) -> None:
        if self._closing or self._out is None:
            return
        self._closing = True
        if not self._eof_sent:
            self._out.push(_EOF)
        self.network.loop.call_soon(self.lose, None, context=self.context)

    def abort(self) -> None:
        if self._lost or self._out is None:
            return
        self._closing = True
        if self.network.rng.random() < 0.5:  # the machine had sent it already
            self._out.clear()
        self._out.push(_RESET)
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

    # what pipes call

    def sent(self, size: int) -> None:
        """So many bytes have arrived."""
        self._unsent_bytes -= size
        if self._writing_paused and self._unsent_bytes <= self._high // 4:
            self._writing_paused = False
            if not self._lost:
                self.network.loop.call_soon(self._call, "resume_writing", context=self.context)

    def arrived(self, piece: object) -> None:
        """Bytes, or one of the other pieces."""
        if piece is _ACCEPT:
            self.accept()
        elif self._lost or self._closing:
            if isinstance(piece, bytes) and self._out is not None:
                self._out.push(_RESET)
                self._out.dead = True
        elif piece is _RESET:
            self.lose(ConnectionResetError("connection reset by peer"))
        elif piece is _EOF:
            if not self._call("eof_received"):
                self.close()
        elif isinstance(piece, bytes):
            self._received(piece)

    def accept(self) -> None:
        """The protocol learns of its transport."""
        if not self._lost:
            self._made = True
            self._call("connection_made", self)

    def lose(self, reason: Exception | None) -> None:
        """The connection is gone for this end."""
        if self._lost:
            return
        self._lost = self._closing = True
        if self._link is not None:
            self._link.ended()
        if self._made:
            self._call("connection_lost", reason)

    @property
    def lost(self) -> bool:
        """Whether its protocol was told that the connection is gone."""
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
        except Exception as error:  # noqa: BLE001 - asyncio closes the connection and tells its handler, too
            self._broke(error)

    def _call(self, name: str, *args: object) -> object:
        try:
            return getattr(self._protocol, name)(*args)
        except Exception as error:  # noqa: BLE001 - asyncio closes the connection and tells its handler, too
            self._broke(error)
            return None

    def _broke(self, error: Exception) -> None:
        self.network.loop.call_exception_handler({"message": "a protocol raised", "exception": error})
        self.abort()


class Link:
    """A connection: the end that connected, the end that accepted, a pipe each way."""

    def __init__(self, network: "Network", number: int, client: SimTransport, server: SimTransport) -> None:
        self.number = number
        self.client = client
        self.server = server
        self._network = network
        self.to_server = _Pipe(client, server)
        self.to_client = _Pipe(server, client)

    def ended(self) -> None:
        """One end is gone; when both are, the network forgets the link."""
        if self.client.lost and self.server.lost:
            self._network.links.pop(self.number, None)

    def cut(self, how: Cut) -> None:
        """Break it."""
        gone = ConnectionResetError("connection reset by peer")
        late_s = self._network.rng.uniform(0.0, _LATE_S) ** 2 / _LATE_S  # mostly short, sometimes long
        match how:
            case Cut.BOTH:
                self.to_server.kill()
                self.to_client.kill()
                self.client.lose(gone)
                self.server.lose(gone)
            case Cut.CLIENT_FIRST:
                self.to_client.kill()
                self.client.lose(gone)
                self.to_server.stall(late_s)
                self.to_server.push(_RESET)
                self.to_server.dead = True
            case Cut.SERVER_FIRST:
                self.to_server.kill()
                self.server.lose(gone)
                self.to_client.clear()
                self.to_client.push(_RESET, late_s)
                self.to_client.dead = True
            case Cut.ANSWERS_LOST:
                self.to_client.clear()
                self.to_client.push(_RESET, late_s)
                self.to_client.dead = True
                self.to_server.push(_RESET, late_s)
                self.to_server.dead = True
            case Cut.SILENT:
                self.to_server.kill()
                self.to_client.kill()


class SimServer(asyncio.AbstractServer):
    """A listener."""

    def __init__(self, network: "Network", address: tuple[str, int]) -> None:
        self._network = network
        self._address = address

    def close(self) -> None:
        self._network.listeners.pop(self._address, None)

    def is_serving(self) -> bool:
        return self._address in self._network.listeners

    async def wait_closed(self) -> None:
        return None

    async def start_serving(self) -> None:
        return None

    async def serve_forever(self) -> None:
        await self._network.loop.create_future()

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._network.loop


class Network:
    """See the module."""

    def __init__(self, loop: SimLoop, rng: random.Random, weather: Weather | None = None) -> None:
        self.loop = loop
        self.rng = rng
        self.weather = weather or Weather()
        self.listeners: dict[tuple[str, int], tuple[Callable[[], asyncio.BaseProtocol], Context]] = {}
        #: Open links, oldest first.
        self.links: dict[int, Link] = {}
        self.cuts = 0
        self._number = 0
        self._frozen: set[str] = set()
        self._blocked: set[tuple[str, str]] = set()
        self._held: dict[_Pipe, None] = {}
        self._waiting: list[asyncio.Future[None]] = []
        loop.network = self

    # faults

    def freeze(self, host: str) -> None:
        """The host's processes stop; its machine still takes connections and bytes."""
        self._frozen.add(host)

    def thaw(self, host: str) -> None:
        """They go on, with what has come meanwhile."""
        self._frozen.discard(host)
        self.release()

    def is_frozen(self, host: str) -> bool:
        """Whether the host's processes stand still."""
        return host in self._frozen

    def block(self, one: str, other: str, *, both_ways: bool = True) -> None:
        """Nothing gets from `one` to `other`; it waits, as TCP repeats what is not acknowledged."""
        self._blocked.add((one, other))
        if both_ways:
            self._blocked.add((other, one))

    def heal(self, one: str, other: str) -> None:
        """Both ways are open again."""
        self._blocked -= {(one, other), (other, one)}
        self.release()

    def reaches(self, one: str, other: str) -> bool:
        """Whether bytes get from `one` to `other` now."""
        return (one, other) not in self._blocked

    def cut_soon(self, link: Link) -> None:
        """Cut it in a drawn way, in a moment that what is being sent now may reach or not."""
        how = self.rng.choice(_CUTS)
        self.cuts += 1
        self.loop.call_later(self.rng.uniform(0.0, 4 * self.weather.delay_s), link.cut, how)

    def drop(self, host: str, *, listening: bool = False) -> None:
        """The host's process was killed: its connections break; with `listening` it still takes new ones."""
        for link in [link for link in self.links.values() if host in (link.client.host, link.server.host)]:
            died = link.client if link.client.host == host else link.server
            (link.to_client if died is link.client else link.to_server).kill()
            out = link.to_server if died is link.client else link.to_client
            if self.rng.random() < 0.5:
                out.clear()
            out.push(_RESET)
            out.dead = True
            died.lose(ConnectionResetError("killed"))
        if not listening:
            for address in [address for address in self.listeners if address[0] == host]:
                del self.listeners[address]

    # what the loop calls

    async def connect(
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        """A connection from HOST to `host`. Raises OSError; waits as long as the way is blocked."""
        here = HOST.get()
        await self._passed(here, host)
        found = self.listeners.get((host, port))
        if found is None or (self.weather.refuse and self.rng.random() < self.weather.refuse):
            raise ConnectionRefusedError(f"{host}:{port} refused the connection")
        accepted, context = found
        client = SimTransport(self, here, host, copy_context())
        server = SimTransport(self, host, here, context)
        self._number += 1
        link = Link(self, self._number, client, server)
        self.links[link.number] = link
        protocol = protocol_factory()
        client.attach(link, link.to_server, protocol)
        server.attach(link, link.to_client, context.copy().run(accepted))
        link.to_server.push(_ACCEPT)
        client.accept()
        return client, protocol

    async def listen(
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> asyncio.AbstractServer:
        """Take connections to `host`."""
        self.listeners[host, port] = (protocol_factory, copy_context())
        return SimServer(self, (host, port))

    async def _passed(self, here: str, there: str) -> None:
        """A round trip: the handshake of TCP."""
        while True:
            await asyncio.sleep(self.delay_s() + self.delay_s())
            if self.reaches(here, there) and self.reaches(there, here):
                return
            healed: asyncio.Future[None] = self.loop.create_future()
            self._waiting.append(healed)
            await healed

    # what pipes ask

    def delay_s(self) -> float:
        """How long a piece takes."""
        weather = self.weather
        delay_s = weather.delay_s * (0.5 + self.rng.random())
        if weather.spike and self.rng.random() < weather.spike:
            delay_s += self.rng.uniform(0.0, weather.spike_s)
        return delay_s

    def holds(self, pipe: _Pipe) -> bool:
        """Whether nothing can arrive through `pipe` now; it is moved when that is over."""
        receiver = pipe.receiver
        if not (
            receiver.host in self._frozen
            or (pipe.sender.host, receiver.host) in self._blocked
            or (receiver.reading_paused and not receiver.lost)
        ):
            return False
        self._held[pipe] = None
        return True

    def release(self) -> None:
        """Something that held pipes is over: let each try again."""
        held, self._held = self._held, {}
        for pipe in held:
            pipe.rearm()
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)
