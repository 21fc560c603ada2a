"""Apache Kafka's group coordinator still answers the talks as `talks.txt` says, so ours is held to the truth.

`python -m tests.interop.record_group_talks` writes both files anew.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.coordinator.group.classic import talks as classic
from tests.coordinator.group.consumer import talks as consumer
from tests.coordinator.group.talking import TALK_SETTINGS
from tests.interop.apache import ApacheKafka

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def port(apache_jars: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with ApacheKafka(tmp_path_factory.mktemp("apache-groups"), TALK_SETTINGS) as node:
        yield node.port


@pytest.mark.parametrize("name", consumer.TALKS)
def test_g19_apache_kafka_answers(port: int, name: str) -> None:
    assert consumer.talk(name, port) == consumer.recorded()[name]


@pytest.mark.parametrize("name", classic.TALKS)
def test_g3_apache_kafka_answers(port: int, name: str) -> None:
    assert classic.talk(name, port) == classic.recorded()[name]
