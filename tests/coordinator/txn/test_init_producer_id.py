"""InitProducerId: replies and the exact records."""

from __future__ import annotations

import pytest

from ottla.coordinator.txn.config import TransactionConfig
from ottla.coordinator.txn.init_producer_id import idempotent_producer_id
from ottla.coordinator.txn.metadata import NO_TIMEOUT_MS, TransactionMetadata, created
from ottla.coordinator.txn.states import TransactionState, TransactionVersion
from ottla.coordinator.txn.store import TIMEOUT_TIMER
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tests.coordinator.txn.requests import add, end, init, init_decision, ongoing
from tests.coordinator.txn.runtime import NOW_MS, T0, ShardRuntime, decoded


def refused(error: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=error, producer_id=-1, producer_epoch=-1)


def test_p2_without_a_transactional_id_a_fresh_producer_id() -> None:
    request = InitProducerIdRequest(None, 60_000)
    assert idempotent_producer_id(request, lambda: 42) == InitProducerIdResponse(0, 0, 42, 0)
    late = idempotent_producer_id(request, lambda: None)
    assert late == refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    half = idempotent_producer_id(InitProducerIdRequest(None, 60_000, 5, -1), lambda: 42)
    assert half == refused(ErrorCode.INVALID_REQUEST)


def test_t2_first_init_writes_empty_with_epoch_0() -> None:
    runtime = ShardRuntime()
    assert init(runtime) == InitProducerIdResponse(0, 0, 1000, 0)
    (record,) = runtime.log
    assert decoded(record) == TransactionMetadata(
        transactional_id="x",
        producer_id=1000,
        previous_producer_id=1000,
        next_producer_id=-1,
        producer_epoch=0,
        last_producer_epoch=-1,
        timeout_ms=60_000,
        state=TransactionState.EMPTY,
        partitions=frozenset(),
        start_ms=-1,
        last_update_ms=NOW_MS,
        client_version=TransactionVersion.V0,
    )


def test_t2_every_init_raises_the_epoch_and_takes_the_new_timeout() -> None:
    runtime = ShardRuntime()
    init(runtime)
    assert init(runtime, InitProducerIdRequest("x", 30_000)) == InitProducerIdResponse(0, 0, 1000, 1)
    txn = runtime.shard.get("x")
    assert txn is not None
    assert txn.timeout_ms == 30_000


def test_t3_init_over_an_open_transaction_aborts_it_first() -> None:
    runtime = ShardRuntime()
    producer_id = ongoing(runtime)
    assert (TIMEOUT_TIMER, "x") in runtime.timers
    assert init(runtime) == refused(ErrorCode.CONCURRENT_TRANSACTIONS)
    assert runtime.states() == ["Empty", "Ongoing", "PrepareAbort"]
    assert (TIMEOUT_TIMER, "x") not in runtime.timers
    assert init(runtime) == refused(ErrorCode.CONCURRENT_TRANSACTIONS)
    runtime.write_markers()
    assert runtime.markers == [(T0, producer_id, 1, False)]
    assert init(runtime) == InitProducerIdResponse(0, 0, producer_id, 2)
    assert runtime.states() == ["Empty", "Ongoing", "PrepareAbort", "CompleteAbort", "Empty"]


def test_t3_init_waits_for_a_commit_that_was_decided() -> None:
    runtime = ShardRuntime()
    producer_id = ongoing(runtime)
    end(runtime, producer_id, 0, commit=True)
    assert init(runtime) == refused(ErrorCode.CONCURRENT_TRANSACTIONS)
    runtime.write_markers()
    assert init(runtime) == InitProducerIdResponse(0, 0, producer_id, 2)
    assert runtime.markers == [(T0, producer_id, 1, True)]


def test_kip_360_retry_of_a_bump_is_answered_again_until_a_restart() -> None:
    runtime = ShardRuntime()
    producer_id = init(runtime).producer_id
    bump = InitProducerIdRequest("x", 60_000, producer_id, 0)
    assert init(runtime, bump) == InitProducerIdResponse(0, 0, producer_id, 1)
    assert init(runtime, bump) == InitProducerIdResponse(0, 0, producer_id, 1)
    runtime.reload()
    # The epoch before is not in Kafka's record, so nobody can tell a retry from an older producer any more.
    assert init(runtime, bump) == refused(ErrorCode.PRODUCER_FENCED)


def test_kip_360_retry_at_the_last_epoch_is_answered_again() -> None:
    # Deviation: Apache Kafka 4.3 says UNKNOWN_SERVER_ERROR here, because the epochs are used up.
    runtime = ShardRuntime()
    exhausted(runtime, 32_765)
    bump = InitProducerIdRequest("x", 60_000, 7, 32_765)
    assert init(runtime, bump) == InitProducerIdResponse(0, 0, 7, 32_766)
    assert init(runtime, bump) == InitProducerIdResponse(0, 0, 7, 32_766)


def exhausted(runtime: ShardRuntime, epoch: int) -> None:
    """A log that says producer id 7 is at `epoch`."""
    txn = created("x", 7, 60_000, runtime.now_ms)._replace(producer_epoch=epoch, previous_producer_id=7)
    runtime.carry_out(runtime.shard.store.write((txn,)))


def test_t2_used_up_epochs_rotate_the_producer_id() -> None:
    runtime = ShardRuntime()
    exhausted(runtime, 32_766)
    runtime.out_of_producer_ids = True
    assert init(runtime) == refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    runtime.out_of_producer_ids = False
    assert init(runtime) == InitProducerIdResponse(0, 0, 1000, 0)
    txn = runtime.shard.get("x")
    assert txn is not None
    assert txn.previous_producer_id == 7


def test_p2_new_id_waits_for_a_durable_block() -> None:
    runtime = ShardRuntime()
    runtime.out_of_producer_ids = True
    assert init(runtime) == refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert runtime.log == []


def test_t3_two_first_inits_at_once_do_not_share_an_epoch() -> None:
    runtime = ShardRuntime()
    first = init_decision(runtime)
    assert init(runtime) == refused(ErrorCode.CONCURRENT_TRANSACTIONS)
    assert runtime.carry_out(first) == [InitProducerIdResponse(0, 0, 1000, 0)]


@pytest.mark.parametrize("two_phase_commit", [False, True])
def test_kip_939_two_phase_commit_only_where_it_is_enabled(two_phase_commit: bool) -> None:
    runtime = ShardRuntime(TransactionConfig(two_phase_commit=two_phase_commit))
    response = init(runtime, InitProducerIdRequest("x", 60_000, enable_2pc=True))
    if not two_phase_commit:
        assert response == refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        return
    assert response == InitProducerIdResponse(0, 0, 1000, 0)
    add(runtime, 1000, 0, T0)
    txn = runtime.shard.get("x")
    assert txn is not None
    assert txn.timeout_ms == NO_TIMEOUT_MS
    assert (TIMEOUT_TIMER, "x") not in runtime.timers
    runtime.reload()
    assert (TIMEOUT_TIMER, "x") not in runtime.timers


def test_kip_939_keep_prepared_is_answered_as_kafka_does() -> None:
    runtime = ShardRuntime(TransactionConfig(two_phase_commit=True))
    response = init(runtime, InitProducerIdRequest("x", 60_000, enable_2pc=True, keep_prepared_txn=True))
    assert response == refused(ErrorCode.UNSUPPORTED_VERSION)


@pytest.mark.parametrize("timeout_ms", [-1, 0, 5_001])
def test_t6_timeout_beyond_the_brokers_limit_is_refused(timeout_ms: int) -> None:
    runtime = ShardRuntime(TransactionConfig(max_timeout_ms=5_000))
    request = InitProducerIdRequest("x", timeout_ms)
    assert init(runtime, request) == refused(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
    assert init(runtime, InitProducerIdRequest("", 5_000)) == refused(ErrorCode.INVALID_REQUEST)
    assert runtime.log == []
