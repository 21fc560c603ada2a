"""Transactions, T1 to T15: what is written together is read together, or never."""

from __future__ import annotations

import asyncio

import pytest

from ottla import (
    Admin,
    AsyncAdmin,
    AsyncConsumer,
    AsyncProducer,
    NewTopic,
    NotHangingError,
    Producer,
    TopicPartition,
    TransactionHandle,
    TransactionOutcome,
    exactly_once,
)
from ottla.client.errors import FatalProducerError, IllegalStateError, ProducerFencedError
from ottla.coordinator.txn.states import TransactionVersion
from ottla.log.results import AbortedTransaction, Isolation
from ottla.testing import AsyncBroker, Broker
from ottla.wire.batch import parse_header
from ottla.wire.errors import ErrorCode
from ottla.wire.hashing import coordinator_partition
from tests.client.hanging import UNVERIFIED, leave_hanging
from tests.client.journeys import read_all
from tests.client.two_phase_journeys import SETTINGS
from tests.coordinator.txn.requests import V0, V2, add, end, init, ongoing
from tests.coordinator.txn.runtime import T0, T1, ShardRuntime
from tests.log.batches import NOW_MS, batch, idempotent
from tests.log.cleaner.passes import COMPACT, batches, clean, put
from tests.log.logs import append, append_in_transaction, committed_offsets, every_batch, open_log
from tests.log.logs import end as end_in_log
from tests.seeds.live import PATIENCE_S

PARTITIONS = [TopicPartition("t", 0), TopicPartition("t", 1)]


def _producer(servers: str, transactional_id: str = "x") -> AsyncProducer:
    return AsyncProducer({"bootstrap.servers": servers, "transactional.id": transactional_id})


async def _create(servers: str) -> None:
    async with AsyncAdmin({"bootstrap.servers": servers}) as admin:
        await admin.create_topics([NewTopic("t", 2)])


async def _read(servers: str, isolation: str = "read_committed") -> dict[int, list[bytes]]:
    """Everything that a reader gets of the two partitions, up to their last stable offsets."""
    found: dict[int, list[bytes]] = {0: [], 1: []}
    config = {"bootstrap.servers": servers, "auto.offset.reset": "earliest", "isolation.level": isolation}
    async with AsyncConsumer(config) as consumer, asyncio.timeout(PATIENCE_S):
        consumer.assign(PARTITIONS)
        ends = await consumer.end_offsets(PARTITIONS)
        while any([await consumer.position(tp) < ends[tp] for tp in PARTITIONS]):
            for record in await consumer.poll(0.1):
                found[record.partition].append(record.value or b"")
    return found


async def test_t1_five_calls_a_context_manager_and_what_is_said_of_a_misuse() -> None:
    async with AsyncBroker() as broker:
        servers = broker.bootstrap_servers
        await _create(servers)
        async with _producer(servers) as producer:
            with pytest.raises(IllegalStateError, match="init_transactions"):
                await producer.begin_transaction()
            await producer.init_transactions()
            with pytest.raises(IllegalStateError, match="begin_transaction"):
                await producer.commit_transaction()
            await producer.begin_transaction()
            await producer.send("t", b"by hand", partition=0)
            await producer.commit_transaction()
            async with producer.transaction():
                await producer.send("t", b"committed", partition=0)
            with pytest.raises(ZeroDivisionError):
                async with producer.transaction():
                    await producer.send("t", b"aborted", partition=0)
                    _ = 1 / 0
        assert await _read(servers) == {0: [b"by hand", b"committed"], 1: []}


async def test_t2_a_transactional_id_has_one_producer_and_the_older_one_can_write_nothing_more() -> None:
    async with AsyncBroker() as broker:
        servers = broker.bootstrap_servers
        await _create(servers)
        async with _producer(servers) as newer:
            older = _producer(servers)
            await older.init_transactions()
            await older.begin_transaction()
            await older.send("t", b"of the older", partition=0)
            await older.flush()
            await newer.init_transactions()
            with pytest.raises(ProducerFencedError):
                await older.commit_transaction()
            with pytest.raises(FatalProducerError):
                await older.begin_transaction()
            async with newer.transaction():
                await newer.send("t", b"of the newer", partition=0)
            await older.close()
        assert await _read(servers) == {0: [b"of the newer"], 1: []}


@pytest.mark.parametrize(("decided", "marked"), [(False, False), (True, True)], ids=["open", "decided"])
def test_t3_init_first_ends_what_was_left(*, decided: bool, marked: bool) -> None:
    """What is open is aborted, what is decided is completed. CONCURRENT_TRANSACTIONS until that is done."""
    coordinator = ShardRuntime()
    producer_id = ongoing(coordinator)
    if decided:
        end(coordinator, producer_id, 0, commit=True)
    assert init(coordinator).error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    coordinator.write_markers()
    assert [(tp, commit) for tp, _, _, commit in coordinator.markers] == [(T0, marked)]
    answer = init(coordinator)
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (ErrorCode.NONE, producer_id, 2)


def test_t4_a_hash_picks_the_coordinator_and_its_log_goes_through_kafkas_states() -> None:
    """Java's `String.hashCode` without its sign, modulo the 50 partitions of `__transaction_state`."""
    assert [coordinator_partition(name, 50) for name in ("x", "polygenelubricants")] == [20, 0]
    coordinator = ShardRuntime()
    producer_id = ongoing(coordinator, T0, T1)
    end(coordinator, producer_id, 0, commit=True)
    coordinator.write_markers()
    assert coordinator.states() == ["Empty", "Ongoing", "PrepareCommit", "CompleteCommit"]
    coordinator.reload()
    coordinator.pass_time(coordinator.config.id_expiration_ms + coordinator.config.expiration_interval_ms)
    assert coordinator.states()[-1] == "-", "an id that is idle for long gets a tombstone"


@pytest.mark.parametrize(("protocol", "epoch_after"), [(V0, 0), (V2, 1)], ids=["first protocol", "KIP-890"])
def test_t5_the_requests_of_a_transaction_in_either_protocol(protocol: TransactionVersion, epoch_after: int) -> None:
    """With KIP-890 each end raises the epoch, so that what comes late belongs to nothing any more."""
    coordinator = ShardRuntime()
    producer_id = init(coordinator).producer_id
    assert add(coordinator, producer_id, 0, T0, T1, version=protocol) == [ErrorCode.NONE] * 2
    assert end(coordinator, producer_id, 0, commit=True, version=protocol).error_code == ErrorCode.NONE
    coordinator.write_markers()
    assert {tp for tp, _, _, commit in coordinator.markers if commit} == {T0, T1}
    told = add(coordinator, producer_id, 0, T0, version=protocol)
    assert told == [ErrorCode.NONE if epoch_after == 0 else ErrorCode.PRODUCER_FENCED]
    assert add(coordinator, producer_id, epoch_after, T0, version=protocol) == [ErrorCode.NONE]


def test_t6_a_transaction_that_is_open_for_too_long_is_aborted() -> None:
    """After its `transaction.timeout.ms`, 60 s here; its producer is fenced."""
    coordinator = ShardRuntime()
    producer_id = ongoing(coordinator)
    coordinator.pass_time(59_000)
    assert coordinator.states()[-1] == "Ongoing"
    coordinator.pass_time(11_000)
    assert coordinator.states()[-1] == "PrepareAbort"
    coordinator.write_markers()
    assert [commit for *_, commit in coordinator.markers] == [False]
    assert add(coordinator, producer_id, 0, T1) == [ErrorCode.PRODUCER_FENCED]


@pytest.mark.parametrize(("commit", "kind"), [(False, 0), (True, 1)], ids=["abort", "commit"])
def test_t7_the_bytes_of_a_transaction_on_disk(*, commit: bool, kind: int) -> None:
    """Bit 4 of the attributes: of a transaction; bit 5: a control batch, whose one record says how it ended."""
    log = open_log()
    append_in_transaction(log, 0)
    end_in_log(log, commit=commit, coordinator_epoch=3)
    data, marker = every_batch(log)
    assert parse_header(data).attributes == 0x10
    assert parse_header(marker).attributes == 0x30
    # a record of 16 bytes: attributes, time and offset delta; a key of 4: version 0, type; a value of 6: version 0,
    # the coordinator's epoch; no headers
    assert marker[61:] == bytes([32, 0, 0, 0, 8, 0, 0, 0, kind, 12, 0, 0, 0, 0, 0, 3, 0])


def test_t8_committed_reads_stop_at_the_first_open_transaction() -> None:
    """The last stable offset; a fetch brings the aborted transactions from the index beside the segment."""
    log = open_log()
    append_in_transaction(log, 0, 2, producer_id=1)
    append_in_transaction(log, 0, 1, producer_id=2)
    end_in_log(log, commit=False, producer_id=2)
    assert (log.last_stable_offset, log.end_offset) == (0, 4)
    assert log.read(0, 10_000, isolation=Isolation.READ_COMMITTED).size_bytes == 0
    end_in_log(log, commit=True, producer_id=1)
    assert log.last_stable_offset == log.end_offset == 5
    assert log.read(0, 10_000, isolation=Isolation.READ_COMMITTED).aborted == (AbortedTransaction(2, 2),)


async def test_t9_readers_of_committed_records_see_no_aborted_ones_and_no_markers() -> None:
    """Their position moves over both. Readers of everything see aborted records, and no markers."""
    async with AsyncBroker() as broker:
        servers = broker.bootstrap_servers
        await _create(servers)
        async with _producer(servers) as producer:
            await producer.init_transactions()
            for value in (b"0", b"1", b"2", b"3"):
                await producer.begin_transaction()
                await producer.send("t", value, partition=0)
                await producer.flush()
                await (producer.commit_transaction() if value in b"02" else producer.abort_transaction())
        assert await _read(servers) == {0: [b"0", b"2"], 1: []}
        assert await _read(servers, "read_uncommitted") == {0: [b"0", b"1", b"2", b"3"], 1: []}


def test_t10_the_cleaner_removes_aborted_records_and_in_time_markers_and_tombstones() -> None:
    log = open_log(config=COMPACT)
    put(log, b"a", b"old")
    append_in_transaction(log, 0, 2)
    aborted = end_in_log(log, commit=False).base_offset
    committed = append_in_transaction(log, 2).base_offset
    marker = end_in_log(log, commit=True).base_offset
    tombstone = put(log, b"a", None)
    expected = committed_offsets(log)
    log.roll(NOW_MS)
    assert clean(log)
    left = [header.base_offset for _, header in batches(log)]
    assert left == [aborted, committed, marker, tombstone]
    assert committed_offsets(log) == [offset for offset in expected if offset in (committed, tombstone)]
    retention_ms = COMPACT.delete_retention_ms
    # the tombstone's time runs from the first pass; the marker's from the second, which finds no record before it
    for at_ms, first in ((retention_ms - 1, aborted), (retention_ms, aborted), (2 * retention_ms - 1, committed)):
        last = put(log, b"b", b"%d" % at_ms)
        log.roll(NOW_MS)
        assert clean(log, NOW_MS + at_ms)
        offsets = [header.base_offset for _, header in batches(log)]
        assert offsets[0] == first
        assert (tombstone in offsets) == (at_ms < retention_ms)
    # a commit's marker stays with its records, and the producer's sequence with them
    assert offsets == [committed, marker, last]
    assert append_in_transaction(log, 3).error is ErrorCode.NONE


async def test_t11_offsets_are_committed_with_the_output_and_never_by_a_member_that_was_fenced() -> None:
    """It is expelled in the middle of its second batch: the batch is not committed, and done again."""
    async with AsyncBroker() as broker:
        servers = {"bootstrap.servers": broker.bootstrap_servers}
        async with AsyncAdmin(servers) as admin, AsyncProducer(servers) as producer:
            await admin.create_topics([NewTopic("in", 1), NewTopic("t", 2)])
            for number in range(6):
                await producer.send("in", b"%d" % number)
            await producer.flush()
            config = {**servers, "group.id": "g", "max.poll.records": 2}
            seen: list[list[bytes]] = []
            async with exactly_once("in", "t", "x", config, until_end=True) as work, asyncio.timeout(PATIENCE_S):
                async for batch in work:
                    seen.append([record.value for record in batch])
                    for value in seen[-1]:
                        await batch.send(value, partition=0)
                    await batch.flush()
                    if len(seen) == 2:
                        committed = await admin.list_group_offsets("g")
                        assert {tp: each.offset for tp, each in committed.items()} == {TopicPartition("in", 0): 2}
                        await admin.remove_members("g")
            assert seen[1] == seen[2] == [b"2", b"3"]
            assert (await admin.list_group_offsets("g"))[TopicPartition("in", 0)].offset == 6
        assert (await _read(broker.bootstrap_servers))[0] == [b"%d" % number for number in range(6)]


def test_t12_transactions_and_plain_producers_share_a_partition() -> None:
    log = open_log()
    append_in_transaction(log, 0, producer_id=1)
    append(log, idempotent(0, producer_id=2))
    append_in_transaction(log, 0, producer_id=3)
    append(log, batch())
    append_in_transaction(log, 1, producer_id=1)
    end_in_log(log, commit=False, producer_id=1)
    end_in_log(log, commit=True, producer_id=3)
    assert committed_offsets(log) == [1, 2, 3]


async def test_t13_a_transaction_is_whole_or_absent_after_kill_9() -> None:
    """One is committed, one is being committed by nobody: the broker dies with it, and so does the producer."""
    with Broker() as broker:
        servers = broker.bootstrap_servers
        await _create(servers)
        producer = _producer(servers)
        await producer.init_transactions()
        for number in range(2):
            await producer.begin_transaction()
            for partition in (0, 1):
                await producer.send("t", b"%d" % number, partition=partition)
            await producer.flush()
            if number == 0:
                await producer.commit_transaction()
                broker.kill()
                broker.restart()
        broker.kill()
        broker.restart()
        async with _producer(servers) as following:
            await following.init_transactions()
            assert await _read(servers) == {0: [b"0"], 1: [b"0"]}
        with pytest.raises(ProducerFencedError):
            await producer.commit_transaction()
        await producer.close()
        assert await _read(servers) == {0: [b"0"], 1: [b"0"]}


def test_t14_transactions_are_listed_described_and_ended_by_hand() -> None:
    """One that hangs holds the last stable offset before one whose producer has died without a word."""
    tp = PARTITIONS[0]
    with Broker(UNVERIFIED) as broker:
        servers = {"bootstrap.servers": broker.bootstrap_servers}
        with Admin(servers) as admin:
            admin.create_topics([NewTopic("t", 1)])
            hanging = leave_hanging(broker.bootstrap_servers, tp, b"nobody's")
            with Producer({**servers, "transactional.id": "died"}) as producer:
                producer.init_transactions()
                producer.begin_transaction()
                producer.send("t", b"half").result(30)
                producer.detach_transaction()
            with Producer(servers) as plain:
                plain.send("t", b"waits").result(30)

            assert [(each.transactional_id, each.state) for each in admin.list_transactions(states=["Ongoing"])] == [
                ("died", "Ongoing")
            ]
            assert admin.describe_transactions(["died"])["died"].partitions == {tp}
            hold = admin.who_holds([tp])[tp]
            assert (hold.last_stable_offset, hold.waiting_offsets) == (0, 3)
            assert [(each.transactional_id, each.is_hanging) for each in hold.transactions] == [
                (None, True),
                ("died", False),
            ]
            assert admin.find_hanging_transactions() == [hold.holder]
            with pytest.raises(NotHangingError, match="is not hanging: its coordinator has it as died, Ongoing"):
                admin.end_hanging_transaction(tp, *hold.transactions[1][2:4])
            admin.end_hanging_transaction(tp, *hanging)
            assert admin.who_holds([tp])[tp].last_stable_offset == 1
            admin.fence_producers(["died"])
            assert admin.who_holds([tp])[tp].waiting_offsets == 0
        assert [record.value for record in read_all(broker.bootstrap_servers, "t")] == [b"waits"]


def test_t15_a_prepared_transaction_waits_for_its_decision_over_a_kill_of_the_broker_and_every_time_out() -> None:
    with Broker(SETTINGS) as broker:
        servers = {"bootstrap.servers": broker.bootstrap_servers}
        two_phase = {**servers, "transactional.id": "x", "transaction.two.phase.commit.enable": True}
        with Producer(two_phase) as producer:
            producer.init_transactions()
            producer.begin_transaction()
            producer.send("t", b"decided")
            written_elsewhere = str(producer.prepare_transaction())
        broker.kill()
        broker.restart()
        broker.clock.advance(7 * 24 * 3_600_000)
        assert read_all(broker.bootstrap_servers, "t") == []
        with Admin(servers) as admin:
            handle = TransactionHandle.parse(written_elsewhere)
            assert admin.end_transaction(handle, commit=True) is TransactionOutcome.ENDED
        assert [record.value for record in read_all(broker.bootstrap_servers, "t")] == [b"decided"]
