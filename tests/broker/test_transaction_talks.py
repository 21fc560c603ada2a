"""Over a socket our broker answers the transaction talks as Apache Kafka 4.3.0 did, also over kill -9 in between."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ottla.testing import Broker
from ottla.wire.apis import ApiKey
from tests.coordinator.txn.socket_conversation import SocketConversation
from tests.coordinator.txn.talks import HANDLER_TALKS, TALKS, recorded


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
