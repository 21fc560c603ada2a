"""Apache Kafka's transaction coordinator still answers the talks as `talks.txt` says, so ours is held to the truth."""

from __future__ import annotations

import pytest

from tests.coordinator.txn.socket_conversation import SocketConversation
from tests.coordinator.txn.talks import HANDLER_TALKS, LONG_TALKS, TALKS, recorded
from tests.interop.apache import ApacheKafka

pytestmark = pytest.mark.interop


def talk(name: str, port: int) -> list[str]:
    """The transcript of one talk with the broker at `port`."""
    conversation = SocketConversation(name, port)
    (TALKS | HANDLER_TALKS | LONG_TALKS)[name](conversation)
    conversation.close()
    return conversation.transcript


@pytest.mark.parametrize("name", TALKS | HANDLER_TALKS)
def test_t5_apache_kafka_answers(apache_kafka: ApacheKafka, name: str) -> None:
    assert talk(name, apache_kafka.port) == recorded()[name]


@pytest.mark.slow
@pytest.mark.parametrize("name", LONG_TALKS)
def test_t2_apache_kafka_answers_when_the_epochs_are_used_up(apache_kafka: ApacheKafka, name: str) -> None:
    assert talk(name, apache_kafka.port) == recorded()[name]
