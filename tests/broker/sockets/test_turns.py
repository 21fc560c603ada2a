"""What one turn of the loop receives and sends: thousands of sockets may be ready in the same one."""

from __future__ import annotations

import asyncio
import gc
import socket
import struct
from collections.abc import Iterator
from itertools import pairwise
from weakref import ref

import pytest

from ottla.base.limits import (
    BUSY_BUFFER_BYTES,
    POLLED_AT_ONCE,
    RECEIVED_AT_ONCE_BYTES,
    RECEIVED_LEAST_BYTES,
    RECEIVED_PIECE_BYTES,
    RECEIVED_TURN_BYTES,
)
from ottla.broker.answers import Last, Later
from ottla.broker.server import Connection
from ottla.broker.sockets.poller import READ, WRITE
from ottla.broker.sockets.tls import RECORD_BYTES
from ottla.broker.sockets.transport import SocketTransport
from tests.broker.sockets.ends import TlsPair, World

_SIZE = 55_000
_BIG = struct.pack(">i", _SIZE) + bytes(_SIZE)
_SMALL = struct.pack(">i", 5) + b"small"
#: Connections with such a large frame that are ready in the same turn.
_MANY = 4 * RECEIVED_TURN_BYTES // _SIZE


def _above_pieces(world: World, received: dict[Connection, int]) -> int:
    """What was received beyond a piece for each connection."""
    piece_bytes = RECEIVED_PIECE_BYTES if world.tls is None else RECORD_BYTES
    return sum(max(0, each - piece_bytes) for each in received.values())


async def test_one_turn_receives_so_many_bytes_whatever_is_ready(world: World) -> None:
    peers = world.come(_MANY, _BIG)
    turns = await world.until(lambda: len(world.sizes) == _MANY)
    assert turns >= 4
    most = max(_above_pieces(world, each) for each in world.received)
    assert most <= RECEIVED_TURN_BYTES + BUSY_BUFFER_BYTES
    assert world.sizes == [_SIZE] * _MANY
    assert [each.answers() for each in peers] == [b"!"] * _MANY
    await world.turn()
    assert not world.poller.some_wait


async def test_those_that_wait_go_on_in_the_order_in_which_they_came(world: World) -> None:
    world.come(_MANY, 2 * _BIG)
    turns = 0
    while len(world.sizes) < 2 * _MANY:
        before = list(world.poller._waiting)
        await world.turn()
        after = list(world.poller._waiting)
        served = before.index(after[0]) if after and after[0] in before else len(before)
        assert after[: len(before) - served] == before[served:], "the first of them went on, and nobody overtook others"
        turns += served < len(before)
    assert turns >= 2


async def test_small_requests_are_received_and_answered_in_any_turn(world: World) -> None:
    small = world.come(50)
    big = world.come(POLLED_AT_ONCE - 60, 2 * _BIG)
    await world.turn()
    turns = 0
    while world.sizes.count(_SIZE) < 2 * len(big):
        for each in small:
            each.send(_SMALL)
        await world.turn()
        turns += 1
        assert [each.answers() for each in small] == [b"!"] * len(small)
    assert turns >= 4


async def test_many_small_requests_are_received_in_several_turns(world: World) -> None:
    world.come(3 * POLLED_AT_ONCE, _SMALL)
    turns = await world.until(lambda: len(world.sizes) == 3 * POLLED_AT_ONCE)
    assert max(len(each) for each in world.received) == POLLED_AT_ONCE
    assert 3 <= turns <= 5


async def test_nobody_is_left_out_where_more_are_ready_than_a_turn_looks_at(world: World) -> None:
    peers = world.come(2 * POLLED_AT_ONCE + 10)
    for _ in range(20):
        for each in peers:
            each.send(_SMALL)
            each.answers()
        await world.turn()
    await world.until(lambda: len(world.sizes) == 20 * len(peers))
    counts = [sum(each.connection in turn for turn in world.received) for each in peers]
    assert min(counts) >= 5


async def test_of_one_client_no_more_is_received_than_of_all(world: World) -> None:
    size = 30 * RECEIVED_AT_ONCE_BYTES
    big = World(world.tls, largest_bytes=size)
    (peer,) = big.come(1)
    left = memoryview(struct.pack(">i", size) + bytes(size))
    while left:
        left = left[peer.send(bytes(left[: 2 * RECEIVED_AT_ONCE_BYTES])) :]
        received = await big.turn()
        assert sum(received.values()) <= RECEIVED_AT_ONCE_BYTES
    await big.until(lambda: big.sizes == [size])
    await big.end()


async def test_many_receives_of_a_few_kilobytes_are_more_than_their_bytes(world: World) -> None:
    size = 2 * RECEIVED_PIECE_BYTES
    count = 2 * RECEIVED_TURN_BYTES // RECEIVED_LEAST_BYTES
    world.come(count, struct.pack(">i", size) + bytes(size))
    await world.until(lambda: len(world.sizes) == count)
    assert max(len(each) for each in world.received) <= POLLED_AT_ONCE
    assert world.sizes == [size] * count


async def test_what_is_dropped_behind_a_last_request_counts_too(world: World) -> None:
    world.listener.dispatch = lambda frame, session: Last(b"", 1_000_000)
    peers = world.come(_MANY, _SMALL)
    await world.until(lambda: sum(len(turn) for turn in world.received) == _MANY)
    begun = len(world.received)
    for each in peers:
        each.send(bytes(_SIZE))
    await world.until(lambda: sum(sum(turn.values()) for turn in world.received[begun:]) == _MANY * _SIZE)
    for turn in world.received[begun:]:
        assert _above_pieces(world, turn) <= RECEIVED_TURN_BYTES + BUSY_BUFFER_BYTES


async def test_a_client_that_sends_much_but_not_in_one_turn_does_not_wait(world: World) -> None:
    (peer,) = world.come(1)
    for _ in range(5 * RECEIVED_TURN_BYTES // _SIZE):
        world.sizes.clear()
        peer.send(_BIG)
        await world.until(lambda: bool(world.sizes), 6)
        assert peer.answers() == b"!"
        assert not world.poller.some_wait


async def test_what_is_decrypted_and_has_no_room_is_received_although_nothing_more_comes(pair: TlsPair) -> None:
    """A record of 16 KB, and a buffer of 4 KB: the kernel knows nothing of the rest."""
    world = World(pair)
    count = POLLED_AT_ONCE + 20
    world.come(count, struct.pack(">i", 12_000) + bytes(12_000))
    await world.until(lambda: world.sizes == [12_000] * count, 20)
    await world.end()


async def test_what_is_decrypted_while_it_is_not_read_is_received_later(pair: TlsPair) -> None:
    world = World(pair)
    (peer,) = world.come(1, struct.pack(">i", 12_000) + bytes(4_000))
    await world.turn()
    peer.transport.pause_reading()
    peer.send(bytes(8_000))
    for _ in range(5):
        assert not await world.turn() or len(world.received) == 2
    assert not world.sizes
    peer.transport.resume_reading()
    await world.until(lambda: world.sizes == [12_000], 10)
    await world.end()


async def test_many_rests_are_received_in_several_turns(pair: TlsPair) -> None:
    world = World(pair)
    count = 2 * POLLED_AT_ONCE + 20
    peers = world.come(count, struct.pack(">i", 12_000) + bytes(4_000))
    await world.until(lambda: sum(len(turn) for turn in world.received) >= count)
    for each in peers:
        each.transport.pause_reading()
        each.send(bytes(8_000))
    for each in peers:
        sealed = each.transport._sealed  # type: ignore[attr-defined]
        sealed.receive(20_000)
        sealed.keep()
        each.transport.resume_reading()
    await world.until(lambda: world.sizes == [12_000] * count, 10)
    assert max(len(turn) for turn in world.received) <= POLLED_AT_ONCE
    await world.end()


async def test_nothing_is_sent_in_a_turn_that_has_no_more_bytes(world: World) -> None:
    (peer,) = world.come(1)
    pushed: list[int] = []

    def push() -> int:
        pushed.append(1)
        return 7

    peer.transport.watch_writing(push)
    assert peer.transport.ready(WRITE, True) == RECEIVED_PIECE_BYTES
    assert not pushed
    assert (peer.transport.ready(WRITE, False), pushed) == (7, [1])
    peer.transport.watch_writing(None)


# ends


@pytest.mark.parametrize("rest", [0, 1, POLLED_AT_ONCE - 1])
@pytest.mark.parametrize("how", ["closed", "reset"])
async def test_many_that_end_at_once_end_in_several_turns(pair: TlsPair, rest: int, how: str) -> None:
    world = World()
    count = 3 * POLLED_AT_ONCE + rest
    host, port = await world.listener.bind("127.0.0.1", 0, count)
    await world.listener.listen()
    clients = [socket.create_connection((host, port)) for _ in range(count)]
    await world.until(lambda: len(world.connections._open) == count)
    for each in clients:
        if how == "reset":
            each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        each.close()
    seen = [count]
    while world.connections._open:
        await world.turn()
        seen.append(len(world.connections._open))
    assert max(before - after for before, after in pairwise(seen)) <= POLLED_AT_ONCE
    world.listener.stop()
    await world.end()


async def test_ends_behind_what_waits_are_seen_and_what_was_sent_is_answered(world: World) -> None:
    peers = world.come(_MANY, _BIG)
    await world.until(lambda: world.poller.some_wait)
    for number, each in enumerate(peers):
        if number % 2:
            each.socket.shutdown(socket.SHUT_WR)
        else:
            each.socket.close()
    await world.until(lambda: sum(world.ended) == _MANY)
    assert world.sizes.count(_SIZE) == _MANY, "all of them were whole"


async def test_an_end_is_told_once_and_nothing_is_read_behind_it(world: World) -> None:
    """What came before it is still answered."""
    answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
    later = Later(answer, lambda content: content)
    answers: Iterator[Later | bytes] = iter([later, b"second"])
    world.listener.dispatch = lambda frame, session: next(answers)
    (peer,) = world.come(1, 2 * _SMALL)
    told = []
    told_by = peer.connection.eof_received
    peer.connection.eof_received = lambda: told.append(1) or told_by()  # type: ignore[method-assign, func-returns-value]
    await world.turn()
    peer.end()
    for _ in range(5):
        await world.turn()
        peer.transport.resume_reading()
    assert (told, peer.transport.is_reading()) == ([1], False)
    answer.set_result(b"first")
    await world.until(lambda: peer.connection.is_lost)
    assert peer.answers() == b"firstsecond"


async def test_a_stop_does_not_wait_for_those_that_wait(world: World) -> None:
    world.come(_MANY, _BIG)
    await world.until(lambda: world.poller.some_wait)
    world.connections.close()
    await world.connections.ended()
    assert len(world.sizes) < _MANY


async def test_one_that_is_lost_while_it_waits_leaves_nothing_behind(world: World) -> None:
    peers = world.come(_MANY, _BIG)
    await world.until(lambda: world.poller.some_wait)
    waits = {each.transport.connected.fileno(): each for each in peers}
    lost = next(waits[number] for number in world.poller._waiting)
    lost.transport.abort()
    gone = ref(lost.connection)
    peers.remove(lost)
    world.peers.remove(lost)
    waits.clear()
    gc.disable()
    try:
        del lost
        world.received, world.ended = [{}], [0]
        await world.turn()
        world.received = [{}]
        assert gone() is None
    finally:
        gc.enable()
    await world.until(lambda: len(world.sizes) == _MANY - 1)


# those that always have something


class _Busy:
    """There is always something in its socket. It says that it took so many bytes, and counts its calls."""

    def __init__(self, world: World, takes_bytes: int) -> None:
        self.ours, self.theirs = socket.socketpair()
        self.theirs.send(b"x")
        self.calls = 0
        self._takes_bytes = takes_bytes
        world.poller.watch(self.ours.fileno(), self, READ)

    def ready(self, _events: int, only_a_piece: bool, /) -> int:
        self.calls += 1
        return min(self._takes_bytes, RECEIVED_PIECE_BYTES) if only_a_piece else self._takes_bytes

    def abort(self) -> None:
        raise AssertionError("it does not fail")

    def close(self) -> None:
        self.ours.close()
        self.theirs.close()


@pytest.mark.parametrize("large", [0, 1, 200])
async def test_everybody_has_a_turn_where_all_always_have_something(large: int) -> None:
    """One large receive is a whole turn. Of the others no turn looks at more than it may, and none is left out."""
    world = World()
    large_ones = [_Busy(world, RECEIVED_TURN_BYTES) for _ in range(large)]
    small_ones = [_Busy(world, 10) for _ in range(POLLED_AT_ONCE + 44)]
    turns = 2 * large + 20
    for _ in range(turns):
        before = sum(each.calls for each in small_ones)
        await world.turn()
        assert sum(each.calls for each in small_ones) - before <= POLLED_AT_ONCE
    assert min(each.calls for each in small_ones) >= turns // 4
    assert all(each.calls >= 2 for each in large_ones)
    await world.end()
    for each in (*large_ones, *small_ones):
        each.close()


async def test_small_requests_have_every_turn_however_many_wait() -> None:
    world = World()
    large_ones = [_Busy(world, RECEIVED_TURN_BYTES) for _ in range(3 * POLLED_AT_ONCE)]
    await world.until(lambda: len(world.poller._waiting) >= len(large_ones) - 1)
    small_ones = [_Busy(world, 10) for _ in range(10)]
    for turn in range(20):
        await world.turn()
        assert [each.calls for each in small_ones] == [turn + 1] * len(small_ones)
    await world.end()
    for each in (*large_ones, *small_ones):
        each.close()


# one that fails


class _Failing:
    """Its turn fails."""

    def __init__(self, world: World) -> None:
        self.ours, self.theirs = socket.socketpair()
        self.theirs.send(b"x")
        self.poller = world.poller
        self.is_aborted = False
        world.poller.watch(self.ours.fileno(), self, READ)

    def ready(self, _events: int, _only_a_piece: bool, /) -> int:
        raise ConnectionError("no turn")

    def abort(self) -> None:
        self.is_aborted = True
        self.poller.watch(self.ours.fileno(), self, 0, READ)


async def test_one_whose_turn_fails_is_closed_and_keeps_no_other_from_it(world: World) -> None:
    told: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: told.append(context["exception"]))
    failing = _Failing(world)
    (peer,) = world.come(1, _SMALL)
    await world.until(lambda: world.sizes == [5])
    assert ([str(each) for each in told], failing.is_aborted) == (["no turn"], True)
    assert peer.answers() == b"!"
    failing.ours.close()
    failing.theirs.close()


async def test_a_connection_that_fails_when_it_is_made_is_closed(world: World) -> None:
    def guard(*_args: object) -> object:
        raise MemoryError("no room for it")

    world.listener.guard(guard, 100)  # type: ignore[arg-type]
    ours, theirs = socket.socketpair()
    connection = Connection(world.listener)
    with pytest.raises(MemoryError):
        SocketTransport(world.poller, ours, ("127.0.0.1", 1)).begin(connection)
    await world.turn()
    await world.turn()
    assert theirs.recv(1) == b"", "it is closed"
    theirs.close()
