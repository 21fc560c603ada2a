"""What does not belong into a transaction: the broker's own topics, and batches of another producer."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ottla.base.types import TopicPartition
from ottla.testing import AsyncBroker
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import add_partitions_to_txn as ap
from ottla.wire.messages import produce as p
from ottla.wire.messages.end_txn import EndTxnRequest
from ottla.wire.messages.init_producer_id import InitProducerIdRequest
from ottla.wire.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from tests.broker.wire_client import WireClient, batch

_VICTIM = "victim"
Producer = tuple[int, int]


@asynccontextmanager
async def _broker(data_dir: Path | None = None) -> AsyncIterator[tuple[AsyncBroker, WireClient]]:
    """One whose coordinators have their topics."""
    async with AsyncBroker(data_dir=data_dir) as broker, WireClient(broker) as client:
        await broker.node.groups.ready()
        await broker.node.transactions.ready()
        yield broker, client


async def _init(client: WireClient, transactional_id: str) -> Producer:
    """When the transaction before has ended."""
    while True:
        answer = await client.ask(ApiKey.INIT_PRODUCER_ID, InitProducerIdRequest(transactional_id, 60_000))
        if answer.error_code != ErrorCode.CONCURRENT_TRANSACTIONS:
            assert answer.error_code == ErrorCode.NONE
            return answer.producer_id, answer.producer_epoch


def _records(producer: Producer) -> bytes:
    return batch(b"v", producer_id=producer[0], producer_epoch=producer[1], base_sequence=0, transactional=True)


async def _by_adding(client: WireClient, producer: Producer, tp: TopicPartition, version: int) -> list[int]:
    topics = (ap.AddPartitionsToTxnTopic(tp.topic, (tp.partition,)),)
    one = ap.AddPartitionsToTxnTransaction("x", *producer, False, topics)
    request = (
        ap.AddPartitionsToTxnRequest(transactions=(one,))
        if version > 3
        else ap.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="x",
            v3_and_below_producer_id=producer[0],
            v3_and_below_producer_epoch=producer[1],
            v3_and_below_topics=topics,
        )
    )
    answer = await client.ask(ApiKey.ADD_PARTITIONS_TO_TXN, request, version)
    results = answer.results_by_transaction[0].topic_results if version > 3 else answer.results_by_topic_v3_and_below
    return [int(each.partition_error_code) for topic in results for each in topic.results_by_partition]


async def _by_produce(client: WireClient, producer: Producer, tp: TopicPartition, version: int) -> list[int]:
    data = (p.PartitionProduceData(tp.partition, _records(producer)),)
    topics = (p.TopicProduceData(name=tp.topic, partition_data=data),)
    answer = await client.ask(ApiKey.PRODUCE, p.ProduceRequest("x", -1, 1000, topics), version)
    return [int(each.error_code) for topic in answer.responses for each in topic.partition_responses]


async def _by_marker(client: WireClient, producer: Producer, tp: TopicPartition, version: int) -> list[int]:
    topics = (WritableTxnMarkerTopic(tp.topic, (tp.partition,)),)
    marker = WritableTxnMarker(*producer, True, topics, 0)
    answer = await client.ask(ApiKey.WRITE_TXN_MARKERS, WriteTxnMarkersRequest((marker,)), version)
    return [int(each.error_code) for topic in answer.markers[0].topics for each in topic.partitions]


@pytest.mark.parametrize(
    ("way", "version", "code"),
    [
        (_by_adding, 3, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        (_by_adding, 5, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        (_by_produce, 12, ErrorCode.INVALID_TOPIC_EXCEPTION),
        (_by_marker, 1, ErrorCode.NONE),
    ],
)
async def test_no_client_puts_a_marker_where_a_coordinator_keeps_its_transactions(
    way: object, version: int, code: ErrorCode, tmp_path: Path
) -> None:
    """A restart would not understand it, and every transactional id of the partition would be lost."""
    async with _broker(tmp_path) as (broker, client):
        producer = await _init(client, "x")
        tp = broker.node.transactions.partition_of(_VICTIM)
        assert tp is not None
        assert await way(client, producer, tp, version) == [code]  # type: ignore[operator]
        await client.ask(ApiKey.END_TXN, EndTxnRequest("x", *producer, True), 4)
        await _init(client, "x")
        partition = broker.node.partitions.find(*tp)
        assert partition is not None
        log = partition.log
        assert all(entry.producer_id < 0 for entry in log.producers.active())
    async with _broker(tmp_path) as (_, client):
        await _init(client, _VICTIM)


async def test_a_marker_that_a_version_before_has_let_in_says_nothing(tmp_path: Path) -> None:
    async with _broker(tmp_path) as (broker, client):
        producer = await _init(client, _VICTIM)
        tp = broker.node.transactions.partition_of(_VICTIM)
        assert tp is not None
        appended = broker.node.partitions.append_marker(
            tp, producer_id=1, producer_epoch=0, commit=True, coordinator_epoch=0, transaction_version=0
        )
        assert appended.error is ErrorCode.NONE
    async with _broker(tmp_path) as (_, client):
        assert await _init(client, _VICTIM) == (producer[0], producer[1] + 1)


@pytest.mark.parametrize("version", [11, 12])
@pytest.mark.parametrize("other", [(777_777, 0), (None, 1)], ids=["another id", "another epoch"])
async def test_batches_of_several_producers_are_not_of_one_transaction(
    version: int, other: tuple[int | None, int]
) -> None:
    """The coordinator is asked for one of them; what the other one has begun, nobody would ever end."""
    async with _broker() as (broker, client):
        await broker.node.topics.create("t", 2, {})
        producer = await _init(client, "x")
        if version == 11:
            for number in (0, 1):
                assert await _by_adding(client, producer, TopicPartition("t", number), 3) == [0]
        second = (producer[0] if other[0] is None else other[0], producer[1] + other[1])
        data = tuple(p.PartitionProduceData(at, _records(each)) for at, each in enumerate((producer, second)))
        request = p.ProduceRequest("x", -1, 1000, (p.TopicProduceData(name="t", partition_data=data),))
        answer = await client.ask(ApiKey.PRODUCE, request, version)
        codes = [each.error_code for each in answer.responses[0].partition_responses]
        assert codes == [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 2
        assert [broker.node.partitions.find("t", n).log.end_offset for n in (0, 1)] == [0, 0]  # type: ignore[union-attr]
