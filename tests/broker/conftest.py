"""A broker in the test's own event loop, and a connection to it."""

from collections.abc import AsyncIterator

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
