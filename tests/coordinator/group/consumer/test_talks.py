"""Our broker answers the conversations about consumer groups as Apache Kafka does, line by line (`talks.txt`)."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from ottla.base.limits import SETTLING_HEARTBEAT_MS
from ottla.testing import Broker
from tests.coordinator.group.consumer.talks import TALKS, recorded, talk
from tests.coordinator.group.talking import TALK_SETTINGS

#: Ours, in place of Apache Kafka's: in its group nobody leads, so nobody sees new partitions.
_OURS = {
    "list () () -> NONE ['consumer Stable classic']": "list () () -> NONE ['consumer PreparingRebalance classic']",
    "describe classic v6 -> NONE Stable 'consumer' 'range' ['M0 i1']": (
        "describe classic v6 -> NONE PreparingRebalance 'consumer' '' ['M0 i1']"
    ),
}


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with Broker(TALK_SETTINGS) as broker:
        yield broker.port


def _usual_pace(line: str) -> str:
    """Apache Kafka says 5 s in every answer; our members are asked to come back sooner while they wait for others."""
    return re.sub(rf"( every | heartbeat_interval_ms=){SETTLING_HEARTBEAT_MS}\b", r"\g<1>5000", line)


@pytest.mark.parametrize("name", TALKS)
def test_g19_our_broker_answers_as_apache_kafka(port: int, name: str) -> None:
    ours = _OURS if name == "by_replacement" else {}
    assert [_usual_pace(line) for line in talk(name, port)] == [ours.get(line, line) for line in recorded()[name]]


def test_every_talk_was_recorded() -> None:
    assert recorded().keys() == TALKS.keys()
    assert sum(map(len, recorded().values())) >= 600
