"""The clients on our own broker, in a process of its own."""

from collections.abc import Callable, Coroutine, Iterator

import pytest

from ottla.testing import Broker
from tests.client import (
    asyncio_journeys,
    delivery_journeys,
    group_admin_journeys,
    transaction_journeys,
    two_phase_journeys,
)


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with Broker() as broker:
        yield broker.bootstrap_servers


_JOURNEYS = [*transaction_journeys.ALL, *group_admin_journeys.ALL, *delivery_journeys.ALL]


@pytest.mark.parametrize("journey", _JOURNEYS, ids=lambda journey: journey.__name__)
def test_blocking(journey: Callable[[str], None], servers: str) -> None:
    journey(servers)


@pytest.mark.parametrize("journey", asyncio_journeys.ALL, ids=lambda journey: journey.__name__)
async def test_asyncio(journey: Callable[[str], Coroutine[None, None, None]], servers: str) -> None:
    await journey(servers)


@pytest.fixture(scope="module")
def with_two_phase_commit() -> Iterator[str]:
    with Broker(two_phase_journeys.SETTINGS) as broker:
        yield broker.bootstrap_servers


@pytest.mark.parametrize("journey", two_phase_journeys.ALL, ids=lambda journey: journey.__name__)
def test_t15_two_phase_commit(journey: Callable[[str], None], with_two_phase_commit: str) -> None:
    journey(with_two_phase_commit)


def test_t15_two_phase_commit_is_refused_with_advice(servers: str) -> None:
    two_phase_journeys.refused_where_the_broker_does_not_have_it(servers)
    with Broker({"unstable.api.versions.enable": "true"}) as broker:
        two_phase_journeys.refused_where_the_broker_does_not_allow_it(broker.bootstrap_servers)
