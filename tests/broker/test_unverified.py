"""Which partitions of a produce the transaction coordinator is asked about, and what that means for its batches."""

from typing import Any

import pytest

from ottla.testing import AsyncBroker
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import produce as p
from ottla.wire.messages.describe_transactions import DescribeTransactionsRequest
from ottla.wire.messages.init_producer_id import InitProducerIdRequest
from tests.broker.wire_client import WireClient, batch

pytestmark = pytest.mark.usefixtures("group_coordinator", "transaction_coordinator")

_VERSION = 12


@pytest.fixture(autouse=True)
async def _topic(broker: AsyncBroker) -> None:
    await broker.node.topics.create("t", 1, {})


async def _init(client: WireClient) -> tuple[int, int]:
    answer = await client.ask(ApiKey.INIT_PRODUCER_ID, InitProducerIdRequest("x", 60_000))
    return answer.producer_id, answer.producer_epoch


async def _produce(client: WireClient, producer: tuple[int, int], *topics: str, sequence: int = 0) -> list[int]:
    """A transactional batch to the first partition of each topic; the errors."""
    records = batch(
        b"v", producer_id=producer[0], producer_epoch=producer[1], base_sequence=sequence, transactional=True
    )
    data = (p.PartitionProduceData(0, records),)
    request = p.ProduceRequest(
        "x", -1, 1000, tuple(p.TopicProduceData(name=each, partition_data=data) for each in topics)
    )
    answer = await client.ask(ApiKey.PRODUCE, request, _VERSION)
    return [topic.partition_responses[0].error_code for topic in answer.responses]


async def _transaction(client: WireClient) -> Any:
    answer = await client.ask(ApiKey.DESCRIBE_TRANSACTIONS, DescribeTransactionsRequest(("x",)), 0)
    return [topic.topic for topic in answer.transaction_states[0].topics]


async def test_an_internal_topic_does_not_come_into_the_transaction(client: WireClient) -> None:
    producer = await _init(client)
    refused = await _produce(client, producer, "__consumer_offsets", "t")
    assert refused == [ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.NONE]
    assert await _transaction(client) == ["t"]


async def test_nobody_asks_about_a_transaction_that_is_open_there(broker: AsyncBroker, client: WireClient) -> None:
    producer = await _init(client)
    assert await _produce(client, producer, "t") == [ErrorCode.NONE]
    await broker.node.topics.create("u", 1, {})
    broker.node.transactions.unload()
    assert await _produce(client, producer, "t", sequence=1) == [ErrorCode.NONE]
    assert await _produce(client, producer, "u") != [ErrorCode.NONE]


async def test_what_the_coordinator_adds_begins_with_the_first_sequence(client: WireClient) -> None:
    """An earlier batch of it was lost on the way, then (KIP-890)."""
    producer = await _init(client)
    assert await _produce(client, producer, "t", sequence=5) == [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]
    assert await _produce(client, producer, "t") == [ErrorCode.NONE]
