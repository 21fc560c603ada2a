"""Our broker answers the conversations about classic groups as Apache Kafka does, field by field (`talks.txt`)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla.testing import Broker
from tests.coordinator.group.classic.talks import TALKS, recorded, talk
from tests.coordinator.group.talking import TALK_SETTINGS


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with Broker(TALK_SETTINGS) as broker:
        yield broker.port


@pytest.mark.parametrize("name", TALKS)
def test_g3_our_broker_answers_as_apache_kafka(port: int, name: str) -> None:
    assert talk(name, port) == recorded()[name]


def test_every_talk_was_recorded() -> None:
    assert recorded().keys() == TALKS.keys()
    assert sum(map(len, recorded().values())) >= 1_000
