"""The blocking consumer: which thread calls the user, and what poll_arrow waits for."""

import threading
from collections.abc import Iterator

import pytest

from ottla import OffsetAndMetadata, TopicPartition
from ottla.testing import Broker
from tests.client.journeys import fresh, make_topic, member, partitions_of, poll_until


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with Broker() as broker:
        yield broker.bootstrap_servers


def test_g13_a_callback_of_unsubscribe_runs_in_the_users_thread_and_may_commit(servers: str) -> None:
    topic = make_topic(servers)
    said: list[object] = []

    def revoked(partitions: list[TopicPartition]) -> None:
        consumer.commit({tp: OffsetAndMetadata(7) for tp in partitions})
        said.append(threading.current_thread())

    with member(servers, fresh("g13"), enable_auto_commit=False) as consumer:
        consumer.subscribe([topic], on_revoked=revoked)
        poll_until(consumer, lambda: bool(consumer.assignment()))
        consumer.unsubscribe()
        assert said == [threading.current_thread()]
        assert consumer.committed(partitions_of(topic, 1))[TopicPartition(topic, 0)].offset == 7
