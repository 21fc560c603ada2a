"""The simulated network: what arrives, in which order, and who notices that a connection is gone."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest

from sim.loop import HOST, START_S, SimLoop, run
from sim.network import Cut, Link, Network, Weather


class Peer(asyncio.Protocol):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.data = b""
        self.news: list[str] = []
        self.transport: asyncio.Transport | None = None
        self.half_open = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.news.append("made")

    def data_received(self, data: bytes) -> None:
        self.data += data

    def eof_received(self) -> bool:
        self.news.append("eof")
        return self.half_open

    def pause_writing(self) -> None:
        self.news.append("pause")

    def resume_writing(self) -> None:
        self.news.append("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        self.news.append("lost" if exc is None else type(exc).__name__)

    def write(self, data: bytes) -> None:
        assert self.transport is not None
        self.transport.write(data)


class Buffered(asyncio.BufferedProtocol):
    """A reader with a buffer of four bytes."""

    def __init__(self) -> None:
        self.data = b""
        self._buffer = bytearray(4)

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.data += self._buffer[:nbytes]


class World:
    """A network, a server on the host `there`, and a client on `here`."""

    def __init__(self, seed: int = 1, weather: Weather | None = None) -> None:
        self.loop = SimLoop(random.Random(seed))
        self.network = Network(self.loop, random.Random(seed), weather)
        self.accepted: list[Peer] = []

    def run(self, main: Callable[[World], Awaitable[None]]) -> None:
        """`main` with the server listening."""

        async def whole() -> None:
            HOST.set("here")
            await self.loop.create_server(self._accept, "there", 9)
            await main(self)

        run(whole(), self.loop)

    def _accept(self) -> Peer:
        self.accepted.append(Peer())
        return self.accepted[-1]

    async def connect(self) -> tuple[Peer, Peer, Link]:
        """Client, server, and the link between them."""
        _, client = await self.loop.create_connection(Peer, "there", 9)
        await self.later()
        assert isinstance(client, Peer)
        return client, self.accepted[-1], list(self.network.links.values())[-1]

    async def later(self, seconds: float = 1.0) -> None:
        """Let so much time pass."""
        future = self.loop.create_future()
        self.loop.call_later(seconds, future.set_result, None)
        await future


def test_bytes_arrive_in_order_both_ways() -> None:
    async def main(world: World) -> None:
        client, server, _ = await world.connect()
        for number in range(200):
            client.write(b"%d," % number)
            server.write(b"%d;" % number)
        await world.later(60)
        assert server.data == b"".join(b"%d," % number for number in range(200))
        assert client.data == b"".join(b"%d;" % number for number in range(200))

    World(weather=Weather(spike=0.2, fragment=0.5)).run(main)


def test_a_buffered_protocol_gets_all_of_it() -> None:
    async def main(world: World) -> None:
        _, reader = await world.loop.create_connection(Buffered, "there", 9)
        await world.later()
        world.accepted[-1].write(b"eleven byte")
        await world.later()
        assert isinstance(reader, Buffered)
        assert reader.data == b"eleven byte"

    World().run(main)


def test_an_end_hears_of_a_cut_on_its_own_host_whoever_makes_it() -> None:
    """A client's tasks belonged to the broker that cut its connection, and died with that broker."""

    class Listener(Peer):
        """Knows on which host it was told."""

        def connection_lost(self, exc: Exception | None) -> None:
            self.news.append(HOST.get())

    async def main(world: World) -> None:
        _, client = await world.loop.create_connection(Listener, "there", 9)
        await world.later()
        HOST.set("elsewhere")
        next(iter(world.network.links.values())).cut(Cut.BOTH)
        await world.later()
        assert isinstance(client, Peer)
        assert client.news == ["made", "here"]

    World().run(main)


def test_nobody_listens() -> None:
    async def main(world: World) -> None:
        with pytest.raises(ConnectionRefusedError, match="there:10"):
            await world.loop.create_connection(Peer, "there", 10)
        world.network.weather.refuse = 1.0
        with pytest.raises(ConnectionRefusedError):
            await world.loop.create_connection(Peer, "there", 9)

    World().run(main)


def test_closing_delivers_what_was_written_first() -> None:
    async def main(world: World) -> None:
        client, server, _ = await world.connect()
        client.write(b"the last words")
        assert client.transport is not None
        client.transport.close()
        client.write(b"not heard")
        await world.later()
        assert server.data == b"the last words"
        assert server.news == ["made", "eof", "lost"]
        assert client.news == ["made", "lost"]
        assert not world.network.links

    World().run(main)


def test_half_closed_connections_still_answer() -> None:
    async def main(world: World) -> None:
        client, server, _ = await world.connect()
        server.half_open = True
        client.write(b"question")
        assert client.transport is not None
        client.transport.write_eof()
        await world.later()
        server.write(b"answer")
        await world.later()
        assert (server.data, client.data) == (b"question", b"answer")
        assert server.news == ["made", "eof"]

    World().run(main)


_WHAT_BECOMES = {
    # who has which bytes in the end; who notices within a millisecond
    Cut.BOTH: (b"", b"", {"client", "server"}),
    Cut.CLIENT_FIRST: (b"asked", b"", {"client"}),
    Cut.SERVER_FIRST: (b"", b"", {"server"}),
    Cut.ANSWERS_LOST: (b"asked", b"", set()),
    Cut.SILENT: (b"", b"", set()),
}


@pytest.mark.parametrize("how", Cut)
def test_the_ways_of_a_cut(how: Cut) -> None:
    async def main(world: World) -> None:
        world.network.weather.delay_s = 0.01
        client, server, link = await world.connect()
        client.write(b"asked")
        server.write(b"answered")
        link.cut(how)
        await world.later(0.001)
        noticed = {name for name, peer in (("client", client), ("server", server)) if len(peer.news) > 1}
        await world.later(60)
        at_server, at_client, soon = _WHAT_BECOMES[how]
        assert (server.data, client.data, noticed) == (at_server, at_client, soon)
        end = ["made"] if how is Cut.SILENT else ["made", "ConnectionResetError"]
        assert (client.news, server.news) == (end, end)

    for seed in range(5):
        World(seed).run(main)


def test_what_is_blocked_arrives_when_it_is_healed() -> None:
    async def main(world: World) -> None:
        client, server, _ = await world.connect()
        world.network.block("here", "there", both_ways=False)
        client.write(b"waits")
        server.write(b"comes")
        await world.later(30)
        assert (server.data, client.data) == (b"", b"comes")
        connecting = asyncio.ensure_future(world.loop.create_connection(Peer, "there", 9))
        await world.later(30)
        assert not connecting.done()
        world.network.heal("here", "there")
        await world.later()
        assert (server.data, connecting.done()) == (b"waits", True)

    World().run(main)


def test_a_frozen_host_takes_connections_and_reads_later() -> None:
    async def main(world: World) -> None:
        world.network.freeze("there")
        _, client = await world.loop.create_connection(Peer, "there", 9)
        assert isinstance(client, Peer)
        client.write(b"hello")
        await world.later(30)
        assert world.accepted[-1].news == []
        world.network.thaw("there")
        await world.later()
        assert (world.accepted[-1].news, world.accepted[-1].data) == (["made"], b"hello")

    World().run(main)


def test_a_killed_host_breaks_its_connections_and_refuses_new_ones() -> None:
    async def main(world: World) -> None:
        client, server, _ = await world.connect()
        world.network.drop("there")
        await world.later()
        assert (client.news[-1], server.news[-1]) == ("ConnectionResetError", "made")
        with pytest.raises(ConnectionRefusedError):
            await world.loop.create_connection(Peer, "there", 9)

    World().run(main)


def test_a_reader_that_does_not_read_stops_the_writer() -> None:
    async def main(world: World) -> None:
        client, server, _ = await world.connect()
        assert server.transport is not None
        server.transport.pause_reading()
        client.write(bytes(300_000))
        assert client.news == ["made", "pause"]
        await world.later(5)
        assert server.data == b""
        server.transport.resume_reading()
        await world.later()
        assert len(server.data) == 300_000
        assert client.news == ["made", "pause", "resume"]

    World().run(main)


def test_one_seed_is_one_history() -> None:
    def history(seed: int) -> list[tuple[float, str]]:
        world = World(seed, Weather(spike=0.1, cut=0.05, refuse=0.1, fragment=0.1))
        seen: list[tuple[float, str]] = []

        async def main(world: World) -> None:
            for number in range(100):
                try:
                    client, _, _ = await world.connect()
                except OSError as error:
                    seen.append((world.loop.time() - START_S, str(error)))
                    continue
                client.write(b"%d" % number)
                await world.later(0.2)
                seen.append((world.loop.time() - START_S, f"{client.news} {[p.data for p in world.accepted]}"))

        world.run(main)
        return seen

    assert history(3) == history(3)
    assert history(3) != history(4)
