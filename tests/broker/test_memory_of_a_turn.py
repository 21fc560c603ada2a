"""Frames that have to wait for the loop's next turn keep the memory that was counted while they were received."""

import asyncio
import struct

from ottla.base.clock import ManualClock
from ottla.base.limits import IDLE_BUFFER_BYTES, REQUESTS_TURN_MS
from ottla.broker.answers import Frame
from ottla.broker.connections import Connections
from ottla.broker.listening import Listener
from ottla.broker.session import Session
from tests.broker.lone_connections import LoneClient

_FRAME_BYTES = 10 * IDLE_BUFFER_BYTES
_FRAMES = 4


class _World:
    """The requests of a turn are over with each; there is memory for a few."""

    def __init__(self) -> None:
        self.handled: list[int] = []
        self._clock = ManualClock()
        self.connections = Connections(
            self._clock, max_connections=1_000, max_idle_ms=-1, max_queued_bytes=_FRAMES * (_FRAME_BYTES + 4)
        )
        self.listener = Listener(
            self._dispatch, self._clock, self.connections, name="PLAINTEXT", max_request_bytes=1_000_000
        )

    def _dispatch(self, frame: Frame, _session: Session) -> bytes:
        self.handled.append(frame[0])
        self._clock.advance(REQUESTS_TURN_MS)
        return bytes(frame[:1])


def _frame(number: int) -> bytes:
    return struct.pack(">i", _FRAME_BYTES) + bytes([number]) * _FRAME_BYTES


async def test_no_more_wait_than_there_is_memory_for() -> None:
    world = _World()
    clients = [LoneClient(world.listener) for _ in range(5 * _FRAMES)]
    sent = [0] * len(clients)
    waiting: list[int] = []
    while len(world.handled) < len(clients):
        for number, client in enumerate(clients):
            data = _frame(number)
            while sent[number] < len(data) and client.transport.is_reading():
                sent[number] = client.send_part(data, at=sent[number])
        waiting.append(sent.count(_FRAME_BYTES + 4) - len(world.handled))
        await asyncio.sleep(0)
    assert max(waiting) == _FRAMES
    assert sorted(world.handled) == list(range(len(clients)))
    assert [client.answers() for client in clients] == [bytes([number]) for number in range(len(clients))]
    for client in clients:
        client.close()
    assert world.connections.waiting_bytes == 0
    assert not world.connections.memory.is_short


async def test_what_has_begun_behind_such_a_frame_goes_on() -> None:
    world = _World()
    first, second = LoneClient(world.listener), LoneClient(world.listener)
    first.send_bytes(_frame(1))
    data = _frame(2) + _frame(3)
    sent = 0
    while sent < len(data):
        if second.transport.is_reading():
            sent = second.send_part(data, at=sent)
        else:
            assert world.handled == [1]
            await asyncio.sleep(0)
    for _ in range(len(world.handled), 3):
        await asyncio.sleep(0)
    assert (world.handled, second.answers()) == ([1, 2, 3], b"\2\3")
    assert second.transport.is_reading()
    first.close()
    second.close()


async def test_one_that_is_lost_meanwhile_gives_it_back() -> None:
    world = _World()
    clients = [LoneClient(world.listener) for _ in range(_FRAMES + 1)]
    for number, client in enumerate(clients):
        client.send_bytes(_frame(number))
    late = LoneClient(world.listener)
    late.send_part(_frame(9), at=0)
    assert not late.transport.is_reading()
    clients[1].close()
    assert late.transport.is_reading()
    for client in (clients[0], *clients[2:], late):
        client.close()
