"""Clients that are gone before they have heard their answers: what they sent is received, and nothing waits for them."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator

import pytest

from ottla.broker.answers import Frame, Later
from ottla.broker.session import Session
from ottla.wire.apis import ApiKey
from tests.broker.sockets.ends import TlsPair, World


def _request(key: ApiKey) -> bytes:
    return struct.pack(">ih", 2, key)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> TlsPair:
    return TlsPair(tmp_path_factory.mktemp("tls"))


@pytest.fixture(params=["plain", "TLS"])
async def world(request: pytest.FixtureRequest, pair: TlsPair) -> AsyncIterator[World]:
    world = World(pair if request.param == "TLS" else None)
    yield world
    await world.end()


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

    world.listener.dispatch = dispatch  # type: ignore[assignment]
    (peer,) = world.come(1, _request(ApiKey.METADATA) * 3 + (_request(ApiKey.PRODUCE) + _request(ApiKey.FETCH)) * 30)
    peer.socket.close()
    await world.until(lambda: peer.connection.is_lost, 100)
    assert handled.count(ApiKey.PRODUCE) == 30
    assert ApiKey.FETCH not in handled
    assert not world.connections._open
