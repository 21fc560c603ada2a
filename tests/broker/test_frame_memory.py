"""Frames that are being received: their memory is bounded over all connections, and none takes for ever."""

import asyncio
import gc
import struct
import tracemalloc
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, closing
from typing import Any
from weakref import ref

import pytest

from ottla.base.clock import ManualClock
from ottla.base.errors import StorageError
from ottla.base.limits import (
    BUSY_BUFFER_BYTES,
    FRAMES_AT_ONCE,
    FRAMES_GRANTED_AT_ONCE,
    IDLE_BUFFER_BYTES,
    LARGE_FRAME_BYTES,
    SLOW_FRAME_MS,
    STALLED_FRAME_MS,
)
from ottla.broker.answers import Answer, Frame, Later
from ottla.broker.connections import Connections
from ottla.broker.listening import Listener
from tests.broker.lone_connections import LoneClient
from tests.broker.ticking import some_turns_until

_FRAME_BYTES = 10 * BUSY_BUFFER_BYTES
_HEAD = struct.pack(">i", _FRAME_BYTES)
_IDLE_MS = 60_000
_KEPT_BYTES = 4 * BUSY_BUFFER_BYTES
#: Of a turn: what is tested here comes in one.
_NO_LIMIT = 1 << 40
_LARGE_HEAD = struct.pack(">i", LARGE_FRAME_BYTES + 1)


class _World:
    """A listener with room for `frames` large frames, and what it was asked."""

    def __init__(self, stack: ExitStack, frames: int) -> None:
        self.clock = ManualClock()
        self.sizes: list[int] = []
        connections = Connections(
            self.clock,
            max_connections=1_000,
            max_idle_ms=_IDLE_MS,
            max_queued_bytes=frames * (_FRAME_BYTES + 4),
            max_kept_bytes=_KEPT_BYTES,
            max_turn_bytes=_NO_LIMIT,
        )
        self.listener = Listener(
            self._dispatch, self.clock, connections, name="PLAINTEXT", max_request_bytes=10 * _FRAME_BYTES
        )
        self._stack = stack
        #: What those that come from now on wait for, and what then still has them.
        self.answered: asyncio.Future[None] | None = None
        self.in_hand: list[Frame] = []
        #: What is done with one in a task.
        self.work: Callable[[Frame], Coroutine[Any, Any, None]] | None = None

    def _dispatch(self, frame: Frame, session: object) -> Answer:
        self.sizes.append(len(frame))
        if self.work is not None:
            return Later(asyncio.get_running_loop().create_task(self.work(frame)), lambda result: b"")
        if self.answered is None:
            return None
        self.in_hand.append(frame)
        return Later(self.answered, lambda result: b"")

    def clients(self, count: int) -> list[LoneClient]:
        return [self._stack.enter_context(closing(LoneClient(self.listener))) for _ in range(count)]

    def after(self, ms: int) -> None:
        """So much later the listener looks for connections that have to go."""
        self.clock.advance(ms)
        self.listener.connections.close_idle()


@pytest.fixture
def world() -> Iterator[_World]:
    with ExitStack() as stack:
        yield _World(stack, 2)


async def test_frames_beyond_the_limit_are_not_read_until_there_is_room(world: _World) -> None:
    clients = world.clients(5)
    for each in clients:
        each.send_bytes(_HEAD)
    assert [each.transport.is_reading() for each in clients] == [True, True, False, False, False]
    clients[0].send_bytes(bytes(_FRAME_BYTES))
    assert world.sizes == [_FRAME_BYTES]
    assert [each.transport.is_reading() for each in clients] == [True, True, True, False, False]
    clients[3].connection.connection_lost(None)  # who has gone does not wait
    clients[1].connection.connection_lost(None)  # and holds nothing
    assert clients[4].transport.is_reading()
    clients[2].send_bytes(bytes(_FRAME_BYTES))
    clients[4].send_bytes(bytes(_FRAME_BYTES))
    assert world.sizes == [_FRAME_BYTES] * 3
    assert not world.listener.memory.is_short


async def test_frames_that_fit_into_a_busy_buffer_count_as_long_as_they_are_not_whole(world: _World) -> None:
    """6,666 connections with 63 KB of a frame each had held 420 MB, whatever the limit was."""
    size = BUSY_BUFFER_BYTES - 1_000
    frame, clients = struct.pack(">i", size) + bytes(size), world.clients(100)
    reading: list[LoneClient] = []
    tracemalloc.start()
    try:
        for each in clients:
            at = 0
            while each.transport.is_reading() and at < size:
                at = each.send_part(frame[:size], at=at)
            reading += [each] * each.transport.is_reading()
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(reading) == 2 * _FRAME_BYTES // size + 1
    assert held < 3 * _FRAME_BYTES
    for each in reading:
        each.send_bytes(frame[size:])
    assert world.sizes == [size] * len(reading)


async def test_buffers_of_whole_frames_are_kept_only_as_far_as_there_is_room(world: _World) -> None:
    """A connection kept the memory of the largest frame that it had sent, 2 MB, as long as it stayed."""
    clients, frame = world.clients(50), _HEAD + bytes(_FRAME_BYTES)
    tracemalloc.start()
    try:
        for each in clients:
            each.send_bytes(frame + frame[:1])
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 2 * _KEPT_BYTES
    assert world.listener.connections.kept_bytes <= _KEPT_BYTES
    for each in clients:
        each.send_bytes(frame[1:] + frame)
    assert world.sizes == [_FRAME_BYTES] * 3 * len(clients)
    for each in clients:
        each.connection.connection_lost(None)
    assert world.listener.connections.kept_bytes == 0


async def test_a_buffer_that_has_grown_for_what_does_not_come_counts(world: _World) -> None:
    """Clients that sent what just fills a buffer had 60 KB each that nobody counted."""
    clients, size = world.clients(50), IDLE_BUFFER_BYTES - 4
    tracemalloc.start()
    try:
        for each in clients:
            each.send_bytes(struct.pack(">i", size) + bytes(size))
            each.connection.get_buffer(-1)  # the loop looks once more, and there is nothing
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 2 * _KEPT_BYTES
    kept = world.listener.connections.kept_bytes
    assert _KEPT_BYTES < kept <= _KEPT_BYTES + BUSY_BUFFER_BYTES
    for each in clients:
        each.connection.connection_lost(None)
    assert world.listener.connections.kept_bytes == 0


async def test_a_buffer_that_is_not_used_makes_room_for_others(world: _World) -> None:
    idle = world.clients(4)
    for each in idle:
        each.send_bytes(struct.pack(">i", IDLE_BUFFER_BYTES) + bytes(IDLE_BUFFER_BYTES))
    connections = world.listener.connections
    kept = connections.kept_bytes
    assert kept > _KEPT_BYTES - BUSY_BUFFER_BYTES
    world.after(STALLED_FRAME_MS + 1)
    assert connections.kept_bytes == kept, "nobody needs it"
    idle[0].send_bytes(struct.pack(">i", _FRAME_BYTES) + bytes(100_000))
    world.after(STALLED_FRAME_MS + 1)
    assert connections.kept_bytes < kept


async def test_small_frames_need_no_memory(world: _World) -> None:
    for each in world.clients(3):
        each.send_bytes(_HEAD)
    assert world.listener.memory.is_short
    (small,) = world.clients(1)
    small.send(3)
    assert world.sizes == [1] * 3


async def test_frames_that_wait_for_an_answer_are_bounded_over_all_connections(world: _World) -> None:
    """Each connection may have 8 MB of them; a thousand clients with a long fetch in front had eight gigabytes."""
    clients, answers = world.clients(5), []
    for each in clients:
        world.answered = asyncio.get_running_loop().create_future()
        answers.append(world.answered)
        each.send(1)
    frame = struct.pack(">i", BUSY_BUFFER_BYTES - 4) + bytes(BUSY_BUFFER_BYTES - 4)
    frames = 0
    while any(each.transport.is_reading() for each in clients):
        for each in clients:
            if each.transport.is_reading():
                each.send_bytes(frame)
                frames += 1
    assert frames < 2 * _FRAME_BYTES // BUSY_BUFFER_BYTES + 2 * len(clients)
    clients[0].connection.connection_lost(None)  # what it had waiting is gone
    for answer in answers[1:]:
        answer.set_result(None)
    await some_turns_until(lambda: world.listener.connections.waiting_bytes == 0)
    assert all(each.transport.is_reading() for each in clients[1:])


async def test_a_frame_larger_than_the_limit_is_received_when_it_is_alone(world: _World) -> None:
    (client,) = world.clients(1)
    client.send_bytes(struct.pack(">i", 5 * _FRAME_BYTES) + bytes(5 * _FRAME_BYTES))
    assert world.sizes == [5 * _FRAME_BYTES]


async def test_a_frame_that_stops_gives_its_memory_to_those_that_wait(world: _World) -> None:
    stopped, slow, waiting = world.clients(3)
    for each in (stopped, slow, waiting):
        each.send_bytes(_HEAD)
    world.after(STALLED_FRAME_MS)
    slow.send_bytes(b"x")
    world.after(1)
    assert [each.transport.aborted for each in (stopped, slow, waiting)] == [True, False, False]
    stopped.connection.connection_lost(None)
    waiting.send_bytes(bytes(_FRAME_BYTES))
    assert world.sizes == [_FRAME_BYTES]


async def test_a_frame_that_is_slow_gives_its_memory_to_those_that_wait(world: _World) -> None:
    """Six clients with a byte every few seconds kept everybody's larger frames out for ten minutes."""
    slow, other, waiting = world.clients(3)
    for each in (slow, other, waiting):
        each.send_bytes(_HEAD)
    for _ in range(SLOW_FRAME_MS // STALLED_FRAME_MS):
        world.after(STALLED_FRAME_MS)
        assert not slow.transport.aborted
        for each in (slow, other):
            each.send_bytes(b"x")
    world.after(1)
    assert [each.transport.aborted for each in (slow, other, waiting)] == [True, True, False]
    slow.connection.connection_lost(None)
    waiting.send_bytes(bytes(_FRAME_BYTES))
    assert world.sizes == [_FRAME_BYTES]


async def test_a_frame_may_be_slow_while_nobody_waits(world: _World) -> None:
    (slow,) = world.clients(1)
    slow.send_bytes(_HEAD)
    for _ in range(SLOW_FRAME_MS // STALLED_FRAME_MS + 1):
        world.after(STALLED_FRAME_MS)
        slow.send_bytes(b"x")
    assert not slow.transport.aborted


async def test_a_frame_may_stop_while_nobody_waits(world: _World) -> None:
    (stopped,) = world.clients(1)
    stopped.send_bytes(_HEAD)
    world.after(STALLED_FRAME_MS + 1)
    assert not stopped.transport.aborted


async def test_a_frame_that_is_never_whole_is_closed_although_bytes_come(world: _World) -> None:
    drop, good = world.clients(2)
    drop.send_bytes(struct.pack(">i", 100))
    for _ in range(6):
        world.after(_IDLE_MS // 6)
        good.send(1)
        drop.send_bytes(b"x")
        assert not drop.transport.aborted
    world.after(1)
    assert drop.transport.aborted
    assert not good.transport.aborted


async def test_who_waits_for_memory_is_not_idle(world: _World) -> None:
    one, two, waiting = world.clients(3)
    for each in (one, two, waiting):
        each.send_bytes(_HEAD)
    world.after(2 * _IDLE_MS)
    assert [each.transport.aborted for each in (one, two, waiting)] == [True, True, False]


async def test_a_large_frame_keeps_its_memory_until_nobody_uses_it(world: _World) -> None:
    slow, other = world.clients(2)
    world.answered = asyncio.get_running_loop().create_future()
    slow.send_bytes(_LARGE_HEAD + bytes(LARGE_FRAME_BYTES + 1))
    other.send_bytes(_HEAD)
    assert world.sizes == [LARGE_FRAME_BYTES + 1]
    assert not other.transport.is_reading()
    slow.connection.connection_lost(None)  # the thread that has the frame goes on
    await asyncio.sleep(0)
    assert not other.transport.is_reading()
    world.in_hand.clear()
    await asyncio.sleep(0)
    assert other.transport.is_reading()
    assert not world.listener.memory.is_short


async def test_a_large_frame_is_not_received_before_those_ahead_of_it_are_answered(world: _World) -> None:
    (client,) = world.clients(1)
    for _ in range(2):
        world.answered = asyncio.get_running_loop().create_future()
        client.send(1)
        client.send_bytes(_LARGE_HEAD)
        assert not client.transport.is_reading()
        world.after(_IDLE_MS)
        world.answered.set_result(None)
        world.answered = None
        await asyncio.sleep(0)
        assert client.transport.is_reading()
        world.after(_IDLE_MS)
        client.send_bytes(bytes(LARGE_FRAME_BYTES + 1))
        await asyncio.sleep(0)
    assert world.sizes == [1, LARGE_FRAME_BYTES + 1] * 2
    assert not client.transport.aborted
    assert not world.listener.memory.is_short


async def test_a_large_frame_that_comes_with_answered_ones_is_received_at_once(world: _World) -> None:
    (client,) = world.clients(1)
    client.send_bytes(struct.pack(">i", 1) + b"x" + _LARGE_HEAD)
    assert client.transport.is_reading()
    client.send_bytes(bytes(LARGE_FRAME_BYTES + 1))
    assert world.sizes == [1, LARGE_FRAME_BYTES + 1]


async def test_a_connection_that_is_lost_before_its_turn_takes_no_memory(world: _World) -> None:
    """Some frames are left for the next turn, and a large one has begun behind them."""
    lost, other = world.clients(2)
    lost.send_bytes((struct.pack(">i", 1) + b"x") * (FRAMES_AT_ONCE + 2) + _LARGE_HEAD)
    assert world.sizes == [1] * FRAMES_AT_ONCE
    lost.connection.connection_lost(None)
    await asyncio.sleep(0)
    other.send_bytes(_HEAD)
    assert other.transport.is_reading()
    assert not world.listener.memory.is_short


async def test_a_large_request_that_fails_gives_its_memory_back_without_a_collection(world: _World) -> None:
    failing, other = world.clients(2)

    async def fails(frame: Frame) -> None:
        raise StorageError(f"{len(frame)} bytes")  # what is logged with its traceback, pytest keeps

    world.work = fails
    failing.send_bytes(_LARGE_HEAD + bytes(LARGE_FRAME_BYTES + 1))
    other.send_bytes(_HEAD)
    assert not other.transport.is_reading()
    gc.disable()
    try:
        for _ in range(5):
            await asyncio.sleep(0)
    finally:
        gc.enable()
    assert failing.transport.aborted
    assert other.transport.is_reading()


async def test_large_frames_that_are_lost_at_once_are_freed_one_by_one() -> None:
    """One client goes, with many connections: for each 52 MB the system needs some five milliseconds."""
    with ExitStack() as stack:
        listener, memory = _World(stack, 100).listener, []
        clients = [LoneClient(listener) for _ in range(5)]
        for each in clients:
            each.send_bytes(_LARGE_HEAD)
            memory.append(ref(memoryview(each.connection.get_buffer(-1)).obj))
        del each
        while clients:
            clients.pop().close()
        seen = []
        for _ in range(len(memory) + 1):
            seen.append(sum(each() is not None for each in memory))
            await asyncio.sleep(0)
    assert seen == [5, 4, 3, 2, 1, 0]


async def test_very_many_that_waited_go_on_in_turns(world: _World) -> None:
    """3,000 small frames waited for the memory of a few large ones: 30 ms for all, and 128 to read what had come."""
    holders = world.clients(2)
    for each in holders:
        each.send_bytes(_HEAD)
    small = world.clients(3 * FRAMES_GRANTED_AT_ONCE)
    for each in small:
        each.send_bytes(struct.pack(">i", IDLE_BUFFER_BYTES + 1))
    for each in holders:
        each.connection.connection_lost(None)
    seen = []
    for _ in range(4):
        seen.append(sum(each.transport.is_reading() for each in small))
        await asyncio.sleep(0)
    assert seen == [FRAMES_GRANTED_AT_ONCE * n for n in (1, 2, 3, 3)]
