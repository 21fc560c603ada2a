"""`log.flush.interval.messages`, `flush.messages` and `flush.ms`: synced before it is acknowledged, or after a while.

What a loss of power leaves is seen in simulated worlds (`broker-power`).
"""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from ottla.base.types import TopicPartition
from ottla.broker.runtime.partition import Partition
from ottla.broker.runtime.partitions import _offsets
from ottla.broker.runtime.wakes import Wakes
from ottla.log.config import LogConfig
from ottla.log.memory import MemoryStorage
from ottla.log.partition import PartitionLog
from ottla.log.results import Origin
from ottla.testing import AsyncBroker
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.describe_transactions import DescribeTransactionsRequest
from ottla.wire.messages.end_txn import EndTxnRequest
from ottla.wire.messages.init_producer_id import InitProducerIdRequest
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.records import Record, encode_batch
from tests.broker.own_syncs import syncs_of_this_thread
from tests.broker.records_io import fetch, produce
from tests.broker.ticking import some_turns_until
from tests.broker.wire_client import WireClient, batch

_PATIENCE_S = 60


def _partition(broker: AsyncBroker, topic: str = "t", number: int = 0) -> Partition:
    partition = broker.node.partitions.find(topic, number)
    assert partition is not None
    return partition


@pytest.mark.parametrize(
    ("broker_says", "topic_says", "synced"), [("1", {}, 4), ("3", {}, 3), (None, {"flush.messages": "2"}, 4)]
)
async def test_so_many_records_are_synced_before_they_are_acknowledged(
    broker_says: str | None, topic_says: dict[str, str], synced: int
) -> None:
    config = {} if broker_says is None else {"log.flush.interval.messages": broker_says}
    async with AsyncBroker(config) as broker, WireClient(broker) as client:
        await broker.node.topics.create("t", 1, topic_says)
        for offset in range(4):
            [answer] = await produce(client, batch(b"x"))
            assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, offset)
        assert _partition(broker).log.synced.offset == synced
        assert (await fetch(client)).high_watermark == 4


async def test_the_checkpoint_covers_no_deleted_record_that_is_not_on_the_device() -> None:
    async with AsyncBroker({"log.flush.interval.messages": "3"}) as broker, WireClient(broker) as client:
        await broker.node.topics.create("t", 1, {})
        await produce(client, batch(b"x"))
        log = _partition(broker).log
        log.delete_records_before(1)
        assert (log.recovery_point, log.synced.offset) == (1, 0)
        assert _offsets(_partition(broker)).recovery_point == 0


async def test_a_request_waits_for_all_its_partitions_and_acks_0_for_none() -> None:
    async with AsyncBroker({"log.flush.interval.messages": "1"}) as broker, WireClient(broker) as client:
        await broker.node.topics.create("t", 2, {})
        answers = await produce(client, batch(b"a"), batch(b"b"))
        assert [each.error_code for each in answers] == [ErrorCode.NONE, ErrorCode.NONE]
        assert [_partition(broker, "t", number).log.synced.offset for number in (0, 1)] == [1, 1]


async def test_a_fetch_that_waits_is_answered_when_the_record_is_on_the_device() -> None:
    async with (
        AsyncBroker({"log.flush.interval.messages": "1"}) as broker,
        WireClient(broker) as writer,
        WireClient(broker) as reader,
    ):
        await broker.node.topics.create("t", 1, {})
        waiting = asyncio.create_task(fetch(reader, max_wait_ms=60_000))
        await produce(writer, batch(b"x"))
        found = await waiting
        assert (found.high_watermark, len(found.records)) == (1, len(batch(b"x")))


async def _on_a_device_that_refuses_syncs(broker: AsyncBroker) -> tuple[MemoryStorage, Partition]:
    """A topic `t` whose first partition is there."""
    await broker.node.topics.create("t", 2, {})
    storage, node = MemoryStorage(), broker.node
    tp = TopicPartition("t", 0)
    log = PartitionLog.open(tp, storage, LogConfig(flush_messages=1), 0)
    partition = Partition(tp, node.image.topics["t"].topic_id, log, 0, Wakes(broker.node.clock))
    node.partitions.add([partition])
    storage.refuses = lambda action, name: action == "sync"
    return storage, partition


async def test_what_the_device_refuses_is_not_acknowledged_and_not_shown() -> None:
    async with AsyncBroker() as broker, WireClient(broker) as client:
        storage, partition = await _on_a_device_that_refuses_syncs(broker)
        node = broker.node
        refused, taken = await produce(client, batch(b"x"), batch(b"y"))
        assert (refused.error_code, taken.error_code) == (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NONE)
        assert (await fetch(client)).high_watermark == 0
        storage.refuses = None
        node.partitions.syncs._again(partition)  # what its timer does a second later
        await node.partitions.syncs.close()
        assert (await fetch(client, 1)).high_watermark == 1


async def test_what_is_deleted_while_the_device_takes_it_is_no_fault_of_the_disk(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with AsyncBroker() as broker, WireClient(broker) as client:
        _, partition = await _on_a_device_that_refuses_syncs(broker)
        answer = asyncio.create_task(produce(client, batch(b"x"), batch(b"y")))
        await some_turns_until(lambda: partition.log.end_offset == 1)
        list(broker.node.partitions.take_out(broker.node.image.topics["t"]))
        deleted, other = await answer
        assert (deleted.error_code, other.error_code) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NONE)
    assert "until the disk takes them again" not in caplog.text


async def _append_as_client(broker: AsyncBroker) -> None:
    async with WireClient(broker) as writer:
        [refused] = await produce(writer, batch(b"x"))
        assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR


async def _append_as_coordinator(broker: AsyncBroker) -> None:
    refused = broker.node.partitions.append(TopicPartition("t", 0), batch(b"x"), origin=Origin.COORDINATOR)
    assert refused.error is ErrorCode.KAFKA_STORAGE_ERROR


async def _end_a_transaction(broker: AsyncBroker) -> None:
    refused = broker.node.partitions.append_marker(
        TopicPartition("t", 0), producer_id=3, producer_epoch=0, commit=True, coordinator_epoch=0, transaction_version=0
    )
    assert refused.error is ErrorCode.KAFKA_STORAGE_ERROR


async def _sync_again(broker: AsyncBroker, partition: Partition) -> None:
    broker.node.partitions.syncs._again(partition)


async def _sync_as_coordinator(broker: AsyncBroker, partition: Partition) -> None:
    assert broker.node.partitions.is_synced(partition.tp)


async def _sync_no_more(broker: AsyncBroker, partition: Partition) -> None:
    partition.log.config = LogConfig()
    await _sync_again(broker, partition)


async def _sync_behind_others(broker: AsyncBroker, partition: Partition) -> None:
    await broker.node.partitions.syncs.after(partition, 1)


@pytest.mark.parametrize("refused", [_append_as_client, _append_as_coordinator, _end_a_transaction])
@pytest.mark.parametrize("sync", [_sync_again, _sync_as_coordinator, _sync_no_more, _sync_behind_others])
async def test_a_fetch_that_waits_is_answered_when_what_the_device_had_refused_is_there(
    refused: Callable[[AsyncBroker], Awaitable[None]], sync: Callable[[AsyncBroker, Partition], Awaitable[None]]
) -> None:
    async with AsyncBroker() as broker, WireClient(broker) as reader:
        storage, partition = await _on_a_device_that_refuses_syncs(broker)
        waiting = asyncio.create_task(fetch(reader, max_wait_ms=600_000, min_bytes=len(batch(b"x"))))
        await some_turns_until(lambda: partition.watched)
        await refused(broker)
        storage.refuses = None
        await sync(broker, partition)
        async with asyncio.timeout(_PATIENCE_S):
            assert (await waiting).high_watermark == 1


async def test_a_coordinators_records_and_markers_are_synced_when_the_append_returns() -> None:
    async with AsyncBroker({"log.flush.interval.messages": "1"}) as broker:
        await broker.node.topics.create("t", 1, {})
        tp, partitions = TopicPartition("t", 0), broker.node.partitions
        records = encode_batch([Record(0, 1, None, b"x", ())])
        assert partitions.append(tp, records, origin=Origin.COORDINATOR).error is ErrorCode.NONE
        assert _partition(broker).log.synced.offset == 1
        marker = partitions.append_marker(
            tp, producer_id=3, producer_epoch=0, commit=True, coordinator_epoch=0, transaction_version=0
        )
        assert marker.error is ErrorCode.NONE
        assert _partition(broker).log.synced.offset == 2


async def _begin_a_transaction(client: WireClient) -> tuple[int, int]:
    """A record of it is in the first partition of `t`."""
    begun = await client.ask(ApiKey.INIT_PRODUCER_ID, InitProducerIdRequest("x", 60_000))
    producer = begun.producer_id, begun.producer_epoch
    how = {"producer_id": producer[0], "producer_epoch": producer[1], "base_sequence": 0, "transactional": True}
    data = (TopicProduceData(name="t", partition_data=(PartitionProduceData(0, batch(b"a", **how)),)),)
    answer = await client.ask(ApiKey.PRODUCE, ProduceRequest("x", -1, 60_000, data), 12)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
    return producer


async def _end(client: WireClient, producer: tuple[int, int]) -> None:
    answer = await client.ask(ApiKey.END_TXN, EndTxnRequest("x", *producer, committed=True), 4)
    assert answer.error_code == ErrorCode.NONE


@pytest.mark.usefixtures("transaction_coordinator")
async def test_the_markers_of_a_transaction_are_synced_in_another_thread(
    broker: AsyncBroker, client: WireClient
) -> None:
    await broker.node.topics.create("t", 1, {"flush.messages": "1"})
    producer, log = await _begin_a_transaction(client), _partition(broker).log
    with syncs_of_this_thread() as made:
        await _end(client, producer)
        await some_turns_until(lambda: log.end_offset == 2)
        assert (log.last_stable_offset, log.synced.offset) == (1, 1), "nobody sees it before the device has it"
        await some_turns_until(lambda: log.last_stable_offset == 2)
    assert (made, log.synced.offset) == ([], 2)
    assert await _state_of(client) == "CompleteCommit"


@pytest.mark.usefixtures("transaction_coordinator")
async def test_a_transaction_has_not_ended_before_the_device_takes_its_marker(
    broker: AsyncBroker, client: WireClient
) -> None:
    storage, partition = await _on_a_device_that_refuses_syncs(broker)
    storage.refuses = None
    producer = await _begin_a_transaction(client)
    storage.refuses = lambda action, name: action == "sync"
    await _end(client, producer)
    await some_turns_until(lambda: partition.untold_bytes > 0)
    assert (await _state_of(client), partition.log.last_stable_offset) == ("PrepareCommit", 1)
    storage.refuses = None
    broker.clock.advance(60_000)
    await some_turns_until(lambda: partition.log.last_stable_offset == partition.log.end_offset)
    assert await _state_of(client) == "CompleteCommit"


async def _state_of(client: WireClient) -> str:
    answer = await client.ask(ApiKey.DESCRIBE_TRANSACTIONS, DescribeTransactionsRequest(("x",)), 0)
    return str(answer.transaction_states[0].transaction_state)


async def test_what_has_waited_for_flush_ms_is_synced() -> None:
    async with AsyncBroker() as broker, WireClient(broker) as client:
        await broker.node.topics.create("t", 1, {"flush.ms": "0"})
        await broker.node.topics.create("u", 1, {})
        for topic in ("t", "u"):
            await produce(client, batch(b"x"), topic=topic)
            await broker.node.partitions.syncs.sync_old(_partition(broker, topic))
        assert _partition(broker, "t").log.synced.offset == 1
        assert _partition(broker, "u").log.synced.offset == 0
