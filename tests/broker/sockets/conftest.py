"""A listener and its connections, with TLS and without."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.broker.sockets.ends import TlsPair, World


@pytest.fixture(scope="session")
def pair(tmp_path_factory: pytest.TempPathFactory) -> TlsPair:
    """The contexts of a broker and of its clients."""
    return TlsPair(tmp_path_factory.mktemp("tls"))


@pytest.fixture(params=["plain", "TLS"])
async def world(request: pytest.FixtureRequest, pair: TlsPair) -> AsyncIterator[World]:
    """A listener without TLS, and one with it."""
    world = World(pair if request.param == "TLS" else None)
    yield world
    await world.end()
