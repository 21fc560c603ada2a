"""A simulated network: connections between hosts, with the delays and faults that real ones have.

A connection is a Link: two ends, and a pipe for each direction. A pipe delivers bytes in order, in pieces; each piece
has a delay by chance. Two things make faults: `Weather` has the chances of a fault at each write and connect, and the
nemesis calls `cut_soon`, `block`, `freeze` and `drop`. A connection can break in several ways (`Cut`). They differ in
which side notices it when, and in whether bytes that were sent before still arrive.

The context variable HOST says which host a new connection comes from: each simulated process sets it in its task.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from contextvars import Context, copy_context
from dataclasses import dataclass
from enum import Enum

from sim.loop import HOST, SimLoop
from sim.transport import ACCEPT, RESET, Pipe, SimTransport

#: The longest time that bytes which were sent before a cut are still on their way.
_LATE_S = 12.0


class Cut(Enum):
    """How a connection breaks."""

    #: Both sides notice at once. Bytes that are on their way are lost.
    BOTH = "both notice"
    #: The client notices. What it has sent still arrives, perhaps much later; then the server notices.
    CLIENT_FIRST = "the client notices, its requests still arrive"
    #: The server notices. The client notices later, and gets no more answers until then.
    SERVER_FIRST = "the server notices first"
    #: The server serves requests for a while, but its answers do not arrive.
    ANSWERS_LOST = "answers are lost"
    #: Nobody notices, and nothing arrives any more.
    SILENT = "nobody notices"


_CUTS = tuple(Cut)


@dataclass(slots=True)
class Weather:
    """The chances of faults, and delays in seconds."""

    delay_s: float = 0.001
    #: The chance that a piece takes much longer, and the longest such delay.
    spike: float = 0.0
    spike_s: float = 0.5
    #: The chances that a connect is refused, that a write cuts the connection, that a piece is delivered in two.
    refuse: float = 0.0
    cut: float = 0.0
    fragment: float = 0.0

    def calm(self) -> None:
        """No more faults, and short delays."""
        self.spike = self.refuse = self.cut = self.fragment = 0.0
        self.delay_s = min(self.delay_s, 0.002)


class Link:
    """A connection: the end that has connected, the end that has accepted, and a pipe for each direction."""

    def __init__(self, network: "Network", number: int, client: SimTransport, server: SimTransport) -> None:
        self.number = number
        self.client = client
        self.server = server
        self._network = network
        self.to_server = Pipe(client, server)
        self.to_client = Pipe(server, client)

    def ended(self) -> None:
        """One end has lost the connection. When both have, the network forgets the link."""
        if self.client.lost and self.server.lost:
            self._network.links.pop(self.number, None)

    def cut(self, how: Cut) -> None:
        """Break the connection."""
        if not (self.client.lost and self.server.lost):
            self._network.cuts[how] += 1
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
                self.to_server.push(RESET)
                self.to_server.dead = True
            case Cut.SERVER_FIRST:
                self.to_server.kill()
                self.server.lose(gone)
                self.to_client.clear()
                self.to_client.push(RESET, late_s)
                self.to_client.dead = True
            case Cut.ANSWERS_LOST:
                self.to_client.clear()
                self.to_client.push(RESET, late_s)
                self.to_client.dead = True
                self.to_server.push(RESET, late_s)
                self.to_server.dead = True
            case Cut.SILENT:
                self.to_server.kill()
                self.to_client.kill()


class _Bound:
    """A listening socket, of which only the name is known."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address

    def getsockname(self) -> tuple[str, int]:
        return self._address


class SimServer(asyncio.AbstractServer):
    """A listener."""

    def __init__(self, network: "Network", address: tuple[str, int]) -> None:
        self._network = network
        self._address = address

    def close(self) -> None:
        self._network.listeners.pop(self._address, None)

    @property
    def sockets(self) -> tuple["_Bound", ...]:
        """What asyncio's servers have: who asks it for its name learns where it listens."""
        return (_Bound(self._address),)

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
    """All hosts, listeners and links of a world."""

    def __init__(self, loop: SimLoop, rng: random.Random, weather: Weather | None = None) -> None:
        self.loop = loop
        self.rng = rng
        self.weather = weather or Weather()
        self.listeners: dict[tuple[str, int], tuple[Callable[[], asyncio.BaseProtocol], Context]] = {}
        #: Open links, oldest first.
        self.links: dict[int, Link] = {}
        #: Connections that were cut, by the way.
        self.cuts: Counter[Cut] = Counter()
        self._number = 0
        self._frozen: set[str] = set()
        self._blocked: set[tuple[str, str]] = set()
        self._held: dict[Pipe, None] = {}
        self._waiting: list[asyncio.Future[None]] = []
        loop.network = self

    # faults

    def freeze(self, host: str) -> None:
        """The host's process stands still. Its machine still accepts connections and bytes."""
        self._frozen.add(host)

    def thaw(self, host: str) -> None:
        """The host's process goes on; it gets the bytes that have arrived meanwhile."""
        self._frozen.discard(host)
        self.release()

    def is_frozen(self, host: str) -> bool:
        """Whether the host's process stands still."""
        return host in self._frozen

    def block(self, one: str, other: str, *, both_ways: bool = True) -> None:
        """No bytes get from `one` to `other`. They wait, because TCP repeats what is not acknowledged."""
        self._blocked.add((one, other))
        if both_ways:
            self._blocked.add((other, one))

    def heal(self, one: str, other: str) -> None:
        """Bytes get through again, in both directions."""
        self._blocked -= {(one, other), (other, one)}
        self.release()

    def reaches(self, one: str, other: str) -> bool:
        """Whether bytes get from `one` to `other` now."""
        return (one, other) not in self._blocked

    def cut_soon(self, link: Link) -> None:
        """Cut it soon, in a way by chance. What is being sent now may or may not arrive before."""
        how = self.rng.choice(_CUTS)
        self.loop.call_later(self.rng.uniform(0.0, 4 * self.weather.delay_s), link.cut, how)

    def drop(self, host: str, *, listening: bool = False) -> None:
        """The host's process was killed: its connections break. With `listening` it still accepts new ones."""
        for link in [link for link in self.links.values() if host in (link.client.host, link.server.host)]:
            died = link.client if link.client.host == host else link.server
            (link.to_client if died is link.client else link.to_server).kill()
            out = link.to_server if died is link.client else link.to_client
            if self.rng.random() < 0.5:
                out.clear()
            out.push(RESET)
            out.dead = True
            died.vanish()
        if not listening:
            for address in [address for address in self.listeners if address[0] == host]:
                del self.listeners[address]

    # the loop calls these

    async def connect(
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        """A connection from HOST to `host`. Raises OSError. Waits while the two cannot reach each other."""
        here = HOST.get()
        await self._shake_hands(here, host)
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
        link.to_server.push(ACCEPT)
        client.accept()
        return client, protocol

    async def listen(
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> asyncio.AbstractServer:
        """Accept connections to `host`."""
        self.listeners[host, port] = (protocol_factory, copy_context())
        return SimServer(self, (host, port))

    async def _shake_hands(self, here: str, there: str) -> None:
        """TCP's handshake: a round trip."""
        while True:
            await asyncio.sleep(self.delay_s() + self.delay_s())
            if self.reaches(here, there) and self.reaches(there, here):
                return
            healed: asyncio.Future[None] = self.loop.create_future()
            self._waiting.append(healed)
            await healed

    # the pipes call these

    def delay_s(self) -> float:
        """How long the next piece takes."""
        weather = self.weather
        delay_s = weather.delay_s * (0.5 + self.rng.random())
        if weather.spike and self.rng.random() < weather.spike:
            delay_s += self.rng.uniform(0.0, weather.spike_s)
        return delay_s

    def holds(self, pipe: Pipe) -> bool:
        """Whether nothing can arrive through `pipe` now. Then `release` lets the pipe try again."""
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
        """A reason to hold pipes is over: let each pipe, and each connect, try again."""
        held, self._held = self._held, {}
        for pipe in held:
            pipe.rearm()
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)
