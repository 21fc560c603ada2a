"""A disk that takes nothing more: every request is answered with Kafka's error, one line in the log says why, nothing
half-written stays, and with room again everything goes on.

The disk is full by the system's limit on file sizes, which lets no file of this process grow.
"""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from ottla.base.clock import ManualClock
from ottla.base.errors import StorageError
from ottla.log.checkpoint import CLEAN_SHUTDOWN_MARKER, LOG_START_OFFSET_CHECKPOINT
from ottla.log.names import LEADER_EPOCH_CHECKPOINT
from ottla.testing import AsyncBroker
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import add_offsets_to_txn as aot
from ottla.wire.messages import add_partitions_to_txn as apt
from ottla.wire.messages import create_partitions as cp
from ottla.wire.messages import create_topics as ct
from ottla.wire.messages import delete_records as dr
from ottla.wire.messages import end_txn as et
from ottla.wire.messages import incremental_alter_configs as ac
from ottla.wire.messages import init_producer_id as ip
from ottla.wire.messages import join_group as jg
from ottla.wire.messages import leave_group as lg
from ottla.wire.messages import offset_commit as oc
from ottla.wire.messages import produce as p
from ottla.wire.messages import sync_group as sg
from ottla.wire.messages import txn_offset_commit as toc
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from tests.broker.full_disk import no_room
from tests.broker.records_io import fetch
from tests.broker.wire_client import WireClient, batch

_NO_ID = bytes(16)


@pytest.fixture
async def broker() -> AsyncIterator[AsyncBroker]:
    """A broker whose clock stands still, so that the log stays silent after its first line."""
    async with AsyncBroker(clock=ManualClock()) as running:
        await running.node.topics.create("t", 1, {})
        yield running


async def _open_transaction(client: WireClient) -> et.EndTxnRequest:
    """A transaction with records in `t`; what commits it."""
    begun = await client.ask(ApiKey.INIT_PRODUCER_ID, ip.InitProducerIdRequest("x", 10_000))
    one, epoch = begun.producer_id, begun.producer_epoch
    records = batch(b"x" * 100_000, producer_id=one, producer_epoch=epoch, base_sequence=0, transactional=True)
    written = await client.ask(ApiKey.PRODUCE, _produce(records, "x"), 12)
    assert written.responses[0].partition_responses[0].error_code == 0
    return et.EndTxnRequest("x", one, epoch, True)


class _Journey:
    """Every request that writes; answers are the error codes, by the request's name."""

    def __init__(self, client: WireClient) -> None:
        self._client = client
        self._producer = (0, 0)

    async def __call__(self) -> dict[str, int]:
        ask, (one, epoch) = self._client.ask, self._producer
        codes: dict[str, int] = {}
        written = await ask(ApiKey.PRODUCE, _produce(batch(b"plain")), 9)
        codes["produce"] = written.responses[0].partition_responses[0].error_code
        found = await ask(ApiKey.FIND_COORDINATOR, FindCoordinatorRequest(key_type=0, coordinator_keys=("g",)))
        codes["find_coordinator"] = found.coordinators[0].error_code
        committed = await ask(ApiKey.OFFSET_COMMIT, _COMMIT, 9)
        codes["offset_commit"] = committed.topics[0].partitions[0].error_code
        codes |= await self._group()
        plain = await ask(ApiKey.INIT_PRODUCER_ID, ip.InitProducerIdRequest(None, 1_000))
        codes["init_producer_id"] = plain.error_code
        begun = await ask(ApiKey.INIT_PRODUCER_ID, ip.InitProducerIdRequest("x", 10_000))
        codes["init_transactions"] = begun.error_code
        if not begun.error_code:
            one, epoch = self._producer = (begun.producer_id, begun.producer_epoch)
        added = apt.AddPartitionsToTxnRequest((), "x", one, epoch, (apt.AddPartitionsToTxnTopic("t", (0,)),))
        answer = await ask(ApiKey.ADD_PARTITIONS_TO_TXN, added, 3)
        codes["add_partitions"] = answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
        records = batch(b"in", producer_id=one, producer_epoch=epoch, base_sequence=0, transactional=True)
        written = await ask(ApiKey.PRODUCE, _produce(records, "x"), 9)
        codes["produce_in_transaction"] = written.responses[0].partition_responses[0].error_code
        answer = await ask(ApiKey.ADD_OFFSETS_TO_TXN, aot.AddOffsetsToTxnRequest("x", one, epoch, "g"))
        codes["add_offsets"] = answer.error_code
        answer = await ask(
            ApiKey.TXN_OFFSET_COMMIT, toc.TxnOffsetCommitRequest("x", "g", one, epoch, topics=_OFFSETS), 4
        )
        codes["txn_offset_commit"] = answer.topics[0].partitions[0].error_code
        answer = await ask(ApiKey.END_TXN, et.EndTxnRequest("x", one, epoch, True), 4)
        codes["end_txn"] = answer.error_code
        return codes

    async def _group(self) -> dict[str, int]:
        ask = self._client.ask
        protocols = (jg.JoinGroupRequestProtocol("range", b"m"),)
        join = jg.JoinGroupRequest("h", 10_000, 10_000, "", "static", "consumer", protocols)
        joined = await ask(ApiKey.JOIN_GROUP, join, 5)
        member = joined.member_id or "nobody"
        assigned = (sg.SyncGroupRequestAssignment(member, b"all"),)
        sync = sg.SyncGroupRequest("h", joined.generation_id, member, "static", assignments=assigned)
        synced = await ask(ApiKey.SYNC_GROUP, sync, 4)
        leave = lg.LeaveGroupRequest("h", members=(lg.MemberIdentity(member, "static"),))
        left = await ask(ApiKey.LEAVE_GROUP, leave, 3)
        left_code = left.error_code or left.members[0].error_code
        return {"join_group": joined.error_code, "sync_group": synced.error_code, "leave_group": left_code}


_COMMIT = oc.OffsetCommitRequest(
    "g", topics=(oc.OffsetCommitRequestTopic(_NO_ID, "t", (oc.OffsetCommitRequestPartition(0, 5),)),)
)
_OFFSETS = (toc.TxnOffsetCommitRequestTopic("t", (toc.TxnOffsetCommitRequestPartition(0, 7),)),)


def _produce(records: bytes, transactional_id: str | None = None) -> p.ProduceRequest:
    return p.ProduceRequest(
        transactional_id, -1, 1_000, (p.TopicProduceData(_NO_ID, "t", (p.PartitionProduceData(0, records),)),)
    )


def _told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelname in ("ERROR", "CRITICAL")]


async def test_a_broker_without_internal_topics_answers_and_goes_on(
    broker: AsyncBroker, client: WireClient, caplog: pytest.LogCaptureFixture
) -> None:
    journey = _Journey(client)
    with no_room():
        codes = await journey()
    assert {name: ErrorCode(code).name for name, code in codes.items()} == {
        "produce": "KAFKA_STORAGE_ERROR",
        "find_coordinator": "COORDINATOR_NOT_AVAILABLE",
        "offset_commit": "COORDINATOR_NOT_AVAILABLE",
        "join_group": "COORDINATOR_NOT_AVAILABLE",
        "sync_group": "COORDINATOR_NOT_AVAILABLE",
        "leave_group": "COORDINATOR_NOT_AVAILABLE",
        "init_producer_id": "COORDINATOR_LOAD_IN_PROGRESS",
        "init_transactions": "COORDINATOR_NOT_AVAILABLE",
        "add_partitions": "COORDINATOR_NOT_AVAILABLE",
        "produce_in_transaction": "NOT_ENOUGH_REPLICAS",
        "add_offsets": "COORDINATOR_NOT_AVAILABLE",
        "txn_offset_commit": "COORDINATOR_NOT_AVAILABLE",
        "end_txn": "COORDINATOR_NOT_AVAILABLE",
    }
    (line,) = _told(caplog)
    assert str(broker.data_dir) in line
    assert "File too large" in line
    for coordinators in (broker.node.groups, broker.node.transactions):
        await coordinators.ready()  # perhaps an attempt that began before there was room
        assert await coordinators.ready() is None
    assert set((await journey()).values()) == {0}


async def test_coordinators_that_cannot_write_answer_and_go_on(
    broker: AsyncBroker, client: WireClient, caplog: pytest.LogCaptureFixture
) -> None:
    journey = _Journey(client)
    assert (await broker.node.groups.ready(), await broker.node.transactions.ready()) == (None, None)
    assert set((await journey()).values()) == {0}
    sizes = {path: path.stat().st_size for path in broker.data_dir.glob("*/*.log")}
    with no_room():
        codes = await journey()
    assert {path: path.stat().st_size for path in sizes} == sizes, "no half batch is left"
    names = {name: ErrorCode(code).name for name, code in codes.items()}
    # The transaction before has ended: a second end is answered as the first was, and offsets belong to none.
    assert names.pop("produce") == "KAFKA_STORAGE_ERROR"
    assert names.pop("find_coordinator") == "NONE"
    assert names.pop("init_producer_id") == "NONE", "its block is durable"
    assert names == {
        "offset_commit": "NOT_COORDINATOR",
        "join_group": "NONE",
        "sync_group": "NOT_COORDINATOR",
        "leave_group": "NOT_COORDINATOR",
        "init_transactions": "NOT_COORDINATOR",
        "add_partitions": "NOT_COORDINATOR",
        "produce_in_transaction": "INVALID_TXN_STATE",
        "add_offsets": "NOT_COORDINATOR",
        "txn_offset_commit": "TRANSACTION_ABORTABLE",
        "end_txn": "NONE",
    }
    assert len(_told(caplog)) == 1
    assert set((await journey()).values()) == {0}
    read = await fetch(client, 0)
    assert read.error_code == 0
    assert read.high_watermark == broker.node.partitions.find("t", 0).log.end_offset  # type: ignore[union-attr]


_TOPIC_REQUESTS: dict[str, tuple[ApiKey, tuple[Any, ...], str]] = {
    "create": (ApiKey.CREATE_TOPICS, ct.CreateTopicsRequest((ct.CreatableTopic("n", 3, 1),)), "topics"),
    "grow": (
        ApiKey.CREATE_PARTITIONS,
        cp.CreatePartitionsRequest((cp.CreatePartitionsTopic("t", 5, None),)),
        "results",
    ),
    "alter": (
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ac.IncrementalAlterConfigsRequest(
            (ac.AlterConfigsResource(2, "t", (ac.AlterableConfig("retention.ms", 0, "1000"),)),)
        ),
        "responses",
    ),
}


@pytest.mark.parametrize("name", _TOPIC_REQUESTS)
async def test_topics_that_cannot_be_written_down_are_as_before(
    broker: AsyncBroker, client: WireClient, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    key, request, results = _TOPIC_REQUESTS[name]
    with no_room():
        (refused,) = getattr(await client.ask(key, request), results)
    assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert sorted(path.name for path in broker.data_dir.iterdir() if "-" in path.name and path.is_dir()) == [
        "__cluster_metadata-0",
        "t-0",
    ]
    assert len(_told(caplog)) == 1
    (made,) = getattr(await client.ask(key, request), results)
    assert made.error_code == 0


async def test_a_stop_on_a_full_disk_says_so_and_lets_the_directory_go(broker: AsyncBroker, client: WireClient) -> None:
    await client.ask(ApiKey.PRODUCE, _produce(batch(b"kept")), 9)
    with no_room(), pytest.raises(StorageError, match="without the mark of a clean stop"):
        await broker.stop()
    await broker.start()
    async with WireClient(broker) as again:
        assert (await fetch(again, 0)).high_watermark == 1


async def test_a_deletion_that_is_not_written_down_is_not_acknowledged(broker: AsyncBroker, client: WireClient) -> None:
    """broker-plain 12: it was, and after kill -9 the records were there again. broker-damage 540000229: one of the two
    files that say where a log begins was not written any more, and the other one was damaged."""
    await client.ask(ApiKey.PRODUCE, _produce(batch(b"old")), 9)
    topic = dr.DeleteRecordsTopic("t", (dr.DeleteRecordsPartition(0, 1), dr.DeleteRecordsPartition(0, 9)))
    request = dr.DeleteRecordsRequest((topic,), 1_000)
    with no_room():
        answer = await client.ask(ApiKey.DELETE_RECORDS, request)
    assert [(each.error_code, each.low_watermark) for each in answer.topics[0].partitions] == [
        (ErrorCode.KAFKA_STORAGE_ERROR, -1),
        (ErrorCode.OFFSET_OUT_OF_RANGE, -1),
    ]
    answer = await client.ask(ApiKey.DELETE_RECORDS, request)
    assert (answer.topics[0].partitions[0].error_code, answer.topics[0].partitions[0].low_watermark) == (0, 1)
    assert "t 0 1\n" in (broker.data_dir / LOG_START_OFFSET_CHECKPOINT).read_text()
    assert (broker.data_dir / "t-0" / LEADER_EPOCH_CHECKPOINT).read_text().endswith("\n0 1\n")


async def test_a_transaction_whose_end_found_no_room_is_ended_by_the_next_try(
    broker: AsyncBroker, client: WireClient
) -> None:
    await broker.node.transactions.ready()
    end = await _open_transaction(client)
    with no_room():
        assert (await client.ask(ApiKey.END_TXN, end, 5)).error_code == ErrorCode.NOT_COORDINATOR
    log = broker.node.partitions.find("t", 0).log  # type: ignore[union-attr]
    assert (log.last_stable_offset, log.end_offset) == (0, 1)
    assert (await client.ask(ApiKey.END_TXN, end, 5)).error_code == 0
    assert (log.last_stable_offset, log.end_offset) == (2, 2)


async def test_a_marker_that_found_no_room_is_written_once_there_is() -> None:
    clock = ManualClock()
    async with AsyncBroker(clock=clock) as broker, WireClient(broker) as client:
        await broker.node.topics.create("t", 1, {})
        await broker.node.transactions.ready()
        end = await _open_transaction(client)
        log = broker.node.partitions.find("t", 0).log  # type: ignore[union-attr]
        with no_room(50_000):  # the decision is still written, the marker is not
            assert (await client.ask(ApiKey.END_TXN, end, 5)).error_code == 0
            assert log.last_stable_offset == 0
            clock.advance(1_000)
            broker.node.timers.fire()
            assert log.last_stable_offset == 0
        clock.advance(1_000)
        broker.node.timers.fire()
        assert log.last_stable_offset == log.end_offset == 2


async def _written(client: WireClient) -> int:
    """The error code of a record to `t`."""
    answer = await client.ask(ApiKey.PRODUCE, _produce(batch(b"x")), 9)
    code: int = answer.responses[0].partition_responses[0].error_code
    return code


async def test_behind_a_kill_nothing_is_taken_before_there_is_room_for_the_leaders_next_epoch(
    broker: AsyncBroker, client: WireClient, caplog: pytest.LogCaptureFixture
) -> None:
    assert await _written(client) == 0
    await broker.stop()
    (broker.data_dir / CLEAN_SHUTDOWN_MARKER).unlink()
    (metadata,) = broker.data_dir.glob("__cluster_metadata-0/*.log")
    with no_room(metadata.stat().st_size):
        await broker.start()
        async with WireClient(broker) as again:
            assert (await fetch(again, 0, leader_epoch=0)).high_watermark == 1
            assert await _written(again) == ErrorCode.KAFKA_STORAGE_ERROR
            named = ct.CreateTopicsRequest((ct.CreatableTopic("u", 1, 1),), 1_000)
            assert (await again.ask(ApiKey.CREATE_TOPICS, named)).topics[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert sum("leaders' next epochs cannot be written" in said for said in _told(caplog)) == 1
    async with WireClient(broker) as again:
        while await _written(again):
            pass
        assert (await fetch(again, 0, leader_epoch=0)).error_code == ErrorCode.FENCED_LEADER_EPOCH
        assert (await fetch(again, 0, leader_epoch=1)).high_watermark == 2
