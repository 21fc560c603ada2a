"""Apache Kafka's group coordinator still answers the talks as `talks.txt` says, so ours is held to the truth."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.coordinator.group.consumer.conversation import SETTINGS
from tests.coordinator.group.consumer.talks import TALKS, recorded, talk
from tests.interop.apache import ApacheKafka

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def port(apache_jars: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with ApacheKafka(tmp_path_factory.mktemp("apache-groups"), SETTINGS) as node:
        yield node.port


@pytest.mark.parametrize("name", TALKS)
def test_g19_apache_kafka_answers(port: int, name: str) -> None:
    assert talk(name, port) == recorded()[name]
