"""Connections share one loop: whoever pipelines many requests lets the others have their turn between them."""

import asyncio
import struct
from typing import Any

from ottla.base.clock import ManualClock
from ottla.base.limits import FRAME_BYTES_AT_ONCE, FRAMES_AT_ONCE, ROW_MS
from ottla.broker.answers import Frame, Later
from ottla.broker.connections import Connections
from ottla.broker.listening import Listener
from tests.broker.lone_connections import LoneClient

_MANY = 10 * FRAMES_AT_ONCE


async def test_a_connection_with_many_requests_does_not_keep_the_others_waiting() -> None:
    order: list[bytes] = []

    def dispatch(frame: Frame, session: object) -> Any:
        order.append(bytes(frame))
        return bytes(frame)

    clock = ManualClock()
    connections = Connections(clock, max_connections=10, max_idle_ms=-1)
    listener = Listener(dispatch, clock, connections, name="PLAINTEXT", max_request_bytes=100)
    greedy, modest = LoneClient(listener, b"g"), LoneClient(listener, b"m")
    greedy.send(_MANY)
    assert order == [b"g"] * FRAMES_AT_ONCE
    assert not greedy.transport.is_reading(), "with so many waiting its socket is left alone"
    turns = _MANY // FRAMES_AT_ONCE - 1
    for _ in range(turns):
        handled = len(order)
        modest.send(1)
        assert order[handled:] == [b"m"], "answered at once"
        await asyncio.sleep(0)  # a turn of the loop
        assert order[handled + 1 :] == [b"g"] * FRAMES_AT_ONCE
    assert greedy.transport.is_reading()
    assert greedy.answers() == b"g" * _MANY
    assert modest.answers() == b"m" * turns
    greedy.close()
    modest.close()


async def test_large_requests_that_have_waited_do_not_keep_the_others_waiting() -> None:
    """They wait behind a request that is answered later; then they are answered one after the other."""
    waiting: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
    handled: list[int] = []

    def dispatch(frame: Frame, session: object) -> Any:
        handled.append(len(frame))
        return Later(waiting, lambda result: result) if len(frame) == 1 else b"a"

    clock = ManualClock()
    connections = Connections(clock, max_connections=10, max_idle_ms=-1)
    listener = Listener(dispatch, clock, connections, name="PLAINTEXT", max_request_bytes=1_000_000)
    greedy = LoneClient(listener)
    size, count = FRAME_BYTES_AT_ONCE // 3, 4 * FRAMES_AT_ONCE
    greedy.send(1)
    greedy.send_bytes((struct.pack(">i", size) + bytes(size)) * count)
    assert handled == [1]
    waiting.set_result(b"w")
    while len(handled) <= count:
        before = len(handled)
        await asyncio.sleep(0)  # a turn of the loop
        assert sum(handled[before:]) < FRAME_BYTES_AT_ONCE + size
    assert greedy.answers() == b"w" + b"a" * count
    greedy.close()


async def test_requests_that_take_long_end_the_row() -> None:
    """Each is far below every limit, and takes a millisecond."""
    clock, handled = ManualClock(), 0

    def dispatch(frame: Frame, session: object) -> Any:
        nonlocal handled
        handled += 1
        clock.advance(1)
        return b"a"

    connections = Connections(clock, max_connections=10, max_idle_ms=-1)
    listener = Listener(dispatch, clock, connections, name="PLAINTEXT", max_request_bytes=1_000_000)
    greedy = LoneClient(listener)
    greedy.send(6)
    for turn in range(1, 4):
        assert handled == turn * ROW_MS
        await asyncio.sleep(0)  # a turn of the loop
    assert greedy.answers() == b"a" * 6
    greedy.close()
