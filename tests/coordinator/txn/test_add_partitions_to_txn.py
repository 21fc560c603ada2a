"""AddPartitionsToTxn, AddOffsetsToTxn, and what a produce asks: replies, records, timers."""

from __future__ import annotations

import pytest

from ottla.base.types import TopicPartition
from ottla.coordinator.decision import SetTimer
from ottla.coordinator.txn.add_partitions_to_txn import offset_commit_error, produce_error
from ottla.coordinator.txn.states import TransactionState, TransactionVersion
from ottla.coordinator.txn.store import TIMEOUT_TIMER
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from tests.coordinator.txn.requests import V0, V2, add, add_decision, end, init, init_decision, ongoing
from tests.coordinator.txn.runtime import NOW_MS, T0, T1, ShardRuntime, decoded

OFFSETS = TopicPartition("__consumer_offsets", 13)


def offsets(runtime: ShardRuntime, producer_id: int, epoch: int) -> object:
    request = AddOffsetsToTxnRequest("x", producer_id, epoch, "g")
    return runtime.answer(runtime.shard.add_offsets_to_txn(runtime.token(), request, OFFSETS, runtime.now_ms))


@pytest.mark.parametrize("version", [V0, V2])
def test_t5_first_partition_opens_the_transaction_and_its_clock(version: TransactionVersion) -> None:
    runtime = ShardRuntime()
    producer_id = init(runtime).producer_id
    decision = add_decision(runtime, producer_id, 0, T1, version=version)
    assert decision.timers == (SetTimer((TIMEOUT_TIMER, "x"), 60_001),)
    (record,) = decision.records
    txn = decoded(record)
    assert txn is not None
    assert (txn.state, txn.partitions, txn.start_ms) == (TransactionState.ONGOING, frozenset({T1}), NOW_MS)
    assert txn.client_version == version


def test_t5_more_partitions_are_one_more_record_and_known_ones_none() -> None:
    runtime = ShardRuntime()
    producer_id = ongoing(runtime)
    runtime.now_ms += 5_000
    assert add(runtime, producer_id, 0, T0, T1) == [ErrorCode.NONE, ErrorCode.NONE]
    txn = runtime.shard.get("x")
    assert txn is not None
    assert (txn.partitions, txn.start_ms, txn.last_update_ms) == (frozenset({T0, T1}), NOW_MS, NOW_MS + 5_000)
    written = len(runtime.log)
    assert add(runtime, producer_id, 0, T1, T0) == [ErrorCode.NONE, ErrorCode.NONE]
    assert len(runtime.log) == written


def test_t2_fenced_and_unknown_producers_add_nothing() -> None:
    runtime = ShardRuntime()
    assert add(runtime, 5, 0, T0) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]
    producer_id = init(runtime).producer_id
    init(runtime)
    assert add(runtime, producer_id, 0, T0, T1) == [ErrorCode.PRODUCER_FENCED] * 2
    assert add(runtime, producer_id, 2, T0) == [ErrorCode.PRODUCER_FENCED]
    assert add(runtime, producer_id + 1, 1, T0) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]
    assert runtime.states() == ["Empty", "Empty"]


def test_t5_nothing_is_added_while_a_record_is_on_its_way() -> None:
    runtime = ShardRuntime()
    producer_id = init(runtime).producer_id
    init_decision(runtime)
    assert add(runtime, producer_id, 0, T0) == [ErrorCode.CONCURRENT_TRANSACTIONS]


def test_t11_offsets_partition_is_part_of_the_transaction() -> None:
    runtime = ShardRuntime()
    assert offsets(runtime, 5, 0) == AddOffsetsToTxnResponse(0, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    producer_id = ongoing(runtime)
    assert offsets(runtime, producer_id, 1) == AddOffsetsToTxnResponse(0, ErrorCode.PRODUCER_FENCED)
    assert offsets(runtime, producer_id, 0) == AddOffsetsToTxnResponse(0, ErrorCode.NONE)
    end(runtime, producer_id, 0, commit=True)
    assert [effect.partitions for effect in runtime.effects] == [(OFFSETS, T0)]


def test_kip_890_verification_looks_at_what_is_durable() -> None:
    runtime = ShardRuntime()
    producer_id = init(runtime).producer_id
    assert add(runtime, producer_id, 0, T0, verify_only=True) == [ErrorCode.TRANSACTION_ABORTABLE]
    on_its_way = add_decision(runtime, producer_id, 0, T0, version=V0)
    assert add(runtime, producer_id, 0, T0, verify_only=True) == [ErrorCode.TRANSACTION_ABORTABLE]
    runtime.carry_out(on_its_way)
    assert add(runtime, producer_id, 0, T0, T1, verify_only=True) == [
        ErrorCode.NONE,
        ErrorCode.TRANSACTION_ABORTABLE,
    ]
    assert add(runtime, producer_id, 1, T0, verify_only=True) == [ErrorCode.PRODUCER_FENCED]
    end(runtime, producer_id, 0, commit=False, version=V0)
    assert add(runtime, producer_id, 0, T0, verify_only=True) == [ErrorCode.CONCURRENT_TRANSACTIONS]
    runtime.write_markers()
    assert add(runtime, producer_id, 0, T0, verify_only=True) == [ErrorCode.TRANSACTION_ABORTABLE]


#: What the coordinator said → what Produce v10, v11 and v12 are told.
PRODUCE_ERRORS = {
    ErrorCode.NONE: (ErrorCode.NONE,) * 3,
    ErrorCode.PRODUCER_FENCED: (ErrorCode.INVALID_PRODUCER_EPOCH,) * 3,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: (ErrorCode.INVALID_PRODUCER_ID_MAPPING,) * 3,
    ErrorCode.TRANSACTION_ABORTABLE: (
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.TRANSACTION_ABORTABLE,
    ),
    ErrorCode.CONCURRENT_TRANSACTIONS: (
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    ),
    ErrorCode.NOT_COORDINATOR: (ErrorCode.NOT_ENOUGH_REPLICAS,) * 3,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: (ErrorCode.NOT_ENOUGH_REPLICAS,) * 3,
}


@pytest.mark.parametrize("error", PRODUCE_ERRORS)
def test_kip_890_producers_of_every_age_are_told_what_they_understand(error: ErrorCode) -> None:
    told = tuple(
        produce_error(error, adds_partitions=adds, knows_abortable=knows)
        for adds, knows in ((False, False), (False, True), (True, True))
    )
    assert told == PRODUCE_ERRORS[error]


#: What the coordinator said → what TxnOffsetCommit v3, v4 and v5 are told.
OFFSET_COMMIT_ERRORS = {
    **{error: told for error, told in PRODUCE_ERRORS.items() if ErrorCode.NOT_ENOUGH_REPLICAS not in told},
    ErrorCode.CONCURRENT_TRANSACTIONS: (
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    ),
    ErrorCode.NETWORK_EXCEPTION: (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,) * 3,
    **{
        error: (error,) * 3
        for error in (
            ErrorCode.NOT_COORDINATOR,
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        )
    },
}


@pytest.mark.parametrize("error", OFFSET_COMMIT_ERRORS)
def test_kip_890_producers_that_commit_offsets_are_told_what_they_retry(error: ErrorCode) -> None:
    told = tuple(
        offset_commit_error(error, adds_partitions=adds, knows_abortable=knows)
        for adds, knows in ((False, False), (False, True), (True, True))
    )
    assert told == OFFSET_COMMIT_ERRORS[error]
