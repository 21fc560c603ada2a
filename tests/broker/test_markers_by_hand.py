"""WriteTxnMarkers from outside raises no epoch above the coordinator's; what has done so wedges no transaction."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from ottla.base.types import TopicPartition
from ottla.broker.runtime.shard import ShardRunner
from ottla.coordinator.decision import LogRecord
from ottla.coordinator.txn.metadata import created, to_record
from ottla.coordinator.txn.shard import TransactionShard
from ottla.coordinator.txn.states import TransactionState, TransactionVersion
from ottla.log.results import Origin
from ottla.testing import AsyncBroker
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import fetch as f
from ottla.wire.messages import produce as p
from ottla.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.wire.messages.delete_topics import DeleteTopicsRequest
from ottla.wire.messages.end_txn import EndTxnRequest
from ottla.wire.messages.init_producer_id import InitProducerIdRequest
from ottla.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from ottla.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.wire.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from ottla.wire.records import Record, encode_batch
from tests.broker.wire_client import WireClient, batch

pytestmark = pytest.mark.usefixtures("group_coordinator", "transaction_coordinator")

T0 = TopicPartition("t", 0)
Producer = tuple[int, int]
_COMMITTED = 1
_LAST = 32_767


@pytest.fixture(autouse=True)
async def _topic(broker: AsyncBroker) -> None:
    await broker.node.topics.create("t", 2, {})


async def _init(client: WireClient) -> Producer:
    answer = await client.ask(ApiKey.INIT_PRODUCER_ID, InitProducerIdRequest("x", 60_000))
    assert answer.error_code == 0
    return answer.producer_id, answer.producer_epoch


async def _produce(client: WireClient, producer: Producer, sequence: int = 0, partition: int = 0) -> int:
    records = batch(
        b"v", producer_id=producer[0], producer_epoch=producer[1], base_sequence=sequence, transactional=True
    )
    data = (p.PartitionProduceData(partition, records),)
    request = p.ProduceRequest("x", -1, 1000, (p.TopicProduceData(name="t", partition_data=data),))
    answer = await client.ask(ApiKey.PRODUCE, request, 12)
    return int(answer.responses[0].partition_responses[0].error_code)


async def _end(client: WireClient, producer: Producer, *, commit: bool, version: int = 5) -> Any:
    return await client.ask(ApiKey.END_TXN, EndTxnRequest("x", *producer, commit), version)


async def _fetch(client: WireClient) -> tuple[int, int, list[int]]:
    """The last stable offset, the high watermark, and where aborted transactions begin."""
    found, aborted, offset = None, set(), 0
    while found is None or offset < found.high_watermark:
        partition = f.FetchPartition(0, fetch_offset=offset, partition_max_bytes=1)
        topics = (f.FetchTopic(topic="t", partitions=(partition,)),)
        request = f.FetchRequest(
            max_wait_ms=0, min_bytes=0, max_bytes=1, session_epoch=-1, isolation_level=_COMMITTED, topics=topics
        )
        found = (await client.ask(ApiKey.FETCH, request, 12)).responses[0].partitions[0]
        aborted |= {each.first_offset for each in found.aborted_transactions or ()}
        offset += 1
    return found.last_stable_offset, found.high_watermark, sorted(aborted)


async def _mark(client: WireClient, producer: Producer, coordinator_epoch: int = 0, topic: str = "t") -> int:
    """Abort by hand."""
    marker = WritableTxnMarker(*producer, False, (WritableTxnMarkerTopic(topic, (0,)),), coordinator_epoch)
    answer = await client.ask(ApiKey.WRITE_TXN_MARKERS, WriteTxnMarkersRequest((marker,)), 1)
    return int(answer.markers[0].topics[0].partitions[0].error_code)


def _mark_without_asking(
    broker: AsyncBroker, producer: Producer, coordinator_epoch: int = 0, tp: TopicPartition = T0
) -> None:
    """What a version before let in, or another broker."""
    appended = broker.node.partitions.append_marker(
        tp,
        producer_id=producer[0],
        producer_epoch=producer[1],
        commit=False,
        coordinator_epoch=coordinator_epoch,
        transaction_version=0,
    )
    assert appended.error is ErrorCode.NONE


def _write_without_asking(broker: AsyncBroker, producer: Producer) -> None:
    """A record of a transaction that no coordinator has any more."""
    partition = broker.node.partitions.find(*T0)
    assert partition is not None
    now_ms = broker.node.clock.now_ms()
    guard = partition.log.producers.begin_verification(
        producer[0], 0, producer[1], supports_epoch_bump=True, now_ms=now_ms
    )
    partition.log.producers.confirm_verification(producer[0], guard.guard)
    records = batch(b"v", producer_id=producer[0], producer_epoch=producer[1], base_sequence=0, transactional=True)
    assert broker.node.partitions.append(T0, records, origin=Origin.COORDINATOR).error is ErrorCode.NONE


def _shard(broker: AsyncBroker) -> ShardRunner[TransactionShard]:
    runner = broker.node.transactions.find("x")
    assert isinstance(runner, ShardRunner)
    return runner


def _state(broker: AsyncBroker) -> str:
    txn = _shard(broker).shard.get("x")
    assert txn is not None
    return txn.state.kafka_name


@pytest.mark.parametrize(
    ("more", "coordinator_epoch", "code"),
    [
        (0, 1_000, ErrorCode.TRANSACTION_COORDINATOR_FENCED),
        (1, 0, ErrorCode.INVALID_PRODUCER_EPOCH),
        (5, 0, ErrorCode.INVALID_PRODUCER_EPOCH),
    ],
)
@pytest.mark.parametrize("is_open", [True, False])
async def test_t14_no_marker_from_outside_fences_the_coordinator(
    broker: AsyncBroker, client: WireClient, more: int, coordinator_epoch: int, code: ErrorCode, is_open: bool
) -> None:
    producer = await _init(client)
    if is_open:
        assert await _produce(client, producer) == 0
    assert await _mark(client, (producer[0], producer[1] + more), coordinator_epoch) == code
    assert await _mark(client, (producer[0], producer[1] + more), coordinator_epoch, "missing") == 3
    assert (await _fetch(client))[1] == int(is_open), "nothing is written"
    if is_open:
        assert (await _end(client, producer, commit=True)).error_code == 0
        assert (_state(broker), await _fetch(client)) == ("CompleteCommit", (2, 2, []))


async def test_t14_whom_no_coordinator_has_is_ended_with_any_epoch(broker: AsyncBroker, client: WireClient) -> None:
    producer = await _init(client)
    assert await _produce(client, producer) == 0
    (code,) = [each.error_code for each in (await _delete_transactions(client)).responses]
    assert code == 0
    assert await _mark(client, (producer[0], producer[1] + 5), 1_000) == 0
    assert await _fetch(client) == (2, 2, [0])


async def _delete_transactions(client: WireClient) -> Any:
    return await client.ask(ApiKey.DELETE_TOPICS, DeleteTopicsRequest(topic_names=("__transaction_state",)), 3)


async def test_t14_an_id_that_nobody_has_yet_is_not_fenced_before_it_is_given(
    broker: AsyncBroker, client: WireClient
) -> None:
    next_id = (await _init(client))[0] + 1
    for producer_id in (next_id, 10**12):
        assert await _mark(client, (producer_id, 1)) == ErrorCode.INVALID_PRODUCER_EPOCH
    fresh = await client.ask(ApiKey.INIT_PRODUCER_ID, InitProducerIdRequest("y", 60_000))
    assert (fresh.error_code, fresh.producer_id) == (0, next_id)
    _write_without_asking(broker, (10**12, 3))
    assert await _mark(client, (10**12, 4)) == 0, "some client's invention"


async def test_t14_what_hangs_with_epochs_above_the_coordinators_is_ended_with_them(
    broker: AsyncBroker, client: WireClient
) -> None:
    """A loss of power can take the coordinator back, and not the partition."""
    producer_id, epoch = await _init(client)
    _mark_without_asking(broker, (producer_id, epoch + 2), 7)
    _write_without_asking(broker, (producer_id, epoch + 3))
    assert await _mark(client, (producer_id, epoch + 4), 7) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert await _mark(client, (producer_id, epoch + 3), 8) == ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert await _mark(client, (producer_id, epoch + 3), 7) == 0
    assert await _fetch(client) == (3, 3, [1])


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("version", [4, 5])
async def test_t13_a_coordinator_fenced_by_hand_ends_what_is_open(
    broker: AsyncBroker, client: WireClient, caplog: pytest.LogCaptureFixture, commit: bool, version: int
) -> None:
    producer = await _init(client)
    assert await _produce(client, producer) == 0
    _mark_without_asking(broker, producer, 1_000)
    assert await _produce(client, producer, 1) == 0
    with caplog.at_level(logging.ERROR):
        assert (await _end(client, producer, commit=commit, version=version)).error_code == 0
    assert _state(broker) == ("CompleteCommit" if commit else "CompleteAbort")
    assert await _fetch(client) == (4, 4, [0] if commit else [0, 2])
    (line,) = [each.getMessage() for each in caplog.records]
    assert "'x'" in line and "t-0" in line and f"of producer {producer[0]}" in line and "coordinator epoch 1000" in line
    successor = await _init(client)
    assert successor[1] > producer[1]
    assert await _produce(client, successor) == 0
    assert (await _end(client, successor, commit=commit, version=version)).error_code == 0
    assert len(caplog.records) == 1, "not once for each transaction, for ever"


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("version", [4, 5])
async def test_t13_a_producer_fenced_by_hand_has_been_ended(
    broker: AsyncBroker, client: WireClient, caplog: pytest.LogCaptureFixture, commit: bool, version: int
) -> None:
    producer = await _init(client)
    assert await _produce(client, producer) == 0
    _mark_without_asking(broker, (producer[0], producer[1] + 5))
    with caplog.at_level(logging.ERROR):
        assert (await _end(client, producer, commit=commit, version=version)).error_code == 0
    assert _state(broker) == ("CompleteCommit" if commit else "CompleteAbort")
    assert await _fetch(client) == (2, 2, [0]), "no second marker"
    (line,) = [each.getMessage() for each in caplog.records]
    assert "'x'" in line and "t-0" in line and f"epoch {producer[1] + 5}" in line


@asynccontextmanager
async def _started(directory: Path) -> AsyncIterator[tuple[AsyncBroker, WireClient]]:
    async with AsyncBroker(data_dir=directory) as broker, WireClient(broker) as client:
        await broker.node.groups.ready()
        await broker.node.transactions.ready()
        yield broker, client


def _log(broker: AsyncBroker, *records: LogRecord) -> None:
    """Into the coordinator's log, past the coordinator."""
    now_ms = broker.node.clock.now_ms()
    found = encode_batch([Record(at, now_ms, each.key, each.value, ()) for at, each in enumerate(records)])
    assert broker.node.partitions.append(_shard(broker).tp, found, origin=Origin.COORDINATOR).error is ErrorCode.NONE


async def test_t13_a_wedge_in_the_directory_is_gone_with_a_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An open transaction whose coordinator was fenced, and that gave up after its decision."""
    async with _started(tmp_path) as (first, client):
        await first.node.topics.create("t", 2, {})
        producer = await _init(client)
        assert await _produce(client, producer) == 0
        _mark_without_asking(first, producer, 1_000)
        assert await _produce(client, producer, 1) == 0
        request, now_ms = EndTxnRequest("x", *producer, True), first.node.clock.now_ms()
        _log(first, *_shard(first).shard.end_txn(0, request, TransactionVersion.V2, now_ms).records)
        assert (await _fetch(client))[0] == 2
    async with _started(tmp_path) as (second, client):
        assert (_state(second), await _fetch(client)) == ("CompleteCommit", (4, 4, [0]))
        assert "coordinator epoch 1000" in caplog.text


async def test_t13_a_later_transaction_that_no_coordinator_has_is_not_committed_with_the_one_before(
    broker: AsyncBroker, client: WireClient, caplog: pytest.LogCaptureFixture
) -> None:
    """A loss of power has taken from the coordinator's log what came after a decision, and not from the partition's."""
    producer_id, epoch = await _init(client)
    assert await _produce(client, (producer_id, epoch)) == 0
    _mark_without_asking(broker, (producer_id, epoch + 1))
    _write_without_asking(broker, (producer_id, epoch + 1))
    assert (await _end(client, (producer_id, epoch), commit=True)).error_code == 0
    assert (_state(broker), await _fetch(client)) == ("CompleteCommit", (4, 4, [0, 2]))
    assert "no coordinator has" in caplog.text
    assert await _produce(client, (producer_id, epoch + 1), 1) == ErrorCode.INVALID_PRODUCER_EPOCH, "not the rest of it"
    successor = await _init(client)
    assert await _produce(client, successor) == 0
    assert (await _end(client, successor, commit=True)).error_code == 0
    assert (_state(broker), await _fetch(client)) == ("CompleteCommit", (6, 6, [0, 2]))


@pytest.mark.parametrize("commit", [True, False])
async def test_t13_the_last_epoch_can_be_ended_too(tmp_path: Path, commit: bool) -> None:
    """Our coordinator gives nobody the last epoch. One that is taken over may have, and it can be raised no more."""
    async with _started(tmp_path) as (first, client):
        await first.node.topics.create("t", 2, {})
        producer_id, _ = await _init(client)
        txn = created("x", producer_id, 60_000, first.node.clock.now_ms())
        last = txn._replace(
            state=TransactionState.COMPLETE_ABORT,
            producer_epoch=_LAST,
            client_version=TransactionVersion.V2,
            start_ms=1,
        )
        _log(first, to_record(last))
    async with _started(tmp_path) as (second, client):
        repeated = await _end(client, (producer_id, _LAST - 1), commit=False)
        assert (repeated.error_code, repeated.producer_id, repeated.producer_epoch) == (0, producer_id, _LAST)
        assert await _produce(client, (producer_id, _LAST)) == 0
        await client.ask(ApiKey.INIT_PRODUCER_ID, InitProducerIdRequest(None, 0))  # now there are ids to give out
        ended = await _end(client, (producer_id, _LAST), commit=commit)
        assert (ended.error_code, ended.producer_id > producer_id, ended.producer_epoch) == (0, True, 0)
        assert _state(second) == ("CompleteCommit" if commit else "CompleteAbort")
        assert await _fetch(client) == (2, 2, [] if commit else [0])


async def test_t13_offsets_of_a_transaction_fenced_by_hand_are_committed(
    broker: AsyncBroker, client: WireClient
) -> None:
    producer = await _init(client)
    tp = broker.node.groups.partition_of("g")
    assert tp is not None
    _mark_without_asking(broker, producer, 1_000, tp)
    added = await client.ask(ApiKey.ADD_OFFSETS_TO_TXN, AddOffsetsToTxnRequest("x", *producer, "g"))
    assert added.error_code == 0
    topics = (TxnOffsetCommitRequestTopic("t", (TxnOffsetCommitRequestPartition(0, 42),)),)
    request = TxnOffsetCommitRequest("x", "g", *producer, topics=topics)
    committed = await client.ask(ApiKey.TXN_OFFSET_COMMIT, request, 3)
    assert committed.topics[0].partitions[0].error_code == 0
    assert (await _end(client, producer, commit=True)).error_code == 0
    assert _state(broker) == "CompleteCommit"
    fetched = await client.ask(
        ApiKey.OFFSET_FETCH,
        OffsetFetchRequest(group_id="g", topics=(OffsetFetchRequestTopic("t", (0,)),), require_stable=True),
        7,
    )
    assert [each.committed_offset for each in fetched.topics[0].partitions] == [42]
