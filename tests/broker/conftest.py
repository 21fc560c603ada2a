"""A broker in the test's own event loop, and a connection to it; a directory that is quick."""

import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from ottla.testing import AsyncBroker
from tests.broker.wire_client import WireClient


@pytest.fixture
async def broker() -> AsyncIterator[AsyncBroker]:
    """A broker of this test's own."""
    async with AsyncBroker() as running:
        yield running


@pytest.fixture
async def client(broker: AsyncBroker) -> AsyncIterator[WireClient]:
    """A connection to it."""
    async with WireClient(broker) as connected:
        yield connected


@pytest.fixture
async def group_coordinator(broker: AsyncBroker) -> None:
    """Its topic is there: clients ask who coordinates them before they say anything else."""
    assert await broker.node.groups.ready() is None


@pytest.fixture
async def transaction_coordinator(broker: AsyncBroker) -> None:
    """Its topic is there, too."""
    assert await broker.node.transactions.ready() is None


@pytest.fixture
def directory() -> Iterator[Path]:
    """In memory where the system has such a place: there are many brokers, and each syncs its files."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(prefix="ottla-", dir=memory if os.access(memory, os.W_OK) else None) as path:
        yield Path(path)
