"""New connections: who comes when there are no more files, and many that come at once."""

from __future__ import annotations

import asyncio
import resource
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from itertools import pairwise

import pytest

from ottla.base.limits import ACCEPTED_AT_ONCE
from ottla.broker.sockets.acceptor import Acceptor
from ottla.broker.sockets.poller import Poller
from tests.broker.ticking import some_turns_until


class _Door:
    """An acceptor without a pause, and who has come in."""

    def __init__(self) -> None:
        self.poller = Poller(asyncio.get_running_loop())
        self.acceptor = Acceptor(self.poller, "DOOR", self._take, pause_s=0.0)
        self.came: list[socket.socket] = []

    def _take(self, accepted: socket.socket, _address: object) -> None:
        self.came.append(accepted)

    async def open(self) -> tuple[str, int]:
        address = await self.acceptor.bind("127.0.0.1", 0, 4 * ACCEPTED_AT_ONCE)
        self.acceptor.listen()
        return address

    def close(self) -> None:
        self.acceptor.close()
        self.poller.close()
        for each in self.came:
            each.close()


@pytest.fixture
async def door() -> AsyncIterator[_Door]:
    door = _Door()
    yield door
    door.close()


@contextmanager
def _no_more_files() -> Iterator[None]:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


async def test_who_comes_when_no_more_files_can_be_opened_is_let_in_when_they_can(
    door: _Door, caplog: pytest.LogCaptureFixture
) -> None:
    address = await door.open()
    with socket.socket() as late:
        with _no_more_files():
            late.connect(address)
            await some_turns_until(lambda: len(caplog.messages) >= 2)
        assert not door.came
        await some_turns_until(lambda: bool(door.came))
    assert caplog.messages[0] == "listener DOOR takes no connection for 0 s: [Errno 24] Too many open files"


async def test_nobody_is_let_in_behind_the_end_although_a_pause_is_over(door: _Door) -> None:
    address = await door.open()
    with socket.socket() as late:
        with _no_more_files():
            late.connect(address)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        door.acceptor.close()
        for _ in range(10):
            await asyncio.sleep(0)
        assert not door.came


async def test_a_few_are_taken_in_a_turn(door: _Door) -> None:
    address = await door.open()
    count = 3 * ACCEPTED_AT_ONCE + 1
    clients = [socket.create_connection(address) for _ in range(count)]
    seen = [0]
    while seen[-1] < count:
        await asyncio.sleep(0)
        seen.append(len(door.came))
    assert max(after - before for before, after in pairwise(seen)) == ACCEPTED_AT_ONCE
    for each in clients:
        each.close()


async def test_one_that_closes_the_door_while_it_comes_in_is_the_last(door: _Door) -> None:
    take = door.acceptor.take

    def last(accepted: socket.socket, address: tuple[object, ...]) -> None:
        take(accepted, address)
        door.acceptor.close()

    door.acceptor.take = last
    address = await door.open()
    clients = [socket.socket() for _ in range(3)]
    for each in clients:
        each.setblocking(False)
        each.connect_ex(address)
    await some_turns_until(lambda: bool(door.came))
    for _ in range(10):
        await asyncio.sleep(0)
    assert len(door.came) == 1
    for each in clients:
        each.close()
