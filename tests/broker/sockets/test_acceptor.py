"""New connections: who comes when there are no more files, and many that come at once."""

from __future__ import annotations

import asyncio
import resource
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from itertools import pairwise

import pytest

from ottla.base.limits import ACCEPTED_AT_ONCE, RECEIVED_LEAST_BYTES, RECEIVED_PIECE_BYTES
from ottla.broker.sockets.acceptor import Acceptor
from ottla.broker.sockets.poller import READ, Poller
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
    what = "listener DOOR takes no connection for 0 s: [Errno 24] Too many open files"
    assert caplog.messages[0] == f"{what}; raise the limit of open files (ulimit -n)"


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


async def test_one_that_closes_the_door_while_it_comes_in_is_the_last(
    door: _Door, caplog: pytest.LogCaptureFixture
) -> None:
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
    assert not caplog.messages
    for each in clients:
        each.close()


async def test_nobody_is_taken_in_a_turn_that_has_no_more_bytes_and_each_counts(door: _Door) -> None:
    address = await door.open()
    (listening,) = door.acceptor._listening
    clients = [socket.create_connection(address) for _ in range(3)]
    assert listening.ready(READ, True) == RECEIVED_PIECE_BYTES
    assert not door.came
    assert listening.ready(READ, False) == 3 * RECEIVED_LEAST_BYTES
    assert [each.gettimeout() for each in door.came] == [0.0] * 3, "none of them blocks"
    clients += [socket.create_connection(address) for _ in range(ACCEPTED_AT_ONCE)]
    assert listening.ready(READ, False) == ACCEPTED_AT_ONCE * RECEIVED_LEAST_BYTES
    for each in clients:
        each.close()


async def test_one_that_cannot_be_taken_does_not_keep_the_others_out(door: _Door) -> None:
    told: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: told.append(str(context["exception"])))
    take, fail = door.acceptor.take, iter([True])

    def fails_first(accepted: socket.socket, address: tuple[object, ...]) -> None:
        if next(fail, False):
            accepted.close()
            raise MemoryError("no room for it")
        take(accepted, address)

    door.acceptor.take = fails_first
    address = await door.open()
    with socket.create_connection(address), socket.create_connection(address):
        await some_turns_until(lambda: len(door.came) == 1)
    assert told == ["no room for it"]


async def test_nobody_is_let_in_while_there_are_no_files_until_the_pause_is_over(door: _Door) -> None:
    address = await door.open()
    (listening,) = door.acceptor._listening
    door.acceptor.pause_s = 1_000.0
    with socket.create_connection(address):
        with _no_more_files():
            assert listening.ready(READ, False) == 0
        await some_turns_until(lambda: not door.poller._watched)
        assert not door.came


async def test_a_pause_goes_on_while_the_system_cannot_watch_it(door: _Door, caplog: pytest.LogCaptureFixture) -> None:
    address = await door.open()
    (listening,) = door.acceptor._listening
    with socket.create_connection(address):
        with _no_more_files():
            listening.ready(READ, False)
        door.poller._epoll.register(listening.socket.fileno(), 0)  # so it fails when it is registered
        await some_turns_until(lambda: len(caplog.messages) >= 3)
        assert not door.came
        door.poller._epoll.unregister(listening.socket.fileno())
        await some_turns_until(lambda: bool(door.came))


async def test_an_empty_host_is_every_address_with_one_port(door: _Door) -> None:
    _, port = await door.acceptor.bind("", 0, 10)
    door.acceptor.listen()
    addresses = [each.socket.getsockname() for each in door.acceptor._listening]
    assert {each[1] for each in addresses} == {port}
    assert addresses[0][0] == "0.0.0.0"
    with socket.create_connection(("127.0.0.1", port)):
        await some_turns_until(lambda: len(door.came) == 1)


async def test_an_address_that_another_has_cannot_be_had_and_nothing_stays_open(door: _Door) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other, pytest.raises(OSError, match="in use"):
        await door.acceptor.bind("127.0.0.1", other.getsockname()[1], 10)
    assert not door.acceptor._listening


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="the machine has no IPv6")
async def test_where_another_has_one_of_its_addresses_none_is_taken(door: _Door) -> None:
    with socket.create_server(("::", 0), family=socket.AF_INET6) as other:
        port = other.getsockname()[1]
        with pytest.raises(OSError, match="in use"):
            await door.acceptor.bind("", port, 10)
        assert not door.acceptor._listening
        socket.create_server(("127.0.0.1", port)).close()


async def test_an_address_that_this_machine_does_not_have_cannot_be_had(door: _Door) -> None:
    with pytest.raises(OSError, match="assign requested address"):
        await door.acceptor.bind("192.0.2.1", 0, 10)
    assert not door.acceptor._listening


async def test_a_port_whose_connections_have_just_ended_can_be_had(door: _Door) -> None:
    """They are in TIME_WAIT: a broker that starts again must not wait for them."""
    host, port = await door.open()
    with socket.create_connection((host, port)):
        await some_turns_until(lambda: len(door.came) == 1)
        door.came[0].close()  # this side ends first
    door.acceptor.close()
    await door.acceptor.bind(host, port, 10)
