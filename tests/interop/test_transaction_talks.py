"""Apache Kafka's transaction coordinator still answers the talks as `talks.txt` says, so ours is held to the truth."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.coordinator.txn.socket_conversation import SocketConversation
from tests.coordinator.txn.talks import (
    HANDLER_TALKS,
    LONG_TALKS,
    TALKS,
    TWO_PHASE_SETTINGS,
    TWO_PHASE_TALKS,
    recorded,
    two_phase_forbidden,
)
from tests.interop.apache import ApacheKafka

pytestmark = pytest.mark.interop


def talk(name: str, port: int) -> list[str]:
    """The transcript of one talk with the broker at `port`."""
    conversation = SocketConversation(name, port)
    (TALKS | HANDLER_TALKS | LONG_TALKS | TWO_PHASE_TALKS)[name](conversation)
    conversation.close()
    return conversation.transcript


@pytest.mark.parametrize("name", TALKS | HANDLER_TALKS)
def test_t5_apache_kafka_answers(apache_kafka: ApacheKafka, name: str) -> None:
    assert talk(name, apache_kafka.port) == recorded()[name]


@pytest.mark.slow
@pytest.mark.parametrize("name", LONG_TALKS)
def test_t2_apache_kafka_answers_when_the_epochs_are_used_up(apache_kafka: ApacheKafka, name: str) -> None:
    assert talk(name, apache_kafka.port) == recorded()[name]


def test_t15_apache_kafka_answers_two_phase_commit(apache_jars: str, tmp_path: Path) -> None:
    with ApacheKafka(tmp_path, TWO_PHASE_SETTINGS) as kafka:
        assert {name: talk(name, kafka.port) for name in TWO_PHASE_TALKS} == {
            name: recorded()[name] for name in TWO_PHASE_TALKS
        }


def test_t15_apache_kafka_refuses_two_phase_commit_that_is_not_allowed(apache_jars: str, tmp_path: Path) -> None:
    with ApacheKafka(tmp_path, {**TWO_PHASE_SETTINGS, "transaction.two.phase.commit.enable": "false"}) as kafka:
        conversation = SocketConversation("forbidden", kafka.port)
        two_phase_forbidden(conversation)
        conversation.close()
    assert conversation.transcript == recorded()["two_phase_forbidden"]
