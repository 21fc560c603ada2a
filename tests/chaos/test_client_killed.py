"""kill -9 of the broker under our own clients; see `outage_journeys`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla.testing import Broker
from tests.client.outage_journeys import Outages, copy_through, create_topics, produce_through

pytestmark = pytest.mark.chaos

#: Seed, and how often the broker is killed.
_AMOUNTS = [
    pytest.param(1, 3, id="short"),
    pytest.param(2, 12, id="long", marks=pytest.mark.slow),
]


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as started:
        create_topics(started.bootstrap_servers)
        yield started


def _killed(broker: Broker, seed: int, kills: int, steps_between: int) -> Outages:
    def outage() -> None:
        broker.kill()
        broker.restart()

    return Outages(outage, seed, kills, steps_between)


@pytest.mark.parametrize(("seed", "kills"), _AMOUNTS)
def test_p4_our_idempotent_producer_writes_every_record_once_and_in_order(
    broker: Broker, seed: int, kills: int
) -> None:
    produce_through(broker.bootstrap_servers, _killed(broker, seed, kills, 30_000))


@pytest.mark.parametrize(("seed", "kills"), _AMOUNTS)
def test_t11_our_consume_transform_produce_is_exactly_once(broker: Broker, seed: int, kills: int) -> None:
    copy_through(broker.bootstrap_servers, _killed(broker, seed, kills, 40))
