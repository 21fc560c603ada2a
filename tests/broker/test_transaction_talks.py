"""Over a socket our broker answers the transaction talks as Apache Kafka 4.3.0 did, also over kill -9 in between."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ottla.testing import Broker
from ottla.wire.apis import ApiKey
from ottla.wire.messages.api_versions import ApiVersionsRequest
from tests.coordinator.txn.socket_conversation import SocketConversation
from tests.coordinator.txn.talks import HANDLER_TALKS, TALKS, TWO_PHASE_SETTINGS, TWO_PHASE_TALKS, recorded


@pytest.fixture(scope="module")
def running() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.mark.parametrize("name", TALKS | HANDLER_TALKS)
def test_t5_broker_answers_as_apache_kafka_does(running: Broker, name: str) -> None:
    conversation = SocketConversation(name, running.port)
    (TALKS | HANDLER_TALKS)[name](conversation)
    conversation.close()
    assert conversation.transcript == recorded()[name]


@pytest.fixture(scope="module")
def two_phase_broker() -> Iterator[Broker]:
    with Broker(TWO_PHASE_SETTINGS) as broker:
        yield broker


@pytest.mark.parametrize("name", TWO_PHASE_TALKS)
def test_t15_two_phase_commit_is_answered_as_apache_kafka_does(two_phase_broker: Broker, name: str) -> None:
    conversation = SocketConversation(name, two_phase_broker.port)
    TWO_PHASE_TALKS[name](conversation)
    conversation.close()
    assert conversation.transcript == recorded()[name]


def test_t15_an_unstable_version_is_not_offered_unless_it_is_enabled(running: Broker, two_phase_broker: Broker) -> None:
    offered = []
    for broker in (running, two_phase_broker):
        conversation = SocketConversation("offered", broker.port)
        answer = conversation.send(ApiKey.API_VERSIONS, 0, ApiVersionsRequest())
        offered.append(next(each.max_version for each in answer.api_keys if each.api_key == ApiKey.INIT_PRODUCER_ID))
        conversation.close()
    assert offered == [5, 6]
    conversation = SocketConversation("offered", running.port)
    with pytest.raises(AssertionError, match="the broker closed the connection"):
        conversation.init_two_phase()
    conversation.close()


class KilledInBetween(SocketConversation):
    """A talk during which the broker is killed with SIGKILL before every request."""

    def __init__(self, name: str, broker: Broker) -> None:
        super().__init__(name, broker.port)
        self.broker = broker

    def _ask(self, api: ApiKey, version: int, message: tuple[Any, ...]) -> Any:
        self.close()
        self.broker.kill()
        self.broker.restart()
        self.connect(self.broker.port)
        return super()._ask(api, version, message)


@pytest.mark.chaos
@pytest.mark.parametrize("name", ["produced", "fencing", "mixed_protocols"])
def test_t13_answers_are_the_same_over_kill_9_before_every_request(name: str) -> None:
    with Broker() as broker:
        conversation = KilledInBetween(name, broker)
        (TALKS | HANDLER_TALKS)[name](conversation)
        conversation.close()
    assert conversation.transcript == recorded()[name]
