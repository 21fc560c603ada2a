"""The poller alone: whom it calls, with what, and in which turn."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable

import pytest

from ottla.base.limits import RECEIVED_LEAST_BYTES, RECEIVED_PIECE_BYTES
from ottla.broker.sockets.poller import READ, WRITE, Poller

#: Receives that are a turn.
_FULL = 4


class _One:
    """There is always something in its socket. It says that it took a piece, and notes its calls."""

    def __init__(self, poller: Poller) -> None:
        self.ours, self.theirs = socket.socketpair()
        self.theirs.send(b"x")
        self.poller = poller
        #: Those in which it might do everything, and those in which a piece only.
        self.full = self.pieces = 0
        self.then: Callable[[], object] = int
        self.watch(READ)

    def watch(self, events: int, before: int = 0) -> None:
        self.poller.watch(self.ours.fileno(), self, events, before)

    def ready(self, _events: int, only_a_piece: bool, /) -> int:
        if only_a_piece:
            self.pieces += 1
        else:
            self.full += 1
        self.then()
        return RECEIVED_PIECE_BYTES

    def abort(self) -> None:
        raise AssertionError("it does not fail")


class _World:
    def __init__(self) -> None:
        self.poller = Poller(asyncio.get_running_loop(), _FULL * RECEIVED_LEAST_BYTES)
        self.ones: list[_One] = []

    def come(self, count: int) -> list[_One]:
        come = [_One(self.poller) for _ in range(count)]
        self.ones += come
        return come

    async def turn(self) -> tuple[int, int]:
        """How many could do everything in the next turn, and how many a piece."""
        full, pieces = sum(each.full for each in self.ones), sum(each.pieces for each in self.ones)
        await asyncio.sleep(0)
        return sum(each.full for each in self.ones) - full, sum(each.pieces for each in self.ones) - pieces


@pytest.fixture
async def world() -> AsyncIterator[_World]:
    told: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: told.append(context))
    world = _World()
    yield world
    assert not told
    world.poller.close()
    for each in world.ones:
        each.ours.close()
        each.theirs.close()


async def test_each_that_is_served_counts_so_much_at_least(world: _World) -> None:
    """Also those that have waited: a turn has no more of them, and the others a piece."""
    world.come(10)
    turns = [await world.turn() for _ in range(6)]
    while turns[0] == (0, 0):  # the loop has not looked yet
        turns = [*turns[1:], await world.turn()]
    assert [full for full, _ in turns] == [_FULL] * 6
    assert turns[0] == (_FULL, 10 - _FULL)


async def test_one_that_takes_those_away_that_wait_behind_it_is_the_last_of_them(world: _World) -> None:
    world.come(2 * _FULL)
    while not world.poller.some_wait:
        await world.turn()
    waiting = [each for each in world.ones if each.ours.fileno() in world.poller._waiting]

    def take_all_away() -> None:
        for each in world.ones:
            each.watch(0, READ)

    for each in waiting:
        each.then = take_all_away
        each.full = 0
    before = [each.full for each in world.ones]
    await world.turn()
    assert sum(each.full for each in world.ones) - sum(before) == 1
    await world.turn()
    assert sum(each.full for each in world.ones) - sum(before) == 1
    assert not world.poller.some_wait


async def test_one_that_goes_while_it_is_called_does_not_wait(world: _World) -> None:
    """Its descriptor may be another's next."""
    gone = world.come(2 * _FULL)
    for each in gone:
        each.then = lambda each=each: each.watch(0, READ)  # type: ignore[misc]
    while sum(each.full + each.pieces for each in gone) < len(gone):
        await world.turn()
    assert sum(each.pieces for each in gone) > 0
    assert not world.poller.some_wait


async def test_who_is_watched_no_more_is_not_called_and_may_come_again(world: _World) -> None:
    (one,) = world.come(1)
    one.watch(WRITE, READ)
    one.watch(0, WRITE)
    await world.turn()
    await world.turn()
    assert one.full == 0
    one.watch(READ)
    while not one.full:
        await world.turn()


async def test_a_rest_of_one_that_has_gone_is_nobodys(world: _World) -> None:
    (one,) = world.come(1)
    world.poller.again(one.ours.fileno())
    one.watch(0, READ)
    other = _One.__new__(_One)
    other.full = other.pieces = 0
    other.then = int
    world.poller.watch(one.ours.fileno(), other, READ)
    one.ours.setblocking(False)
    one.ours.recv(1)
    await world.turn()
    await world.turn()
    assert (other.full, other.pieces, one.full, one.pieces) == (0, 0, 0, 0)


async def test_a_poller_that_is_closed_calls_nobody_and_may_be_closed_again(world: _World) -> None:
    (one,) = world.come(1)
    world.poller.again(one.ours.fileno())
    world.poller.close()
    world.poller.close()
    await world.turn()
    await world.turn()
    assert (one.full, one.pieces) == (0, 0)


async def test_a_loop_that_watches_nothing_leaves_no_file_open() -> None:
    class _Loop:
        descriptor = -1

        def add_reader(self, descriptor: int, _call: object) -> None:
            self.descriptor = descriptor
            raise NotImplementedError

    loop = _Loop()
    with pytest.raises(NotImplementedError):
        Poller(loop)  # type: ignore[arg-type]
    with pytest.raises(OSError):
        socket.socket(fileno=loop.descriptor)
