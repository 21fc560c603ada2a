"""EndTxn, its markers, time-outs and fences: replies, records and effects."""

from __future__ import annotations

import pytest

from ottla.base.steps import result_of
from ottla.coordinator.decision import WriteMarkers
from ottla.coordinator.txn.metadata import created
from ottla.coordinator.txn.states import TransactionVersion
from ottla.coordinator.txn.store import MARKERS_TIMER, TIMEOUT_TIMER
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.end_txn import EndTxnResponse
from tests.coordinator.txn.requests import V0, V2, add, end, end_decision, init, init_decision, ongoing
from tests.coordinator.txn.runtime import T0, T1, U0, ShardRuntime, decoded


def answered(producer_id: int, epoch: int) -> EndTxnResponse:
    return EndTxnResponse(0, 0, producer_id, epoch)


def refused(error: ErrorCode) -> EndTxnResponse:
    return EndTxnResponse(0, error, -1, -1)


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("version", [V0, V2])
def test_t5_end_writes_prepare_then_markers_then_complete(commit: bool, version: TransactionVersion) -> None:
    runtime = ShardRuntime(coordinator_epoch=9)
    producer_id = ongoing(runtime, U0, T1, T0)
    decision = end_decision(runtime, producer_id, 0, commit=commit, version=version)
    epoch = 1 if version == V2 else 0
    assert decision.effects == (
        WriteMarkers("x", producer_id, epoch, commit, (T0, T1, U0), coordinator_epoch=9, transaction_version=version),
    )
    (prepared,) = decision.records
    txn = decoded(prepared)
    assert txn is not None
    assert (txn.producer_epoch, txn.partitions) == (epoch, frozenset({T0, T1, U0}))
    expected = answered(producer_id, 1) if version == V2 else refused(ErrorCode.NONE)
    assert runtime.carry_out(decision) == [expected]
    runtime.write_markers()
    end_name = "Commit" if commit else "Abort"
    assert runtime.states() == ["Empty", "Ongoing", f"Prepare{end_name}", f"Complete{end_name}"]
    completed = runtime.shard.get("x")
    assert completed is not None
    assert (completed.producer_epoch, completed.partitions) == (epoch, frozenset())


def test_t5_everything_waits_while_markers_are_written() -> None:
    runtime = ShardRuntime()
    producer_id = ongoing(runtime)
    end(runtime, producer_id, 0, commit=True)
    for epoch in (0, 1):
        for commit in (True, False):
            busy = refused(ErrorCode.CONCURRENT_TRANSACTIONS)
            assert end(runtime, producer_id, epoch, commit=commit) == busy
        assert add(runtime, producer_id, epoch, T0) == [ErrorCode.CONCURRENT_TRANSACTIONS]
    runtime.write_markers()
    assert add(runtime, producer_id, 1, T0) == [ErrorCode.NONE]


def test_t5_repeated_commit_is_safe_also_after_a_restart() -> None:
    runtime = ShardRuntime()
    producer_id = ongoing(runtime)
    end(runtime, producer_id, 0, commit=True)
    runtime.write_markers()
    for _ in range(2):
        assert end(runtime, producer_id, 0, commit=True) == answered(producer_id, 1)
        assert end(runtime, producer_id, 0, commit=False) == refused(ErrorCode.INVALID_TXN_STATE)
        runtime.reload()
    assert runtime.states()[-1] == "CompleteCommit"
    assert len(runtime.markers) == 1


def test_t2_late_end_cannot_touch_the_next_transaction() -> None:
    runtime = ShardRuntime()
    producer_id = ongoing(runtime)
    end(runtime, producer_id, 0, commit=True)
    runtime.write_markers()
    assert add(runtime, producer_id, 1, T0) == [ErrorCode.NONE]
    for commit in (True, False):
        assert end(runtime, producer_id, 0, commit=commit) == refused(ErrorCode.PRODUCER_FENCED)


def test_t2_producer_fenced_before_an_older_clients_transaction_stays_fenced() -> None:
    # Found by test_interleavings. Deviation: Apache Kafka 4.3 answers NONE and the successor's epoch here.
    runtime = ShardRuntime()
    producer_id = init(runtime).producer_id
    init(runtime)
    add(runtime, producer_id, 1, T0, version=V0)
    end(runtime, producer_id, 1, commit=False, version=V0)
    runtime.write_markers()
    assert end(runtime, producer_id, 0, commit=False) == refused(ErrorCode.PRODUCER_FENCED)
    assert end(runtime, producer_id, 1, commit=False, version=V0) == refused(ErrorCode.NONE)


def test_kip_890_abort_without_a_transaction_is_one_batch_and_no_marker() -> None:
    runtime = ShardRuntime()
    producer_id = init(runtime).producer_id
    decision = end_decision(runtime, producer_id, 0, commit=False)
    assert decision.effects == ()
    assert len(decision.records) == 2
    assert runtime.carry_out(decision) == [answered(producer_id, 1)]
    assert runtime.states() == ["Empty", "PrepareAbort", "CompleteAbort"]
    assert end(runtime, producer_id, 0, commit=False) == answered(producer_id, 1)


def test_kip_890_used_up_epochs_rotate_the_producer_id_at_the_end() -> None:
    runtime = ShardRuntime()
    txn = created("x", 7, 60_000, runtime.now_ms)._replace(producer_epoch=32_766, previous_producer_id=7)
    runtime.carry_out(runtime.shard.store.write((txn,)))
    add(runtime, 7, 32_766, T0)
    runtime.out_of_producer_ids = True
    assert end(runtime, 7, 32_766, commit=True) == refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    runtime.out_of_producer_ids = False
    assert end(runtime, 7, 32_766, commit=True) == answered(1000, 0)
    runtime.reload()  # the next producer id is in the prepared record
    runtime.write_markers()
    assert runtime.markers == [(T0, 7, 32_767, True)]
    assert end(runtime, 7, 32_766, commit=True) == answered(1000, 0)
    assert end(runtime, 7, 32_766, commit=False) == refused(ErrorCode.INVALID_TXN_STATE)


def test_t5_marker_that_failed_for_now_is_written_again_alone() -> None:
    runtime = ShardRuntime()
    producer_id = ongoing(runtime, T0, T1)
    end(runtime, producer_id, 0, commit=True)
    runtime.write_markers({T1: ErrorCode.NOT_LEADER_OR_FOLLOWER})
    assert runtime.states()[-1] == "PrepareCommit"
    described = result_of(runtime.shard.describe("x"))
    assert [(topic.topic, topic.partitions) for topic in described.topics] == [("t", (1,))]
    runtime.pass_time(runtime.config.retry_backoff_ms)
    assert [effect.partitions for effect in runtime.effects] == [(T1,)]
    runtime.write_markers()
    assert runtime.states()[-1] == "CompleteCommit"
    assert [partition for partition, *_ in runtime.markers] == [T0, T1]


def test_t5_partition_of_a_deleted_topic_is_dropped() -> None:
    runtime = ShardRuntime()
    producer_id = ongoing(runtime, T0, U0)
    end(runtime, producer_id, 0, commit=True)
    runtime.write_markers({U0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
    assert runtime.states()[-1] == "CompleteCommit"


@pytest.mark.parametrize("error", [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED])
def test_t13_coordinator_that_was_replaced_stops_writing_markers(error: ErrorCode) -> None:
    runtime = ShardRuntime()
    producer_id = ongoing(runtime, T0, T1)
    end(runtime, producer_id, 0, commit=True)
    runtime.write_markers({T1: error})
    assert runtime.effects == []
    assert (MARKERS_TIMER, "x") not in runtime.timers


def test_t13_late_report_of_markers_changes_nothing() -> None:
    runtime = ShardRuntime()
    producer_id = ongoing(runtime)
    end(runtime, producer_id, 0, commit=True)
    (effect,) = runtime.effects
    runtime.write_markers()
    log = list(runtime.log)
    done = dict.fromkeys(effect.partitions, ErrorCode.NONE)
    runtime.report(effect, done)
    add(runtime, producer_id, 1, T0)
    end(runtime, producer_id, 1, commit=False)
    log = list(runtime.log)
    runtime.report(effect, done)
    runtime.report(effect._replace(transactional_id="nobody"), done)
    assert runtime.log == log


def test_t6_timed_out_transaction_is_aborted_and_its_producer_fenced() -> None:
    runtime = ShardRuntime()
    producer_id = ongoing(runtime)
    runtime.pass_time(60_000)
    assert runtime.states()[-1] == "Ongoing"
    runtime.pass_time(1)
    assert runtime.states()[-1] == "PrepareAbort"
    runtime.write_markers()
    assert runtime.markers == [(T0, producer_id, 1, False)]
    # The epoch is one up: a commit that was under way is as if it were for an earlier transaction.
    assert end(runtime, producer_id, 0, commit=True) == refused(ErrorCode.INVALID_TXN_STATE)
    assert end(runtime, producer_id, 0, commit=False) == answered(producer_id, 1)
    assert add(runtime, producer_id, 0, T0) == [ErrorCode.PRODUCER_FENCED]


def test_t6_time_counts_from_the_first_partition() -> None:
    runtime = ShardRuntime()
    producer_id = ongoing(runtime)
    runtime.pass_time(59_000)
    add(runtime, producer_id, 0, T1)
    runtime.pass_time(1_001)
    assert runtime.states()[-1] == "PrepareAbort"


def test_t6_an_end_cancels_the_timer_and_one_that_fires_late_changes_nothing() -> None:
    runtime = ShardRuntime()
    producer_id = ongoing(runtime)
    assert (TIMEOUT_TIMER, "x") in runtime.timers
    end(runtime, producer_id, 0, commit=True)
    assert (TIMEOUT_TIMER, "x") not in runtime.timers
    runtime.write_markers()
    runtime.now_ms += 60_001
    assert runtime.carry_out(runtime.shard.timer((TIMEOUT_TIMER, "x"), runtime.now_ms)) == []
    assert runtime.states()[-1] == "CompleteCommit"


def test_t6_timeout_waits_for_what_is_on_its_way_and_for_producer_ids() -> None:
    runtime = ShardRuntime()
    txn = created("x", 7, 60_000, runtime.now_ms)._replace(producer_epoch=32_766)
    runtime.carry_out(runtime.shard.store.write((txn,)))
    add(runtime, 7, 32_766, T0)
    runtime.out_of_producer_ids = True
    runtime.pass_time(61_000)
    assert runtime.states()[-1] == "Ongoing"
    runtime.out_of_producer_ids = False
    on_its_way = end_decision(runtime, 7, 32_766, commit=True)
    runtime.pass_time(1_000)
    assert runtime.states()[-1] == "Ongoing"
    runtime.carry_out(on_its_way)
    assert runtime.states()[-1] == "PrepareCommit"
    assert (TIMEOUT_TIMER, "x") not in runtime.timers


def test_t5_end_of_an_id_whose_first_record_is_on_its_way_waits() -> None:
    runtime = ShardRuntime()
    assert end(runtime, 1000, 0, commit=True) == refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    init_decision(runtime)
    assert end(runtime, 1000, 0, commit=True) == refused(ErrorCode.CONCURRENT_TRANSACTIONS)
