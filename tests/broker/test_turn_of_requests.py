"""How long the requests of all connections keep one turn of the loop: hundreds may send in the same."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest

from ottla.base.clock import ManualClock
from ottla.base.errors import CorruptDataError
from ottla.base.limits import FEW_ELEMENTS, FRAME_BYTES_AT_ONCE, FRAMES_AT_ONCE, REQUESTS_TURN_MS, ROW_MS
from ottla.broker.answers import Answer, Frame, Later
from ottla.broker.connections import Connections
from ottla.broker.handlers.dispatch import Dispatcher
from ottla.broker.listening import Listener
from ottla.broker.runtime.slices import TURN_MS
from ottla.broker.session import Session
from ottla.testing import AsyncBroker
from ottla.wire.apis import ApiKey
from ottla.wire.frames import encode_request
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.broker.lone_connections import LoneClient
from tests.broker.ticking import TickingClock, turns

_CONNECTIONS = 4 * REQUESTS_TURN_MS
_SENSELESS = 255


class _World:
    """A listener with so many connections. A request is one byte, and each takes a millisecond."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.handled: list[bytes] = []
        self.connections = Connections(self.clock, max_connections=1_000, max_idle_ms=-1)
        listener = Listener(self.dispatch, self.clock, self.connections, name="PLAINTEXT", max_request_bytes=100)
        self.clients = [LoneClient(listener, bytes([number])) for number in range(_CONNECTIONS)]

    def dispatch(self, frame: Frame, session: Session) -> Any:
        """What the listener does with a request."""
        self.handled.append(bytes(frame))
        self.clock.advance(1)
        if frame[0] == _SENSELESS:
            raise CorruptDataError("such a request")
        return bytes(frame)

    def in_turn(self, number: int) -> list[bytes]:
        """Whose requests are carried out in the turn of this number, if they go on in order."""
        return [bytes([each]) for each in range(REQUESTS_TURN_MS * number, REQUESTS_TURN_MS * (number + 1))]

    def close(self) -> None:
        for client in self.clients:
            client.close()


async def test_requests_of_many_connections_have_the_time_of_one_turn() -> None:
    world = _World()
    for client in world.clients:
        client.send(1)
    for number in range(_CONNECTIONS // REQUESTS_TURN_MS):
        assert world.handled == world.in_turn(number), "in the order in which they came"
        world.handled.clear()
        await asyncio.sleep(0)  # a turn of the loop
    assert [client.answers() for client in world.clients] == [bytes([number]) for number in range(_CONNECTIONS)]
    world.close()


async def test_whoever_comes_later_waits_behind_those_who_wait() -> None:
    world = _World()
    first, others = world.clients[0], world.clients[1:]
    for client in others:
        client.send(1)
    await asyncio.sleep(0)
    first.send(1)  # this turn's time is over again
    assert len(world.handled) < len(others)
    while len(world.handled) < _CONNECTIONS:
        assert b"\0" not in world.handled
        await asyncio.sleep(0)
    assert world.handled[-1] == b"\0"
    world.close()


async def test_a_row_of_one_connection_ends_with_the_turn() -> None:
    world = _World()
    for client in world.clients:
        client.send(2)
    assert len(world.handled) == REQUESTS_TURN_MS
    seen = 0
    while len(world.handled) < 2 * _CONNECTIONS:
        assert len(world.handled) - seen <= REQUESTS_TURN_MS
        seen = len(world.handled)
        await asyncio.sleep(0)
    assert [client.answers() for client in world.clients] == [bytes([number] * 2) for number in range(_CONNECTIONS)]
    world.close()


async def test_requests_that_make_no_sense_take_time_too() -> None:
    world = _World()
    for client in world.clients:
        client.send_bytes(b"\0\0\0\1" + bytes([_SENSELESS]))
    assert len(world.handled) == REQUESTS_TURN_MS
    for _ in range(_CONNECTIONS):
        await asyncio.sleep(0)
    assert len(world.handled) == _CONNECTIONS
    assert all(client.transport.aborted for client in world.clients)
    world.close()


async def test_what_a_connection_that_is_lost_has_sent_needs_no_turn() -> None:
    world = _World()
    for client in world.clients:
        client.send(1)
    lost = world.clients[REQUESTS_TURN_MS : 2 * REQUESTS_TURN_MS]
    for client in lost:
        client.connection.connection_lost(None)
    world.handled.clear()
    await asyncio.sleep(0)
    assert world.handled == world.in_turn(2)
    for client in world.clients:
        if client not in lost:
            client.close()


async def test_answers_that_come_later_take_of_the_time() -> None:
    clock, futures = ManualClock(), list[asyncio.Future[bytes]]()
    asked = 0

    def dispatch(frame: Frame, session: Session) -> Any:
        nonlocal asked
        if bytes(frame) == b"n":
            asked += 1
            return b"now"
        futures.append(asyncio.get_running_loop().create_future())
        return Later(futures[-1], encode)

    def encode(answer: bytes) -> bytes:
        clock.advance(REQUESTS_TURN_MS)
        return answer

    connections = Connections(clock, max_connections=10, max_idle_ms=-1)
    listener = Listener(dispatch, clock, connections, name="PLAINTEXT", max_request_bytes=100)
    waiting, other = LoneClient(listener, b"l"), LoneClient(listener, b"n")
    waiting.send(1)
    futures[0].set_result(b"later")
    await asyncio.sleep(0)
    assert waiting.answers() == b"later"
    other.send(1)
    assert asked == 0
    await asyncio.sleep(0)
    assert other.answers() == b"now"
    waiting.close()
    other.close()


async def test_answers_that_are_ready_together_have_as_long() -> None:
    """One record may answer thousands of fetches, and one sync of the device thousands of requests."""
    clock, encoded = ManualClock(), list[bytes]()
    ready = asyncio.get_running_loop().create_future()

    def encode(name: bytes, _result: object) -> bytes:
        clock.advance(1)
        encoded.append(name)
        return name

    connections = Connections(clock, max_connections=1_000, max_idle_ms=-1)
    listener = Listener(
        lambda frame, _session: Later(ready, partial(encode, bytes(frame))),
        clock,
        connections,
        name="PLAINTEXT",
        max_request_bytes=100,
    )
    clients = [LoneClient(listener, bytes([number])) for number in range(_CONNECTIONS)]
    for client in clients:
        client.send(1)
    ready.set_result(None)
    while len(encoded) < _CONNECTIONS:
        before = len(encoded)
        await asyncio.sleep(0)
        assert 0 < len(encoded) - before <= REQUESTS_TURN_MS
    assert [client.answers() for client in clients] == [bytes([number]) for number in range(_CONNECTIONS)]
    for client in clients:
        client.close()


async def test_without_long_requests_nobody_waits() -> None:
    clock = ManualClock()
    connections = Connections(clock, max_connections=1_000, max_idle_ms=-1)
    listener = Listener(
        lambda frame, _session: bytes(frame), clock, connections, name="PLAINTEXT", max_request_bytes=100
    )
    clients = [LoneClient(listener, b"a") for _ in range(100)]
    for client in clients:
        client.send(FRAMES_AT_ONCE)
        assert client.answers() == b"a" * FRAMES_AT_ONCE
        client.close()


@pytest.fixture
async def broker() -> AsyncIterator[AsyncBroker]:
    async with AsyncBroker(clock=TickingClock()) as running:
        yield running


def _ask(broker: AsyncBroker, frame: bytes) -> Answer:
    return Dispatcher(broker.node)(frame, Session("PLAINTEXT", "/127.0.0.1"))


def _produce(*data: PartitionProduceData) -> bytes:
    request = ProduceRequest(None, 1, 1_000, (TopicProduceData(name="t", partition_data=data),))
    return encode_request(ApiKey.PRODUCE, 12, 1, "c", request)[4:]


async def test_a_produce_of_very_many_names_is_decoded_in_steps(broker: AsyncBroker) -> None:
    """Its bytes do not say so: they may be records. A hundred elements are a step."""
    whole = _produce(*(PartitionProduceData(index, b"") for index in range(20 * FEW_ELEMENTS)))
    answer = _ask(broker, whole[:-4])
    assert isinstance(answer, Later)
    seen = await turns(asyncio.ensure_future(answer.future), lambda: 0)
    assert len(seen) > 20 * FEW_ELEMENTS / 100 / TURN_MS
    fault = answer.future.result()
    assert isinstance(fault, CorruptDataError)
    assert "ProduceRequest v12" in str(fault)
    assert "client id 'c'" in str(fault)


async def test_a_produce_of_records_is_decoded_at_once(broker: AsyncBroker) -> None:
    assert not isinstance(_ask(broker, _produce(PartitionProduceData(0, bytes(2 * FRAME_BYTES_AT_ONCE)))), Later)


async def test_nothing_is_carried_out_behind_a_request_that_makes_no_sense() -> None:
    """Its connection is closed, but is lost in a later turn only; a turn of its own may be due before."""
    world = _World()
    client = world.clients[0]
    client.send(ROW_MS + 1)
    assert len(world.handled) == ROW_MS, "it goes on in the next turn"
    client.send_bytes(b"\0\0\0\1" + bytes([_SENSELESS]) + b"\0\0\0\1b")
    assert client.transport.aborted
    await asyncio.sleep(0)
    assert world.handled[-1] == bytes([_SENSELESS])
    world.close()


async def test_what_connections_that_are_gone_have_sent_last_has_no_more_time() -> None:
    """They are carried out once for each connection in a turn, and hundreds may be gone in the same."""
    world = _World()
    produce, last = b"\0\0", world.connections.last_frames
    for _ in range(_CONNECTIONS):
        assert last.take(None, [produce, produce], world.dispatch, Session("PLAINTEXT", "/127.0.0.1"))
    seen = 0
    while len(world.handled) < 2 * _CONNECTIONS:
        await asyncio.sleep(0)
        assert len(world.handled) - seen <= REQUESTS_TURN_MS
        seen = len(world.handled)
    world.close()
