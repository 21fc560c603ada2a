"""Transactions over the wire: what a fetch sees of them, how they are shown and repaired, and what a crash leaves."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.runtime.markers import Marker
from ottla.broker.runtime.shard import ShardRunner
from ottla.coordinator.decision import WriteMarkers
from ottla.coordinator.txn.shard import TransactionShard
from ottla.coordinator.txn.states import TransactionVersion
from ottla.log.results import Origin
from ottla.testing import AsyncBroker
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import add_partitions_to_txn as ap
from ottla.wire.messages import fetch as f
from ottla.wire.messages import produce as p
from ottla.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from ottla.wire.messages.describe_transactions import DescribeTransactionsRequest
from ottla.wire.messages.end_txn import EndTxnRequest
from ottla.wire.messages.init_producer_id import InitProducerIdRequest
from ottla.wire.messages.list_transactions import ListTransactionsRequest
from ottla.wire.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from ottla.wire.records import Record, encode_batch
from tests.broker.counted_turns import QuickClock
from tests.broker.wire_client import WireClient, batch

pytestmark = pytest.mark.usefixtures("group_coordinator", "transaction_coordinator")

_COMMITTED = 1


async def _init(client: WireClient, transactional_id: str = "x") -> tuple[int, int]:
    answer = await client.ask(ApiKey.INIT_PRODUCER_ID, InitProducerIdRequest(transactional_id, 60_000))
    assert answer.error_code == 0
    return answer.producer_id, answer.producer_epoch


async def _produce(
    client: WireClient,
    producer: tuple[int, int],
    *values: bytes,
    sequence: int = 0,
    version: int = 12,
    partition: int = 0,
) -> int:
    records = batch(
        *values, producer_id=producer[0], producer_epoch=producer[1], base_sequence=sequence, transactional=True
    )
    data = (p.PartitionProduceData(partition, records),)
    request = p.ProduceRequest("x", -1, 1000, (p.TopicProduceData(name="t", partition_data=data),))
    answer = await client.ask(ApiKey.PRODUCE, request, version)
    return int(answer.responses[0].partition_responses[0].error_code)


async def _fetch(client: WireClient, partition: int = 0) -> Any:
    topics = (f.FetchTopic(topic="t", partitions=(f.FetchPartition(partition, partition_max_bytes=2**20),)),)
    request = f.FetchRequest(
        max_wait_ms=0, min_bytes=0, max_bytes=2**20, session_epoch=-1, isolation_level=_COMMITTED, topics=topics
    )
    return (await client.ask(ApiKey.FETCH, request, 12)).responses[0].partitions[0]


async def _end(client: WireClient, producer: tuple[int, int], *, commit: bool, version: int = 5) -> Any:
    return await client.ask(ApiKey.END_TXN, EndTxnRequest("x", *producer, commit), version)


@pytest.fixture(autouse=True)
async def _topic(broker: AsyncBroker) -> None:
    await broker.node.topics.create("t", 3, {})


async def test_t8_the_last_stable_offset_waits_for_the_end(client: WireClient) -> None:
    producer = await _init(client)
    assert await _produce(client, producer, b"a", b"b") == 0
    open_ = await _fetch(client)
    assert (open_.last_stable_offset, open_.high_watermark, bytes(open_.records or b"")) == (0, 2, b"")
    ended = await _end(client, producer, commit=False)
    assert (ended.error_code, ended.producer_id, ended.producer_epoch) == (0, producer[0], producer[1] + 1)
    aborted = await _fetch(client)
    assert aborted.last_stable_offset == 3
    assert [tuple(each) for each in aborted.aborted_transactions] == [(producer[0], 0)]


async def test_t5_a_partition_that_was_not_added_is_refused_to_older_clients(client: WireClient) -> None:
    producer = await _init(client)
    assert await _produce(client, producer, b"a", version=11) == ErrorCode.TRANSACTION_ABORTABLE
    assert await _produce(client, producer, b"a", version=9) == ErrorCode.INVALID_TXN_STATE
    topics = (ap.AddPartitionsToTxnTopic("t", (0,)),)
    added = await client.ask(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        ap.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="x",
            v3_and_below_producer_id=producer[0],
            v3_and_below_producer_epoch=producer[1],
            v3_and_below_topics=topics,
        ),
        3,
    )
    assert added.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code == 0
    assert await _produce(client, producer, b"a", version=9) == 0
    assert (await _end(client, producer, commit=True, version=4)).error_code == 0
    assert (await _fetch(client)).last_stable_offset == 2


async def test_t5_without_verification_an_older_client_is_believed() -> None:
    """`transaction.partition.verification.enable=false`: newer clients add their partitions all the same (KIP-890)."""
    async with (
        AsyncBroker({"transaction.partition.verification.enable": "false"}) as broker,
        WireClient(broker) as client,
    ):
        await broker.node.topics.create("t", 3, {})
        await broker.node.transactions.ready()
        producer = await _init(client)
        assert await _produce(client, producer, b"a", version=9) == 0
        assert await _produce(client, (producer[0] + 1_000_000, 0), b"a", version=11, partition=1) == 0
        described = await client.ask(ApiKey.DESCRIBE_TRANSACTIONS, DescribeTransactionsRequest(("x",)))
        assert described.transaction_states[0].topics == ()
        assert await _produce(client, producer, b"a", version=12, partition=2) == 0
        described = await client.ask(ApiKey.DESCRIBE_TRANSACTIONS, DescribeTransactionsRequest(("x",)))
        assert [tuple(each.partitions) for each in described.transaction_states[0].topics] == [(2,)]


@pytest.mark.parametrize("others", [0, 200])
async def test_t14_markers_of_one_producer_are_answered_together_and_without_a_producer_nothing_is_written(
    client: WireClient, others: int
) -> None:
    """Many markers, here of partitions that are not there, are written in steps."""
    before = tuple((1_000 + n, 0, 9) for n in range(others))

    async def mark(*markers: tuple[int, int, int]) -> list[tuple[int, list[tuple[int, int]]]]:
        request = WriteTxnMarkersRequest(
            tuple(
                WritableTxnMarker(producer_id, epoch, False, (WritableTxnMarkerTopic("t", (partition,)),))
                for producer_id, epoch, partition in (*before, *markers)
            )
        )
        answer = await client.ask(ApiKey.WRITE_TXN_MARKERS, request)
        told = [
            (each.producer_id, [(p.partition_index, p.error_code) for t in each.topics for p in t.partitions])
            for each in answer.markers
        ]
        assert [producer_id for producer_id, _ in told[:others]] == [producer_id for producer_id, _, _ in before]
        assert {error for _, partitions in told[:others] for _, error in partitions} <= {3, -1}
        return told[others:]

    assert await mark((7, 0, 0), (8, 0, 0), (7, 0, 9), (7, 0, 1)) == [(7, [(0, 0), (9, 3), (1, 0)]), (8, [(0, 0)])]
    assert (await _fetch(client)).high_watermark == 2
    assert await mark((-1, 0, 9)) == [(-1, [(9, 3)])]
    for nobody in ((-1, 0, 0), (9, -1, 0)):
        assert await mark(nobody, (7, 0, 1)) == [(nobody[0], [(0, -1)]), (7, [(1, -1)])]
    assert [(await _fetch(client, partition)).high_watermark for partition in (0, 1)] == [2, 1]


async def test_t5_one_missing_partition_keeps_the_others_out(client: WireClient) -> None:
    producer = await _init(client)
    transaction = ap.AddPartitionsToTxnTransaction("x", *producer, False, (ap.AddPartitionsToTxnTopic("t", (0, 9)),))
    answer = await client.ask(ApiKey.ADD_PARTITIONS_TO_TXN, ap.AddPartitionsToTxnRequest((transaction,)), 5)
    results = answer.results_by_transaction[0].topic_results[0].results_by_partition
    assert [each.partition_error_code for each in results] == [
        ErrorCode.OPERATION_NOT_ATTEMPTED,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]


async def test_t2_the_older_producer_is_fenced(client: WireClient) -> None:
    old = await _init(client)
    new = await _init(client)
    assert new == (old[0], old[1] + 1)
    assert await _produce(client, new, b"new") == 0
    assert await _produce(client, old, b"old") == ErrorCode.INVALID_PRODUCER_EPOCH
    assert (await _end(client, old, commit=True)).error_code == ErrorCode.PRODUCER_FENCED


async def test_t14_who_holds_back_the_lso_is_shown_and_can_be_ended(client: WireClient) -> None:
    producer = await _init(client)
    await _produce(client, producer, b"a")
    shown = await client.ask(ApiKey.DESCRIBE_PRODUCERS, DescribeProducersRequest((TopicRequest("t", (0, 9)),)))
    there, missing = shown.topics[0].partitions
    assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    (active,) = there.active_producers
    assert (active.producer_id, active.producer_epoch, active.current_txn_start_offset) == (*producer, 0)
    listed = await client.ask(ApiKey.LIST_TRANSACTIONS, ListTransactionsRequest())
    assert [(each.transactional_id, each.transaction_state) for each in listed.transaction_states] == [("x", "Ongoing")]
    described = await client.ask(ApiKey.DESCRIBE_TRANSACTIONS, DescribeTransactionsRequest(("x", "none")))
    one, none = described.transaction_states
    assert [(each.topic, each.partitions) for each in one.topics] == [("t", (0,))]
    assert none.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    marker = WritableTxnMarker(*producer, False, (WritableTxnMarkerTopic("t", (0, 9)),), 0)
    written = await client.ask(ApiKey.WRITE_TXN_MARKERS, WriteTxnMarkersRequest((marker,)), 1)
    errors = [each.error_code for each in written.markers[0].topics[0].partitions]
    assert errors == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert (await _fetch(client)).last_stable_offset == 2


async def test_t14_a_slow_pattern_keeps_nobody_waiting() -> None:
    async with AsyncBroker(clock=QuickClock()) as broker:  # three ids in a slice
        assert await broker.node.transactions.ready() is None
        async with WireClient(broker) as client, WireClient(broker) as other:
            for number in range(600):
                answer = await client.ask(ApiKey.INIT_PRODUCER_ID, InitProducerIdRequest(f"x-{number}", 60_000))
                assert answer.error_code == 0
            request = ListTransactionsRequest(transactional_id_pattern="(.*9){2}")
            listing = asyncio.ensure_future(client.ask(ApiKey.LIST_TRANSACTIONS, request))
            served = 0
            while not listing.done():
                assert ApiKey.LIST_TRANSACTIONS in await other.ask_api_versions()
                served += 1
            assert served > 10, "matched in one turn of the loop, which serves the others too"
            told = {each.transactional_id for each in (await listing).transaction_states}
            assert told == {f"x-{number}" for number in range(600) if str(number).count("9") == 2}


@pytest.mark.parametrize(("pattern", "error"), [("y", 0), ("(", ErrorCode.INVALID_REGULAR_EXPRESSION)])
async def test_t14_no_id_passes_such_a_pattern(client: WireClient, pattern: str, error: int) -> None:
    await _init(client)
    request = ListTransactionsRequest(transactional_id_pattern=pattern)
    listed = await client.ask(ApiKey.LIST_TRANSACTIONS, request)
    assert (listed.error_code, listed.transaction_states) == (error, ())


async def test_p2_an_idempotent_producer_needs_no_coordinator() -> None:
    async with AsyncBroker() as broker, WireClient(broker) as client:
        answers = [await client.ask(ApiKey.INIT_PRODUCER_ID, InitProducerIdRequest(None, 0)) for _ in range(3)]
        assert [(each.producer_id, each.producer_epoch) for each in answers] == [(0, 0), (1, 0), (2, 0)]
        assert "__transaction_state" not in broker.node.image.topics


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("markers", [0, 1, 3])
async def test_t13_a_decision_in_the_log_is_carried_out_after_a_crash(
    tmp_path: Path, commit: bool, markers: int
) -> None:
    """The broker dies once the decision is durable and `markers` of three partitions have their marker."""
    async with AsyncBroker(data_dir=tmp_path) as first, WireClient(first) as client:
        await first.node.topics.create("t", 3, {})
        await first.node.transactions.ready()
        producer = await _init(client)
        for number in range(3):
            assert await _produce(client, producer, b"a", partition=number) == 0
        _decide_only(first, producer, commit=commit, markers=markers)
    async with AsyncBroker(data_dir=tmp_path) as second, WireClient(second) as client:
        found = [await _fetch(client, number) for number in range(3)]
        # A marker that was there already is written again, as Apache Kafka does; it ends nothing.
        assert [each.last_stable_offset for each in found] == [2 + (number < markers) for number in range(3)]
        assert [len(each.aborted_transactions) for each in found] == ([0] * 3 if commit else [1] * 3)
        shown = await client.ask(ApiKey.DESCRIBE_TRANSACTIONS, DescribeTransactionsRequest(("x",)))
        assert shown.transaction_states[0].transaction_state == ("CompleteCommit" if commit else "CompleteAbort")
        again = await _end(client, producer, commit=commit)
        assert (again.error_code, again.producer_epoch) == (0, producer[1] + 1)


def _decide_only(broker: AsyncBroker, producer: tuple[int, int], *, commit: bool, markers: int) -> None:
    """Append the decision of an EndTxn and some of its markers, and forget everything else."""
    node = broker.node
    runner = node.transactions.find("x")
    assert isinstance(runner, ShardRunner)
    shard = runner.shard
    assert isinstance(shard, TransactionShard)
    now_ms = node.clock.now_ms()
    decision = shard.end_txn(0, EndTxnRequest("x", *producer, commit), TransactionVersion.V2, now_ms)
    records = [Record(at, now_ms, each.key, each.value, ()) for at, each in enumerate(decision.records)]
    assert node.partitions.append(runner.tp, encode_batch(records), origin=Origin.COORDINATOR).error is ErrorCode.NONE
    (effect,) = decision.effects
    assert isinstance(effect, WriteMarkers)
    node.markers.write(
        sorted(effect.partitions)[:markers],
        Marker(effect.producer_id, effect.producer_epoch, effect.commit, effect.coordinator_epoch, 0),
    )
