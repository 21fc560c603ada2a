"""A stop ends every connection, also those that come while it begins: nobody is served by a broker that has stopped."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Coroutine
from pathlib import Path

import pytest
import uvloop

from ottla.base.clock import ManualClock
from ottla.broker.connections import Connections
from ottla.broker.listening import Listener
from ottla.broker.quotas.connections import Limits
from ottla.broker.quotas.rates import Windows
from ottla.testing import AsyncBroker
from ottla.wire.apis import ApiKey
from ottla.wire.frames import encode_request
from ottla.wire.messages.list_groups import ListGroupsRequest
from tests.broker import four_listeners
from tests.broker.lone_connections import LoneClient

LoopFactory = Callable[[], asyncio.AbstractEventLoop]
_ANY_LOOP = pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
#: Turns of the loop after which a connection that has just come is known to the broker.
_TURNS = 8
_PATIENCE_S = 60


def _run(loop: LoopFactory, work: Coroutine[object, object, None]) -> None:
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(work)


async def _turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def _come(address: tuple[str, int]) -> socket.socket:
    """A client whose connection the system has taken, and the broker has not seen yet."""
    came = socket.create_connection(address)
    came.setblocking(False)
    return came


async def _last_bytes(client: socket.socket, said: bytes = b"") -> bytes:
    """What it is answered before its connection ends."""
    loop = asyncio.get_running_loop()
    heard = b""
    try:
        async with asyncio.timeout(_PATIENCE_S):
            await loop.sock_sendall(client, said)
            while more := await loop.sock_recv(client, 1_000):
                heard += more
    except ConnectionError:
        pass  # what it has sent was not read
    client.close()
    return heard


async def _stop_after(turns: int) -> None:
    request = encode_request(ApiKey.LIST_GROUPS, 0, 1, "late", ListGroupsRequest())
    async with AsyncBroker() as broker:
        late = _come((broker.host, broker.port))
        await _turns(turns)
        await broker.stop()
        assert await _last_bytes(late, request) == b""


@_ANY_LOOP
@pytest.mark.parametrize("turns", range(_TURNS))
def test_who_comes_while_a_broker_begins_to_stop_is_not_served(loop: LoopFactory, turns: int) -> None:
    _run(loop, _stop_after(turns))


async def _stop_in_a_handshake(directory: Path, turns: int) -> None:
    tls = ssl.create_default_context(cafile=str(directory / "authority.pem"))
    async with AsyncBroker(four_listeners.settings(directory)) as broker:
        host, _, port = broker.listener("SSL").rpartition(":")
        silent, half = _come((host, int(port))), _come((host, int(port)))
        talking = asyncio.create_task(asyncio.open_connection(host, int(port), ssl=tls))
        half.send(b"\x16\x03\x01\x02")
        await _turns(turns)
        await broker.stop()
        assert await _last_bytes(silent) + await _last_bytes(half) == b""
        try:
            reader, writer = await talking
            assert await reader.read() == b""
            writer.close()
        except OSError:
            pass


@_ANY_LOOP
def test_a_stop_ends_connections_in_any_part_of_their_handshake(tmp_path: Path, loop: LoopFactory) -> None:
    four_listeners.make_certificates(tmp_path)
    for turns in range(3 * _TURNS):
        _run(loop, _stop_in_a_handshake(tmp_path, turns))


async def _stop_while_it_waits() -> None:
    """Its time would come in an hour."""
    config = {"quota.window.num": 2, "quota.window.size.seconds": 3_600, "max.connection.creation.rate": 1}
    async with AsyncBroker(config, clock=ManualClock()) as broker:
        waiting = [_come((broker.host, broker.port)) for _ in range(4)]
        await _turns(_TURNS)
        await broker.stop()
        assert [await _last_bytes(each) for each in waiting] == [b""] * 4


@_ANY_LOOP
def test_a_stop_ends_connections_that_wait_for_their_turn(loop: LoopFactory) -> None:
    _run(loop, _stop_while_it_waits())


def _listener() -> Listener:
    clock = ManualClock()
    limits = Limits(windows=Windows(2, 1_000))
    connections = Connections(clock, max_idle_ms=-1, limits=limits)
    connections.limits.rate_of_address = lambda address: 1.0
    return Listener(lambda frame, session: None, clock, connections, name="PLAINTEXT", max_request_bytes=100)


async def test_a_stop_ends_connections_that_wait_to_be_sent_away() -> None:
    listener = _listener()
    clients = [LoneClient(listener) for _ in range(2)]
    assert not clients[1].transport.is_reading(), "it came too fast"
    listener.connections.close()
    assert all(each.transport.aborted for each in clients)
    for each in clients:
        each.close()


async def test_who_is_made_behind_a_stop_is_closed_and_the_stop_waits_for_all() -> None:
    listener = _listener()
    first = LoneClient(listener)
    listener.connections.close()
    late = LoneClient(listener)
    assert late.transport.aborted
    ended = asyncio.create_task(listener.connections.ended())
    await _turns(_TURNS)
    first.close()
    await _turns(_TURNS)
    assert not ended.done(), "one is not closed yet"
    late.close()
    await ended
