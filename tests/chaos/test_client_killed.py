"""kill -9 of the broker under our own clients; see `outage_journeys`, which gives their history to the checkers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla.testing import Broker
from tests.chaos.outages import Outages, chaos_seeds, drawn
from tests.client.outage_journeys import copy_exactly_once_through, copy_through, create_topics, produce_through

pytestmark = pytest.mark.chaos

_KILLS = 4


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as started:
        create_topics(started.bootstrap_servers)
        yield started


def _killed(broker: Broker, seed: int, steps_between: int) -> Outages:
    def carry_out(_victim: str) -> None:
        broker.kill()
        broker.restart()

    return Outages(drawn(seed, _KILLS, steps_between), carry_out)


@chaos_seeds(1, slow=[2, 3, 4])
def test_p4_our_idempotent_producer_writes_every_record_once_and_in_order(broker: Broker, seed: int) -> None:
    produce_through(broker.bootstrap_servers, _killed(broker, seed, 30_000))


@chaos_seeds(1, slow=[2, 3, 4])
def test_t11_our_consume_transform_produce_is_exactly_once(broker: Broker, seed: int) -> None:
    copy_through(broker.bootstrap_servers, _killed(broker, seed, 40))


@chaos_seeds(1, slow=[2, 3, 4])
def test_t11_our_loop_of_exactly_once_copies_every_record_once(broker: Broker, seed: int) -> None:
    copy_exactly_once_through(broker.bootstrap_servers, _killed(broker, seed, 40))
