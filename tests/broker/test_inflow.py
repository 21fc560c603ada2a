"""How much all connections receive in one turn of the loop: thousands may have something ready in the same."""

import asyncio
import gc
import struct
from collections.abc import AsyncIterator
from contextlib import ExitStack, closing
from weakref import ref

import pytest

from ottla.base.clock import ManualClock
from ottla.base.limits import (
    AUTHENTICATION_MS,
    BUSY_BUFFER_BYTES,
    LARGE_FRAME_BYTES,
    RECEIVED_AT_ONCE_BYTES,
    RECEIVED_LEAST_BYTES,
    RECEIVED_PIECE_BYTES,
    RECEIVED_TURN_BYTES,
    SLOW_FRAME_MS,
)
from ottla.broker.answers import Frame, Last
from ottla.broker.connections import Connections
from ottla.broker.inflow import Inflow
from ottla.broker.listening import Listener
from ottla.broker.session import Session
from tests.broker.lone_connections import LoneClient

#: libuv calls the receive again while it fills the room, so often at most.
_AGAIN = 32
_IDLE_MS = 60_000
_LARGEST_BYTES = 10 * LARGE_FRAME_BYTES
_QUEUED_BYTES = 4 * _LARGEST_BYTES
_SIZE = 55_000
_BIG = struct.pack(">i", _SIZE) + bytes(_SIZE)
_SMALL = struct.pack(">i", 5) + b"small"
#: Connections with such a frame that are ready in the same turn.
_MANY = 4 * RECEIVED_TURN_BYTES // _SIZE


class _Peer(LoneClient):
    """A client whose bytes are in its socket already."""

    def __init__(self, listener: Listener, *, tls: bool = False) -> None:
        super().__init__(listener, tls=tls)
        self._in_socket = b""
        self.received_bytes = 0

    def put(self, data: bytes) -> None:
        """This comes to its socket, too."""
        self._in_socket += data

    @property
    def is_done(self) -> bool:
        """Whether nothing is in its socket."""
        return not self._in_socket

    def is_ready(self) -> int:
        """The loop tells that its socket is ready: how many bytes are received then."""
        before = self.received_bytes
        for _ in range(_AGAIN):
            if not self._in_socket or not self.transport.is_reading():
                break
            room = memoryview(self.connection.get_buffer(-1))
            part, self._in_socket = self._in_socket[: len(room)], self._in_socket[len(room) :]
            room[: len(part)] = part
            self.received_bytes += len(part)
            self.connection.buffer_updated(len(part))
            if len(part) < len(room):
                break
        return self.received_bytes - before


class _World:
    """A listener, and whose frames it has carried out, in order."""

    def __init__(self, stack: ExitStack) -> None:
        self.clock = ManualClock()
        self.connections = Connections(
            self.clock, max_connections=10_000, max_idle_ms=_IDLE_MS, max_queued_bytes=_QUEUED_BYTES
        )
        self.listener = Listener(
            self._dispatch, self.clock, self.connections, name="PLAINTEXT", max_request_bytes=_LARGEST_BYTES
        )
        self.sizes: list[int] = []
        self._stack = stack

    def _dispatch(self, frame: Frame, session: Session) -> bytes:
        self.sizes.append(len(frame))
        return b"!"

    def peers(self, count: int, data: bytes = b"") -> list[_Peer]:
        """So many clients, each with this in its socket."""
        peers = [self._stack.enter_context(closing(_Peer(self.listener))) for _ in range(count)]
        for each in peers:
            each.put(data)
        return peers

    async def turn(self, peers: list[_Peer]) -> list[int]:
        """A turn of the loop, which looks at all of them. What each has received."""
        await asyncio.sleep(0)
        return [each.is_ready() for each in peers]


@pytest.fixture
async def world() -> AsyncIterator[_World]:
    with ExitStack() as stack:
        yield _World(stack)


class _Other:
    called = 0

    def receive_more(self) -> int:
        self.called += 1
        return 1


def _above_pieces(received: list[int]) -> int:
    """What they have received beyond a piece each."""
    return sum(max(0, each - RECEIVED_PIECE_BYTES) for each in received)


async def test_one_turn_receives_so_many_bytes_whatever_is_ready(world: _World) -> None:
    peers = world.peers(_MANY, _BIG)
    seen = []
    while not all(each.is_done for each in peers):
        seen.append(await world.turn(peers))
        assert len(seen) <= 8, "it goes on"
        assert _above_pieces(seen[-1]) <= RECEIVED_TURN_BYTES + BUSY_BUFFER_BYTES
    assert len(seen) >= 4
    assert world.sizes == [_SIZE] * _MANY
    assert [each.answers() for each in peers] == [b"!"] * _MANY
    for _ in range(3):
        await world.turn(peers)
    assert all(each.transport.is_reading() for each in peers)


async def test_those_that_wait_go_on_in_the_order_in_which_they_came(world: _World) -> None:
    peers = world.peers(_MANY, _BIG)
    done: list[_Peer] = []
    while len(done) < _MANY:
        received = await world.turn(peers[::-1] if done else peers)  # the loop has an order of its own
        assert any(received)
        done += [each for each in peers if each.is_done and each not in done]
        assert done == peers[: len(done)]


async def test_later_ones_do_not_overtake_those_that_wait(world: _World) -> None:
    waiting = world.peers(_MANY, _BIG)
    await world.turn(waiting)
    while not all(each.is_done for each in waiting):
        (late,) = world.peers(1, _BIG)
        received = await world.turn([late, *waiting])
        if not all(each.is_done for each in waiting):
            assert received[0] <= RECEIVED_PIECE_BYTES


async def test_small_requests_are_received_whole_in_any_turn(world: _World) -> None:
    big, small = world.peers(_MANY, _BIG), world.peers(100)
    while not all(each.is_done for each in big):
        for each in small:
            each.put(_SMALL)
        await world.turn(big + small)
        assert all(each.is_done for each in small)
        assert [each.answers() for each in small] == [b"!"] * len(small)


async def test_of_one_client_no_more_is_received_than_of_all(world: _World) -> None:
    """The loop receives again and again from a socket in which there is more."""
    size = _LARGEST_BYTES
    (peer,) = world.peers(1, struct.pack(">i", size) + bytes(size))
    seen = []
    while not peer.is_done:
        seen += await world.turn([peer])
        assert seen[-1] <= RECEIVED_TURN_BYTES + RECEIVED_AT_ONCE_BYTES
    assert world.sizes == [size]
    assert len(seen) < 20


async def test_those_that_went_on_and_had_nothing_do_not_receive_all_at_once_later(world: _World) -> None:
    peers = world.peers(_MANY, _BIG[:-10_000])
    for each in peers:
        each.is_ready()
    for _ in range(20):
        await asyncio.sleep(0)  # none of them is looked at
        await world.turn(peers[-1:])
    for each in peers:
        each.put(_BIG[-10_000:])
    while not all(each.is_done for each in peers):
        assert _above_pieces(await world.turn(peers)) <= RECEIVED_TURN_BYTES + BUSY_BUFFER_BYTES
    assert world.sizes == [_SIZE] * _MANY


async def test_many_receives_of_a_few_kilobytes_are_more_than_their_bytes(world: _World) -> None:
    size = 2 * RECEIVED_PIECE_BYTES
    peers = world.peers(2 * RECEIVED_TURN_BYTES // RECEIVED_LEAST_BYTES, struct.pack(">i", size) + bytes(size))
    turns = 0
    while not all(each.is_done for each in peers):
        await world.turn(peers)
        turns += 1
    assert world.sizes == [size] * len(peers)
    assert turns >= 4


async def test_a_buffer_that_has_grown_for_one_that_goes_on_counts(world: _World) -> None:
    size = RECEIVED_PIECE_BYTES - 4
    peers = world.peers(2 * RECEIVED_TURN_BYTES // RECEIVED_LEAST_BYTES, struct.pack(">i", size) + bytes(size))
    await world.turn(peers)
    waited = [each for each in peers if not each.transport.is_reading()]
    assert waited
    while not all(each.transport.is_reading() for each in peers):
        await world.turn(peers)
    assert world.connections.kept_bytes == len(waited) * (BUSY_BUFFER_BYTES - RECEIVED_PIECE_BYTES)


async def test_the_count_begins_anew_with_a_turn(world: _World) -> None:
    """A client that sends much, but not in one turn, is not stopped."""
    (peer,) = world.peers(1)
    for _ in range(5 * RECEIVED_TURN_BYTES // _SIZE):
        peer.put(_BIG)
        assert await world.turn([peer]) == [len(_BIG)]
        assert peer.answers() == b"!"
        assert peer.transport.is_reading()


def test_a_turn_in_which_little_is_received_costs_no_callback() -> None:
    """There is no loop here that it could ask for one."""
    inflow, other = Inflow(), _Other()
    for _ in range(RECEIVED_TURN_BYTES // 2 // _SIZE):
        inflow.has_to_wait(other, _SIZE)
    assert not inflow.is_over
    with pytest.raises(RuntimeError, match="no running event loop"):
        inflow.has_to_wait(other, _SIZE)


async def test_what_is_dropped_behind_a_last_request_counts_too(world: _World) -> None:
    world.listener.dispatch = lambda frame, session: Last(b"", 1_000_000)
    peers = world.peers(_MANY, _SMALL)
    await world.turn(peers)
    for each in peers:
        each.put(bytes(_SIZE))
    while not all(each.is_done for each in peers):
        assert _above_pieces(await world.turn(peers)) <= RECEIVED_TURN_BYTES + BUSY_BUFFER_BYTES


async def test_with_tls_everything_is_received_that_the_loop_has(world: _World) -> None:
    """It has taken it out of the socket, and at the client's end drops what was not read: a producer with acks=0 would
    lose what it sent last."""
    peers = world.peers(_MANY, _BIG)
    with closing(_Peer(world.listener, tls=True)) as secure:
        secure.put(_BIG)
        await world.turn([*peers, secure])
        assert not peers[-1].is_done
        assert secure.is_done
        assert secure.transport.is_reading()
        while not all(each.is_done for each in peers):
            await world.turn(peers)
        secure.put(struct.pack(">i", _LARGEST_BYTES) + bytes(_LARGEST_BYTES))
        _, other = await world.turn([secure, *world.peers(1, _BIG)])
        assert secure.is_done
        assert other == RECEIVED_PIECE_BYTES, "it counts"


async def test_one_that_is_lost_while_it_waits_leaves_nothing_behind(world: _World) -> None:
    peers = world.peers(_MANY, _BIG)
    await world.turn(peers)
    lost = _Peer(world.listener)
    lost.put(struct.pack(">i", _LARGEST_BYTES) + _BIG)
    lost.is_ready()
    assert not lost.transport.is_reading()
    gone = ref(lost.connection), ref(memoryview(lost.connection.get_buffer(-1)).obj)
    lost.close()
    gc.disable()
    try:
        del lost
        await asyncio.sleep(0)  # a large frame is freed in a turn of its own
        assert [each() for each in gone] == [None, None]
    finally:
        gc.enable()
    assert not peers[-1].transport.is_reading(), "others wait"
    while not all(each.is_done for each in peers):
        await world.turn(peers)
    assert not world.connections.memory.is_short


async def test_one_that_waits_is_neither_idle_nor_slow(world: _World) -> None:
    first, *peers = world.peers(_MANY, _BIG[:-1])
    await world.turn([first, *peers])
    last = peers[-1]
    assert not last.transport.is_reading()
    world.clock.advance(_IDLE_MS + 1)
    world.connections.close_idle()
    assert first.transport.aborted, "it waited for its client"
    assert not last.transport.aborted
    while not all(each.is_done for each in peers):
        await world.turn(peers)
    world.connections.close_idle()
    assert not last.transport.aborted
    world.clock.advance(_IDLE_MS + 1)
    world.connections.close_idle()
    assert last.transport.aborted, "now it has waited for its client, too"


async def test_the_time_of_a_slow_frame_goes_on_where_it_has_stopped(world: _World) -> None:
    """Not from the beginning: else whoever sends a piece now and then would keep its memory for ever."""
    peers = world.peers(_MANY)
    slow = peers[-1]
    slow.put(_BIG[:10])
    await world.turn(peers)
    world.clock.advance(SLOW_FRAME_MS - 5_000)
    for each in peers:
        each.put(_BIG[: _SIZE // 2])
    await world.turn(peers)
    assert not slow.transport.is_reading()
    world.clock.advance(SLOW_FRAME_MS)
    while not slow.is_done:
        await world.turn(peers)
    for each in world.peers(_QUEUED_BYTES // _LARGEST_BYTES + 1, struct.pack(">i", _LARGEST_BYTES)):
        each.is_ready()
    assert world.connections.memory.is_short
    world.connections.close_idle()
    assert not slow.transport.aborted
    world.clock.advance(5_001)
    slow.put(b"x")
    slow.is_ready()
    world.connections.close_idle()
    assert slow.transport.aborted


async def test_a_stranger_that_waits_has_no_more_time_to_say_who_it_is(world: _World) -> None:
    world.listener.guard(lambda dispatch, admit: dispatch, 10 * _SIZE)
    peers = world.peers(_MANY, _BIG)
    await world.turn(peers)
    assert not peers[-1].transport.is_reading()
    world.clock.advance(AUTHENTICATION_MS + 1)
    world.connections.close_idle()
    assert peers[-1].transport.aborted


async def test_one_whose_turn_fails_keeps_no_other_from_it() -> None:
    class Failing:
        def receive_more(self) -> int:
            raise ConnectionError("no more")

    told: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: told.append(context["exception"]))
    inflow, other = Inflow(), _Other()
    inflow.wait(Failing())
    inflow.wait(other)
    for _ in range(5):
        await asyncio.sleep(0)
    assert (other.called, [str(each) for each in told]) == (1, ["no more"])
    assert not inflow.is_over
