"""The loop of `exactly_once` (SPEC T11) on our own broker."""

from collections.abc import Callable, Iterator

import pytest

from ottla.testing import Broker
from tests.client import exactly_once_journeys


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with Broker() as broker:
        yield broker.bootstrap_servers


@pytest.mark.parametrize("journey", exactly_once_journeys.ALL, ids=lambda journey: journey.__name__)
def test_on_our_broker(journey: Callable[[str], None], servers: str) -> None:
    journey(servers)
