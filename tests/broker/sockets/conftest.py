"""A listener and its connections, with TLS and without."""

from __future__ import annotations

import resource
from collections.abc import AsyncIterator, Iterator

import pytest

from tests.broker.sockets.ends import TlsPair, World

#: Both ends of the connections that end at once, and of those that always have something.
_FILES = 4_096


@pytest.fixture(scope="session", autouse=True)
def _files() -> Iterator[None]:
    """Many machines allow 1,024 files until more are asked for, as the broker's process does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES if hard == resource.RLIM_INFINITY else min(_FILES, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


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
