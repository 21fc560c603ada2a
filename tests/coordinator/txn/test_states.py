"""The automaton: every (state, input) pair, in the table and through the coordinator's own doors."""

from __future__ import annotations

import pytest

from ottla.coordinator.txn.metadata import created, to_record
from ottla.coordinator.txn.states import (
    LOGGED_STATES,
    TRANSITIONS,
    Input,
    TransactionState,
    TransactionVersion,
    diagram,
    outcome,
)
from ottla.coordinator.txn.store import EXPIRATION_TIMER, TIMEOUT_TIMER
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.add_partitions_to_txn import AddPartitionsToTxnTopic, AddPartitionsToTxnTransaction
from ottla.wire.messages.end_txn import EndTxnRequest
from ottla.wire.messages.init_producer_id import InitProducerIdRequest
from tests.coordinator.txn.runtime import T0, ShardRuntime

S = TransactionState
EPOCH = 5
PAIRS = [(state, given) for state in sorted(LOGGED_STATES) for given in Input]
#: Input → (commit, epoch it is sent with, protocol).
ENDS = {
    Input.COMMIT: (True, EPOCH, TransactionVersion.V2),
    Input.ABORT: (False, EPOCH, TransactionVersion.V2),
    Input.COMMIT_REPEATED: (True, EPOCH - 1, TransactionVersion.V2),
    Input.ABORT_REPEATED: (False, EPOCH - 1, TransactionVersion.V2),
    Input.COMMIT_V1: (True, EPOCH, TransactionVersion.V0),
    Input.ABORT_V1: (False, EPOCH, TransactionVersion.V0),
}


def in_state(state: TransactionState) -> ShardRuntime:
    """A shard loaded from a log whose last word on the id `x` is `state`; markers are still to be written."""
    runtime = ShardRuntime()
    idle = state in (S.EMPTY, S.COMPLETE_ABORT, S.COMPLETE_COMMIT)
    txn = created("x", 7, 60_000, runtime.now_ms)._replace(
        state=state,
        producer_epoch=EPOCH,
        previous_producer_id=7,
        partitions=frozenset() if idle else frozenset({T0}),
        start_ms=-1 if state == S.EMPTY else runtime.now_ms,
        client_version=TransactionVersion.V2,
    )
    runtime.log.append(to_record(txn))
    runtime.reload()
    return runtime


def give(runtime: ShardRuntime, given: Input) -> ErrorCode | None:
    """Let `given` happen; the error a request was answered, or None when nobody asked."""
    token, shard = runtime.token(), runtime.shard
    if given in ENDS:
        commit, epoch, version = ENDS[given]
        decision = shard.end_txn(token, EndTxnRequest("x", 7, epoch, commit), version, runtime.now_ms)
    elif given == Input.INIT:
        decision = shard.init_producer_id(token, InitProducerIdRequest("x", 60_000), runtime.now_ms)
    elif given == Input.ADD:
        topics = (AddPartitionsToTxnTopic("t", (1,)),)
        asked = AddPartitionsToTxnTransaction("x", 7, EPOCH, topics=topics)
        decision = shard.add_partitions_to_txn(token, asked, TransactionVersion.V2, runtime.now_ms)
        (result,) = runtime.carry_out(decision)
        return ErrorCode(result.topic_results[0].results_by_partition[0].partition_error_code)  # type: ignore[attr-defined]
    else:
        give_what_no_request_brings(runtime, given)
        return None
    (response,) = runtime.carry_out(decision)
    return ErrorCode(response.error_code)  # type: ignore[attr-defined]


def give_what_no_request_brings(runtime: ShardRuntime, given: Input) -> None:
    shard = runtime.shard
    if given == Input.MARKERS_WRITTEN:
        decision = shard.markers_written("x", 7, EPOCH, {T0: ErrorCode.NONE}, runtime.now_ms)
    elif given == Input.TIME_OUT:
        decision = shard.timer((TIMEOUT_TIMER, "x"), runtime.now_ms + 60_001)
    else:
        assert given == Input.EXPIRE
        decision = shard.timer((EXPIRATION_TIMER,), runtime.now_ms + runtime.config.id_expiration_ms)
    assert runtime.carry_out(decision) == []


def visible(to: TransactionState) -> list[str]:
    """What the log shows of a way to `to`, when the transaction has partitions."""
    return {S.PREPARE_EPOCH_FENCE: ["PrepareAbort"], S.DEAD: ["-"]}.get(to, [to.kafka_name])


@pytest.mark.parametrize(("state", "given"), PAIRS, ids=lambda pair: pair.name)
def test_t4_every_state_and_input(state: TransactionState, given: Input) -> None:
    runtime = in_state(state)
    before = runtime.shard.get("x")
    error = give(runtime, given)
    to = outcome(state, given)
    if isinstance(to, ErrorCode):
        assert error in (to, None)
        assert runtime.states() == [state.kafka_name]
        assert runtime.shard.get("x") == before
        return
    wrote = runtime.states()[1:]
    if to == S.PREPARE_ABORT and state != S.ONGOING:
        assert wrote == ["PrepareAbort", "CompleteAbort"]  # no partition, so no marker to wait for
    else:
        assert wrote == visible(to)
    fenced = ErrorCode.CONCURRENT_TRANSACTIONS if to == S.PREPARE_EPOCH_FENCE else ErrorCode.NONE
    assert error in (fenced, None)


def test_t4_table_is_whole() -> None:
    assert set(TRANSITIONS) == set(TransactionState)
    for row in TRANSITIONS.values():
        assert set(row) == set(Input)


def test_t4_every_state_but_dead_can_be_left_and_every_state_reached() -> None:
    targets = {to for row in TRANSITIONS.values() for to in row.values() if isinstance(to, TransactionState)}
    assert targets == set(TransactionState)
    for state, row in TRANSITIONS.items():
        leaves = {to for to in row.values() if isinstance(to, TransactionState) and to != state}
        assert bool(leaves) == (state != S.DEAD)


def test_t4_names_are_kafkas() -> None:
    assert [state.kafka_name for state in TransactionState] == [
        *("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort"),
        *("Dead", "PrepareEpochFence"),
    ]


def test_diagram_is_drawn_from_the_table() -> None:
    drawn = diagram()
    assert "    Ongoing --> PrepareEpochFence : init, time out" in drawn.splitlines()
    assert "    PrepareCommit --> CompleteCommit : markers written" in drawn.splitlines()


def test_t4_an_id_waiting_for_its_tombstone_is_dead_to_requests() -> None:
    runtime = in_state(S.COMPLETE_COMMIT)
    late_ms = runtime.now_ms + runtime.config.id_expiration_ms
    tombstones = runtime.shard.timer((EXPIRATION_TIMER,), late_ms)
    assert [record.value for record in tombstones.records] == [None]
    for given in (Input.INIT, Input.ADD, *ENDS):
        error = give(runtime, given)
        allowed = {ErrorCode.CONCURRENT_TRANSACTIONS}
        if given in (Input.COMMIT_V1, Input.ABORT_V1):
            allowed.add(ErrorCode.PRODUCER_FENCED)
        assert error in allowed
    runtime.carry_out(tombstones)
    assert runtime.shard.get("x") is None
    assert give(runtime, Input.COMMIT) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
