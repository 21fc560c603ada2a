"""Calls that find and end what hangs (SPEC T14): the journeys on our broker, and coordinators that are missing."""

from collections.abc import Callable, Iterator

import pytest

from ottla import AsyncAdmin, KafkaError, TopicPartition
from ottla.testing import Broker
from ottla.wire.apis import ApiKey
from ottla.wire.messages.describe_producers import (
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from ottla.wire.messages.list_transactions import ListTransactionsResponse
from ottla.wire.messages.metadata import MetadataResponse
from tests.client import repair_journeys
from tests.client.conftest import Watchdog
from tests.client.fake_kafka import Asked
from tests.client.hanging import UNVERIFIED
from tests.client.scripted_broker import Answer, ScriptedBroker, Usual, changed, instead


@pytest.fixture(scope="module")
def unverified() -> Iterator[str]:
    with Broker(UNVERIFIED) as broker:
        yield broker.bootstrap_servers


@pytest.mark.parametrize("journey", repair_journeys.ALL, ids=lambda journey: journey.__name__)
def test_on_our_broker(journey: Callable[[str], None], unverified: str) -> None:
    journey(unverified)


async def test_t14_nobody_can_tell_what_hangs_while_a_coordinator_is_missing(watchdog: Watchdog) -> None:
    """What it knows would look as if nobody knew it; a marker would then tear a transaction that lives."""
    tp, quick = TopicPartition("t", 0), {"default.api.timeout.ms": 500, "request.timeout.ms": 500}
    topics = {"t": 1, "__transaction_state": 2}
    producers = (PartitionResponse(0, active_producers=(ProducerState(7, 0, 0, 0, -1, 0),)),)
    async with watchdog(), ScriptedBroker(topics) as broker, AsyncAdmin({**broker.config(), **quick}) as admin:
        broker.always(
            ApiKey.DESCRIBE_PRODUCERS, instead(DescribeProducersResponse(0, (TopicResponse("t", producers),)))
        )
        broker.always(ApiKey.LIST_TRANSACTIONS, instead(ListTransactionsResponse()))
        assert [each.is_hanging for each in await admin.open_transactions([tp])] == [True]
        broker.always(ApiKey.METADATA, changed(_without_leader))
        for call in (admin.open_transactions([tp]), admin.end_hanging_transaction(tp, 7, 0)):
            with pytest.raises(KafkaError, match="__transaction_state-1 has no leader, so nobody can tell which"):
                await call
        assert broker.asked(ApiKey.WRITE_TXN_MARKERS) == []


def _without_leader(answer: MetadataResponse) -> MetadataResponse:
    """The metadata, but nobody leads the last partition of the transactions' topic."""
    return answer._replace(
        topics=tuple(
            topic._replace(
                partitions=tuple(
                    each._replace(leader_id=-1) if each.partition_index == 1 else each for each in topic.partitions
                )
            )
            if topic.name == "__transaction_state"
            else topic
            for topic in answer.topics
        )
    )


async def test_t14_producers_are_asked_about_five_hundred_partitions_at_once(watchdog: Watchdog) -> None:
    partitions = [TopicPartition("t", number) for number in range(1_100)]

    async def none_open(asked: Asked, usual: Usual) -> Answer:
        (topic,) = asked.message.topics
        return DescribeProducersResponse(
            0, (TopicResponse("t", tuple(map(PartitionResponse, topic.partition_indexes))),)
        )

    async with watchdog(), ScriptedBroker({"t": 1_100}) as broker, AsyncAdmin(broker.config()) as admin:
        broker.always(ApiKey.DESCRIBE_PRODUCERS, none_open)
        assert await admin.open_transactions(partitions) == []
        asked = [request.topics[0].partition_indexes for request in broker.asked(ApiKey.DESCRIBE_PRODUCERS)]
        assert sorted(map(len, asked)) == [100, 500, 500]
        assert sorted(number for each in asked for number in each) == list(range(1_100))
