"""The clients on our own broker, in a process of its own."""

from collections.abc import Callable, Coroutine, Iterator

import pytest

from ottla.testing import Broker
from tests.client import delivery_journeys, group_admin_journeys, journeys, transaction_journeys


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with Broker() as broker:
        yield broker.bootstrap_servers


_JOURNEYS = [*transaction_journeys.ALL, *group_admin_journeys.ALL, *delivery_journeys.ALL]


@pytest.mark.parametrize("journey", _JOURNEYS, ids=lambda journey: journey.__name__)
def test_blocking(journey: Callable[[str], None], servers: str) -> None:
    journey(servers)


@pytest.mark.parametrize("journey", journeys.ASYNCIO, ids=lambda journey: journey.__name__)
async def test_asyncio(journey: Callable[[str], Coroutine[None, None, None]], servers: str) -> None:
    await journey(servers)
