"""Apache Kafka's group coordinator still answers the talks as `talks.txt` says, so ours is held to the truth.

`python -m tests.interop.record_group_talks` writes both files anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

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


#: Apache Kafka's ListGroups tells what is committed in its log: on a busy machine a moment behind the answer before.
_ATTEMPTS = 3


def _answers(talk: Callable[[], list[str]], recorded: list[str]) -> None:
    said: list[str] = []
    for _ in range(_ATTEMPTS):
        said = talk()
        assert _but_lists(said) == _but_lists(recorded)
        if said == recorded:
            break
    assert said == recorded


def _but_lists(lines: list[str]) -> list[str]:
    """Everything that is answered from memory has to be right at the first attempt."""
    return [line for line in lines if not line.startswith("list ")]


@pytest.mark.parametrize("name", consumer.TALKS)
def test_g19_apache_kafka_answers(port: int, name: str) -> None:
    _answers(lambda: consumer.talk(name, port), consumer.recorded()[name])


@pytest.mark.parametrize("name", classic.TALKS)
def test_g3_apache_kafka_answers(port: int, name: str) -> None:
    _answers(lambda: classic.talk(name, port), classic.recorded()[name])
