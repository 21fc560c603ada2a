"""What strangers can take of a broker before they have said who they are, and what clients take that do not read."""

from __future__ import annotations

import asyncio
import ssl
import struct
import tracemalloc
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from ottla.base.clock import ManualClock
from ottla.base.limits import AUTHENTICATION_MS, BUSY_BUFFER_BYTES, MAX_STRANGERS_BYTES, STALLED_FRAME_MS
from ottla.broker.answers import Frame
from ottla.broker.connections import Connections
from ottla.broker.listening import Listener
from ottla.broker.unread import UnreadAnswers
from ottla.testing import AsyncBroker
from tests.broker.fuzzing import hello
from tests.broker.lone_connections import LoneClient
from tests.broker.wire_client import WireClient
from tests.client.certificates import Authority

_FRAME_BYTES = 524_288
_HEAD = struct.pack(">i", _FRAME_BYTES)
_MANY = 200
#: Of a turn: what is tested here comes in one.
_NO_LIMIT = 1 << 40


class _World:
    """A listener that asks nobody who he is, and one whose clients are strangers until they have sent a `!`."""

    def __init__(self, stack: ExitStack) -> None:
        self.clock = ManualClock()
        self.answers = b""
        self.frames = 0
        self.connections = Connections(
            self.clock, max_idle_ms=-1, max_queued_bytes=2 * _FRAME_BYTES, max_turn_bytes=_NO_LIMIT
        )
        self.plain = self._listener("PLAIN")
        self.guarded = self._listener("GUARDED")
        self.guarded.guard(lambda dispatch, admit: lambda frame, session: _admitted(frame, admit), _FRAME_BYTES)
        self._stack = stack

    def _listener(self, name: str) -> Listener:
        return Listener(self._dispatch, self.clock, self.connections, name=name, max_request_bytes=4 * _FRAME_BYTES)

    def _dispatch(self, frame: Frame, session: object) -> bytes:
        self.frames += 1
        return self.answers

    def client(self, listener: Listener) -> LoneClient:
        return self._stack.enter_context(closing(LoneClient(listener)))


def _admitted(frame: Frame, admit: object) -> bytes:
    if bytes(frame[:1]) == b"!":
        assert callable(admit)
        admit()
    return b""


@pytest.fixture
def world() -> Iterator[_World]:
    with ExitStack() as stack:
        yield _World(stack)


async def test_half_frames_of_strangers_take_no_memory_from_others(world: _World) -> None:
    room = MAX_STRANGERS_BYTES // (_FRAME_BYTES + 4) + 1
    strangers = [world.client(world.guarded) for _ in range(_MANY)]
    for each in strangers:
        each.send_bytes(_HEAD)
    assert sum(each.transport.is_reading() for each in strangers) == room
    known = world.client(world.plain)
    known.send_bytes(_HEAD + bytes(_FRAME_BYTES))
    assert world.frames == 1
    world.clock.advance(AUTHENTICATION_MS + 1)
    world.connections.close_idle()
    assert all(each.transport.aborted for each in strangers), "also those that wait for memory"
    assert not known.transport.aborted


async def test_who_has_said_who_he_is_has_the_memory_of_all(world: _World) -> None:
    for each in [world.client(world.guarded) for _ in range(_MANY)]:
        each.send_bytes(_HEAD)
    one = world.client(world.guarded)
    one.send_bytes(struct.pack(">i", 1) + b"!")
    one.send_bytes(struct.pack(">i", 2 * _FRAME_BYTES) + bytes(BUSY_BUFFER_BYTES))
    assert one.transport.is_reading()
    one.send_bytes(bytes(2 * _FRAME_BYTES - BUSY_BUFFER_BYTES))
    assert not world.connections.memory.is_short


async def test_a_frame_that_was_begun_as_a_stranger_gives_its_own_memory_back(world: _World) -> None:
    one = world.client(world.guarded)
    one.send_bytes(struct.pack(">i", 1) + b"!" + _HEAD + b"x")  # both in one read
    one.send_bytes(bytes(_FRAME_BYTES - 1))
    others = [world.client(world.plain) for _ in range(3)]
    for each in others:
        each.send_bytes(_HEAD)
    assert [each.transport.is_reading() for each in others] == [True, True, False]


def _strangers_that_do_not_read(world: _World, count: int) -> list[LoneClient]:
    """Each has an answer that it does not take, and everything that it sends now has to wait for that."""
    world.answers = bytes(1_000_000)
    world.guarded.guard(lambda dispatch, admit: dispatch, _FRAME_BYTES)
    strangers = [world.client(world.guarded) for _ in range(count)]
    for each in strangers:
        each.send_bytes(struct.pack(">i", 8_000) + bytes(8_000))  # fills the first buffer: it gets a larger one
    return strangers


async def test_frames_of_strangers_that_wait_are_of_the_strangers_memory(world: _World) -> None:
    taken = 0
    for each in _strangers_that_do_not_read(world, _MANY):
        while each.transport.is_reading() and taken < 4 * MAX_STRANGERS_BYTES:
            part = each.send_part(_HEAD + bytes(_FRAME_BYTES), at=0)
            while each.transport.is_reading() and part < 4 + _FRAME_BYTES:
                part = each.send_part(_HEAD + bytes(_FRAME_BYTES), at=part)
            taken += part
    assert taken <= MAX_STRANGERS_BYTES + _MANY * BUSY_BUFFER_BYTES


async def test_a_stranger_has_one_frame_at_a_time_however_small(world: _World) -> None:
    few = 20
    strangers = _strangers_that_do_not_read(world, few)
    small = (struct.pack(">i", 2) + b"xy") * BUSY_BUFFER_BYTES
    tracemalloc.start()
    try:
        for each in strangers:
            part = 0
            while each.transport.is_reading():
                part = each.send_part(small, at=part)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < few * 2 * BUSY_BUFFER_BYTES


async def test_frames_of_a_stranger_that_waited_are_answered_in_order(world: _World) -> None:
    [one] = _strangers_that_do_not_read(world, 1)
    frames = [struct.pack(">i", size) + bytes(size) for size in (3, 70_000, 0, 5, 2 * BUSY_BUFFER_BYTES, 1)]
    data, part, read = b"".join(frames), 0, 0
    while part < len(data) or world.frames < 1 + len(frames):
        if part < len(data) and one.transport.is_reading():
            part = one.send_part(data, at=part)
            continue
        read += len(one.answers())
        await asyncio.sleep(0)
    assert world.frames == 1 + len(frames)
    assert not world.connections.strangers_memory.is_short


async def test_large_frames_of_a_stranger_leave_no_large_buffer_behind(world: _World) -> None:
    few = 20
    strangers = [world.client(world.guarded) for _ in range(few)]
    tracemalloc.start()
    try:
        for each in strangers:
            each.send_bytes(_HEAD + bytes(_FRAME_BYTES))
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < few * 2 * BUSY_BUFFER_BYTES


async def test_a_strangers_frame_that_waits_for_him_to_read_gives_way(world: _World) -> None:
    slow = _strangers_that_do_not_read(world, MAX_STRANGERS_BYTES // _FRAME_BYTES)
    for each in slow:
        each.send_bytes(_HEAD + bytes(_FRAME_BYTES))
        assert not each.transport.is_reading()
    world.answers = b""
    other = world.client(world.guarded)
    other.send_bytes(_HEAD)
    assert not other.transport.is_reading()
    world.clock.advance(STALLED_FRAME_MS + 1)
    world.connections.close_idle()
    assert all(each.transport.aborted for each in slow)
    assert not other.transport.aborted


async def test_of_answers_that_nobody_reads_those_go_that_have_waited_longest(
    world: _World, caplog: pytest.LogCaptureFixture
) -> None:
    world.answers = bytes(8_000_000)
    world.connections.unread = UnreadAnswers(20_000_000, world.connections.tell_closed)
    clients = [world.client(world.plain) for _ in range(4)]
    for each in clients:
        each.send(2)
    assert world.frames == 4, "the second request of each waits until the answer to the first is read"
    assert [each.transport.aborted for each in clients] == [True, True, False, False]
    (line,) = caplog.messages
    assert line.endswith("it does not read its answers"), "one line for two connections of an address"
    assert 10_000_000 < world.connections.unread.held_bytes < 16_000_000
    for each in clients:
        each.connection.connection_lost(None)
    assert world.connections.unread.held_bytes == 0


async def test_an_answer_that_is_read_is_not_counted_any_more(world: _World) -> None:
    world.answers = bytes(8_000_000)
    client = world.client(world.plain)
    client.send(1)
    assert world.connections.unread.held_bytes > 0
    read = 0
    while read < len(world.answers):
        read += len(client.answers())
        await asyncio.sleep(0)
    assert world.connections.unread.held_bytes == 0


@pytest.mark.parametrize("half", [0, 7, -1, None], ids=["nothing", "a-few-bytes", "all-but-one", "the-whole-hello"])
async def test_half_open_handshakes_keep_nobody_from_being_served(tmp_path: Path, half: int | None) -> None:
    authority = Authority(tmp_path, "authority")
    authority.certificate("here", host="127.0.0.1")
    config = {
        "listeners": "SSL://127.0.0.1:0",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(tmp_path / "here.pem"),
        "max.connections.per.ip": _MANY + 1,
    }
    context = ssl.create_default_context(cafile=str(tmp_path / "authority.pem"))
    async with AsyncBroker(config) as broker:
        slow = [await asyncio.open_connection(broker.host, broker.port) for _ in range(_MANY)]
        for _, writer in slow:
            writer.write(hello(context)[:half])
        async with WireClient(broker, tls=context) as client:
            for _ in range(20):
                assert await client.ask_api_versions()
            with pytest.raises((ConnectionError, ssl.SSLError)):  # each of them counts
                async with WireClient(broker, tls=context):
                    pass
            for _, writer in slow:
                writer.close()
            assert await client.ask_api_versions()
