"""Clients that are gone before they have heard their answers: what becomes of what they sent."""

from __future__ import annotations

import asyncio
import socket
import struct

import pytest

from ottla.base.limits import POLLED_AT_ONCE
from ottla.broker.answers import Frame, Later, Throttled
from ottla.broker.server import Connection
from ottla.broker.session import Session
from ottla.broker.sockets.transport import SocketTransport
from ottla.wire.apis import ApiKey
from tests.broker.sockets.ends import World


def _request(key: ApiKey) -> bytes:
    return struct.pack(">ih", 2, key)


async def test_behind_an_answer_that_nobody_hears_what_was_produced_is_written_and_no_fetch_waits(
    world: World,
) -> None:
    """Each fetch waits for records for as long as the client likes: hundreds of them would keep a connection for hours
    whose client is gone."""
    handled: list[ApiKey] = []

    def dispatch(frame: Frame, _session: Session) -> Later | bytes | None:
        handled.append(ApiKey(struct.unpack(">h", frame)[0]))
        if handled[-1] is ApiKey.FETCH:
            return Later(asyncio.get_running_loop().create_future(), lambda content: content)
        return None if handled[-1] is ApiKey.PRODUCE else b"!"

    world.listener.dispatch = dispatch
    (peer,) = world.come(1, _request(ApiKey.METADATA) * 3 + (_request(ApiKey.PRODUCE) + _request(ApiKey.FETCH)) * 30)
    peer.socket.close()
    await world.until(lambda: peer.connection.is_lost and handled.count(ApiKey.PRODUCE) == 30, 200)
    assert ApiKey.FETCH not in handled
    assert not world.connections._open


async def test_an_answer_that_is_being_sent_when_its_client_says_that_it_sends_no_more_is_sent_whole(
    world: World,
) -> None:
    answer = bytes(range(256)) * 20_000
    world.listener.dispatch = lambda frame, session: answer
    (peer,) = world.come(1, _request(ApiKey.METADATA))
    await world.until(lambda: peer.connection.is_answering)
    peer.end()
    for _ in range(3):
        await world.turn()
    heard = b""

    def has_heard_all() -> bool:
        nonlocal heard
        heard += peer.answers()
        return peer.connection.is_lost

    await world.until(has_heard_all)
    assert heard + peer.answers() == answer


async def test_a_connection_that_the_system_does_not_watch_is_closed(world: World) -> None:
    """It would count in `max.connections` for ever, and a stop would wait for it."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    connection = Connection(world.listener)
    world.poller._epoll.register(ours.fileno(), 0)  # so it fails when it is registered
    SocketTransport(world.poller, ours, ("127.0.0.1", 1)).begin(connection)
    assert len(world.connections._open) == 1
    await world.turn()
    await world.turn()
    assert not world.connections._open
    assert theirs.recv(1) == b""
    theirs.close()


@pytest.mark.parametrize("ended_first", [True, False])
async def test_a_gone_client_that_is_throttled_has_no_connection_and_what_it_produced_waits(
    world: World, ended_first: bool
) -> None:
    """A quota may have what it produced wait for minutes, and a connection counts in `max.connections`."""
    throttled = iter([False, True])

    def dispatch(frame: Frame, _session: Session) -> Later | bytes:
        return Throttled(b"!", 1_000_000) if next(throttled) else b"!"

    world.listener.dispatch = dispatch
    (peer,) = world.come(1)
    if ended_first:
        peer.send(_request(ApiKey.METADATA) + _request(ApiKey.PRODUCE) * 5)
        peer.socket.close()
    else:
        peer.send(_request(ApiKey.METADATA))
        await world.turn()
        peer.send(_request(ApiKey.PRODUCE) * 5)
        peer.socket.close()
    await world.until(lambda: peer.connection.is_lost, 100)
    assert not world.connections._open
    assert world.connections.last_frames._held_bytes == 4 * 2


async def test_many_that_are_idle_at_one_moment_are_closed_in_several_turns() -> None:
    world = World()
    count = 2 * POLLED_AT_ONCE + 10
    world.come(count)
    world.clock.advance(61_000)
    world.connections.close_idle()
    await world.until(lambda: sum(world.ended) == count)
    assert max(world.ended) <= POLLED_AT_ONCE
    await world.end()
