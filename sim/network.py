"""A simulated network: connections between named hosts, which delay, break and lie as real ones do.

A connection is a Link of two ends and two pipes, one for each direction. A pipe delivers in order, each piece after a
drawn delay. What goes wrong is decided by `Weather` (chances, drawn at each write and connect) and by whoever calls
`cut`, `block`, `freeze` and `kill`. The ways in which a connection ends are `Cut`: they differ in who notices when, and
in whether what was sent before still arrives.

Whose host a connection comes from is a context variable, HOST: set it in the task of each simulated process.
"""

import asyncio
import random
from collections.abc import Callable
from contextvars import Context, copy_context
from dataclasses import dataclass
from enum import Enum

from sim.loop import HOST, SimLoop
from sim.transport import ACCEPT, RESET, Pipe, SimTransport

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
        """No more faults, and short delays."""
        self.spike = self.refuse = self.cut = self.fragment = 0.0
        self.delay_s = min(self.delay_s, 0.002)


class Link:
    """A connection: the end that connected, the end that accepted, a pipe each way."""

    def __init__(self, network: "Network", number: int, client: SimTransport, server: SimTransport) -> None:
        self.number = number
        self.client = client
        self.server = server
        self._network = network
        self.to_server = Pipe(client, server)
        self.to_client = Pipe(server, client)

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
        self._held: dict[Pipe, None] = {}
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
            out.push(RESET)
            out.dead = True
            died.vanish()
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
        link.to_server.push(ACCEPT)
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

    def holds(self, pipe: Pipe) -> bool:
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
