"""Crashes and failed appends: what a new shard knows from the log, what a failed append leaves (T3, T13, P7)."""

from __future__ import annotations

import pytest

from ottla.base.errors import CorruptDataError
from ottla.base.limits import MAX_EXPIRED_IDS_PER_BATCH
from ottla.base.require import InvariantError
from ottla.coordinator.decision import LogRecord
from ottla.coordinator.txn.config import TransactionConfig
from ottla.coordinator.txn.metadata import to_record
from ottla.coordinator.txn.states import TransactionState
from ottla.coordinator.txn.store import EXPIRATION_TIMER, MARKERS_TIMER, TIMEOUT_TIMER
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.end_txn import EndTxnResponse
from ottla.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tests.coordinator.cost import steps
from tests.coordinator.txn.requests import add, add_decision, end, end_decision, init, init_decision, ongoing
from tests.coordinator.txn.runtime import T0, T1, ShardRuntime

DAY_MS = 86_400_000


@pytest.mark.parametrize("compacted", [False, True])
@pytest.mark.parametrize("commit", [True, False])
def test_t13_decided_transaction_is_finished_after_a_crash(commit: bool, compacted: bool) -> None:
    runtime = ShardRuntime()
    producer_id = ongoing(runtime, T0, T1)
    end(runtime, producer_id, 0, commit=commit)
    runtime.reload(compacted=compacted, coordinator_epoch=4)
    (effect,) = runtime.effects
    assert (effect.commit, effect.partitions, effect.coordinator_epoch) == (commit, (T0, T1), 4)
    runtime.write_markers()
    assert end(runtime, producer_id, 0, commit=commit) == EndTxnResponse(0, 0, producer_id, 1)
    assert runtime.markers == [(T0, producer_id, 1, commit), (T1, producer_id, 1, commit)]


def test_t6_open_transaction_still_times_out_after_a_crash() -> None:
    runtime = ShardRuntime()
    ongoing(runtime)
    runtime.now_ms += 40_000
    runtime.reload()
    runtime.pass_time(20_000)
    assert runtime.states()[-1] == "Ongoing"
    runtime.pass_time(1)
    assert runtime.states()[-1] == "PrepareAbort"


@pytest.mark.parametrize(("away_ms", "rest_ms"), [(90_000, 0), (86_400_000, 0), (-86_400_000, 60_001)])
def test_t6_what_the_wall_clock_says_after_a_crash_is_believed_within_bounds(away_ms: int, rest_ms: int) -> None:
    runtime = ShardRuntime()
    ongoing(runtime)
    runtime.now_ms += away_ms
    runtime.reload()
    assert runtime.timers[TIMEOUT_TIMER, "x"] == runtime.now_ms + rest_ms
    runtime.pass_time(rest_ms)
    assert runtime.states()[-1] == "PrepareAbort"


def test_t3_prepared_without_partitions_is_completed_after_a_crash() -> None:
    # Kafka writes the two steps as two batches, so its log may end between them.
    runtime = ShardRuntime()
    producer_id = init(runtime).producer_id
    runtime.carry_out(end_decision(runtime, producer_id, 0, commit=False))
    runtime.log.pop()
    runtime.reload()
    assert runtime.shard.get("x") is not None
    runtime.pass_time(0)
    assert runtime.states() == ["Empty", "PrepareAbort", "CompleteAbort"]


def test_records_of_a_later_type_are_skipped_and_corrupt_ones_are_not() -> None:
    runtime = ShardRuntime()
    runtime.shard.apply(LogRecord(b"\x00\x07later", b"anything"), runtime.now_ms)
    dead = runtime.shard
    txn_id = init(runtime)
    txn = dead.get("x")
    assert txn is not None
    assert txn_id.producer_epoch == 0
    with pytest.raises(CorruptDataError, match="state 6"):
        dead.apply(to_record(txn._replace(state=TransactionState.DEAD)), runtime.now_ms)


def test_another_record_than_the_one_decided_is_a_broken_invariant() -> None:
    runtime = ShardRuntime()
    decision = init_decision(runtime)
    other = decision.records[0]._replace(value=None)
    with pytest.raises(InvariantError):
        runtime.shard.apply(other, runtime.now_ms)


LOG_ERRORS = {
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.UNKNOWN_SERVER_ERROR: ErrorCode.UNKNOWN_SERVER_ERROR,
}


@pytest.mark.parametrize("error", LOG_ERRORS)
def test_t13_failed_append_answers_kafkas_error_and_leaves_the_state(error: ErrorCode) -> None:
    runtime = ShardRuntime()
    runtime.append_errors = [error]
    assert init(runtime) == InitProducerIdResponse(0, LOG_ERRORS[error], -1, -1)
    assert runtime.shard.get("x") is None
    producer_id = ongoing(runtime)
    before = runtime.shard.get("x")
    runtime.append_errors = [error] * 3
    assert add(runtime, producer_id, 0, T1) == [LOG_ERRORS[error]]
    assert end(runtime, producer_id, 0, commit=True) == EndTxnResponse(0, LOG_ERRORS[error], -1, -1)
    assert init(runtime) == InitProducerIdResponse(0, LOG_ERRORS[error], -1, -1)
    assert runtime.shard.get("x") == before
    assert runtime.effects == []
    assert end(runtime, producer_id, 0, commit=True) == EndTxnResponse(0, 0, producer_id, 1)


def test_t6_timeout_whose_append_failed_is_tried_again() -> None:
    runtime = ShardRuntime()
    ongoing(runtime)
    runtime.append_errors = [ErrorCode.NOT_ENOUGH_REPLICAS]
    runtime.pass_time(60_001)
    assert runtime.states()[-1] == "Ongoing"
    runtime.pass_time(runtime.config.retry_backoff_ms)
    assert runtime.states()[-1] == "PrepareAbort"


def test_t13_completion_whose_append_failed_is_tried_again_without_new_markers() -> None:
    runtime = ShardRuntime()
    producer_id = ongoing(runtime)
    end(runtime, producer_id, 0, commit=True)
    runtime.append_errors = [ErrorCode.REQUEST_TIMED_OUT]
    runtime.write_markers()
    assert runtime.states()[-1] == "PrepareCommit"
    assert (MARKERS_TIMER, "x") in runtime.timers
    runtime.pass_time(runtime.config.retry_backoff_ms)
    assert runtime.states()[-1] == "CompleteCommit"
    assert len(runtime.markers) == 1


def test_p7_idle_id_is_forgotten_by_a_tombstone() -> None:
    runtime = ShardRuntime()
    producer_id = ongoing(runtime)
    end(runtime, producer_id, 0, commit=True)
    runtime.write_markers()
    runtime.reload()
    runtime.pass_time(6 * DAY_MS)
    assert runtime.states()[-1] == "CompleteCommit"
    runtime.pass_time(DAY_MS + runtime.config.expiration_interval_ms)
    assert runtime.states()[-1] == "-"
    assert runtime.shard.get("x") is None
    runtime.reload(compacted=True)
    assert runtime.shard.get("x") is None
    # KIP-360: the producer that comes back with what it had starts anew.
    again = init(runtime, InitProducerIdRequest("x", 60_000, producer_id, 1))
    assert again == InitProducerIdResponse(0, 0, producer_id + 1, 0)


def test_p7_open_and_prepared_transactions_do_not_expire() -> None:
    config = TransactionConfig(max_timeout_ms=2**31 - 2, id_expiration_ms=1_000, expiration_interval_ms=500)
    runtime = ShardRuntime(config)
    producer_id = init(runtime, InitProducerIdRequest("x", 2**31 - 2)).producer_id
    add(runtime, producer_id, 0, T0)
    runtime.reload()
    runtime.pass_time(10_000)
    assert runtime.states()[-1] == "Ongoing"
    end(runtime, producer_id, 0, commit=False)
    runtime.pass_time(10_000)
    assert runtime.states()[-1] == "PrepareAbort"


def test_p7_expiration_goes_in_batches_and_survives_a_failed_append() -> None:
    runtime = ShardRuntime(TransactionConfig(id_expiration_ms=1_000, expiration_interval_ms=500))
    count = MAX_EXPIRED_IDS_PER_BATCH + 2
    for number in range(count):
        init(runtime, InitProducerIdRequest(f"x{number}", 60_000))
    runtime.reload()
    runtime.now_ms += 1_000
    busy = runtime.shard.init_producer_id(runtime.token(), InitProducerIdRequest("x0", 60_000), runtime.now_ms)
    runtime.append_errors = [ErrorCode.NOT_ENOUGH_REPLICAS]
    runtime.fire((EXPIRATION_TIMER,))
    assert "-" not in runtime.states()
    runtime.pass_time(runtime.config.retry_backoff_ms)
    assert runtime.states().count("-") == count - 1
    assert runtime.carry_out(busy) == [InitProducerIdResponse(0, 0, 1000, 1)]
    assert runtime.timers[(EXPIRATION_TIMER,)] > runtime.now_ms


def test_p7_every_idle_id_is_looked_at_once_however_many_batches_it_takes() -> None:
    def cost(batches: int) -> int:
        runtime = ShardRuntime(TransactionConfig(id_expiration_ms=1_000, expiration_interval_ms=500))
        for number in range(batches * MAX_EXPIRED_IDS_PER_BATCH):
            init(runtime, InitProducerIdRequest(f"x{number}", 60_000))
        runtime.reload()
        count, _ = steps(lambda: runtime.pass_time(1_000))
        assert not list(runtime.shard.store.all())
        return count

    assert cost(6) <= 3.1 * cost(2)


def test_p7_long_ids_are_forgotten_in_batches_that_the_log_takes() -> None:
    runtime = ShardRuntime(TransactionConfig(id_expiration_ms=1_000, expiration_interval_ms=500))
    for number in range(300):
        init(runtime, InitProducerIdRequest(f"{number}".zfill(10_000), 60_000))
    runtime.now_ms += 1_000
    sizes = []
    while list(runtime.shard.store.all()):
        decision = runtime.shard.timer((EXPIRATION_TIMER,), runtime.now_ms)
        sizes.append(sum(len(record.key) for record in decision.records))
        runtime.carry_out(decision)
    assert 500_000 < max(sizes) < 1_000_000


def test_t13_partition_added_but_not_durable_is_not_in_the_transaction() -> None:
    runtime = ShardRuntime()
    producer_id = ongoing(runtime)
    runtime.append_errors = [ErrorCode.NOT_ENOUGH_REPLICAS]
    decision = add_decision(runtime, producer_id, 0, T1)
    runtime.carry_out(decision)
    end(runtime, producer_id, 0, commit=True)
    assert [effect.partitions for effect in runtime.effects] == [(T0,)]
