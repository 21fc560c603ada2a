"""EndTxn v0-v5, and the ends without a request: by timeout, by fencing, and the last step after the markers.

EndTxn v5 is KIP-890's protocol: an end raises the epoch, and the answer carries it (with a new producer id when the
epochs are used up). The same request with the old epoch is known as a repetition and succeeds again. v0-v4 do not
raise the epoch.
Order of checks and answers after Kafka 4.3's `TransactionCoordinator.endTransaction` and `endTransactionWithTV1`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ottla.base.types import TopicPartition
from ottla.coordinator.decision import NOTHING, CancelTimer, Decision, Reply, SetTimer, Timer, WriteMarkers
from ottla.coordinator.txn.metadata import (
    LAST_CLIENT_EPOCH,
    NO_PRODUCER_ID,
    TransactionMetadata,
    prepare_complete,
    prepare_end,
)
from ottla.coordinator.txn.states import PREPARED_STATES, Input, TransactionState, TransactionVersion, outcome
from ottla.coordinator.txn.store import MARKERS_TIMER, TIMEOUT_TIMER, Refusal, TransactionStore, no_one
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.end_txn import EndTxnRequest, EndTxnResponse

#: Outcomes after which a marker is not needed any more: written, topic deleted, or no place for markers.
_MARKER_DONE = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)
#: Outcomes that say: another coordinator has taken over, and this one must stop. As in Kafka, this one asks for nothing
#: more then. Where every coordinator is of one node nobody can have taken over: our broker never tells these outcomes,
#: and writes the marker all the same (`broker/runtime/markers.py`).
_MARKER_FENCED = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED})


def end_txn(
    store: TransactionStore, token: int, request: EndTxnRequest, client_version: TransactionVersion, now_ms: int
) -> Decision:
    """Decide an EndTxn request; replies with an EndTxnResponse.

    `client_version` is V2 for request versions from 5 on, else V0. Producer id and epoch in the answer are set for V2
    only. Errors: INVALID_REQUEST, INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, INVALID_TXN_STATE (fatal or a misuse);
    CONCURRENT_TRANSACTIONS, COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR (retry).
    """

    def refuse(error: ErrorCode) -> tuple[Reply, ...]:
        return (Reply(token, EndTxnResponse(error_code=error)),)

    txn = store.get(request.transactional_id)
    if not request.transactional_id:
        return Decision(replies=refuse(ErrorCode.INVALID_REQUEST))
    given = _input_v2(store, txn, request) if client_version.bumps_epoch else _input_v1(store, txn, request)
    if isinstance(given, ErrorCode):
        return Decision(replies=refuse(given))
    assert txn is not None
    to = outcome(txn.state, given)
    if to == ErrorCode.NONE and client_version.bumps_epoch:
        return Decision(replies=(Reply(token, EndTxnResponse(0, 0, txn.producer_id, txn.producer_epoch)),))
    if isinstance(to, ErrorCode):
        return Decision(replies=refuse(to))

    def done(completed: TransactionMetadata) -> tuple[Reply, ...]:
        if not client_version.bumps_epoch:
            return refuse(ErrorCode.NONE)
        return (Reply(token, EndTxnResponse(0, 0, completed.producer_id, completed.producer_epoch)),)

    return _prepare(store, txn, to, client_version, now_ms, done, refuse)


def _input_v1(store: TransactionStore, txn: TransactionMetadata | None, request: EndTxnRequest) -> Input | ErrorCode:
    if txn is None or txn.producer_id != request.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if txn.producer_epoch != request.producer_epoch:
        return ErrorCode.PRODUCER_FENCED
    if store.in_transition(request.transactional_id):
        return ErrorCode.CONCURRENT_TRANSACTIONS
    return Input.COMMIT_V1 if request.committed else Input.ABORT_V1


def _input_v2(store: TransactionStore, txn: TransactionMetadata | None, request: EndTxnRequest) -> Input | ErrorCode:
    if txn is None:
        # An id whose first record is still on its way to the log counts as in transition, as in Kafka's cache.
        pending = store.is_pending(request.transactional_id)
        return ErrorCode.CONCURRENT_TRANSACTIONS if pending else ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if store.in_transition(request.transactional_id):
        return ErrorCode.CONCURRENT_TRANSACTIONS
    # Deviation: Kafka 4.3 takes every epoch that is one below the present for a repetition. After an end in the older
    # protocol, which does not raise the epoch, a fenced producer would so get its successor's epoch.
    bumped = txn.client_version.bumps_epoch
    repeated_over_rotation = (
        txn.previous_producer_id == request.producer_id
        and request.producer_epoch == LAST_CLIENT_EPOCH
        and txn.producer_epoch == 0
    )
    if txn.producer_id != request.producer_id and not repeated_over_rotation:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if bumped and (repeated_over_rotation or txn.producer_epoch == request.producer_epoch + 1):
        return Input.COMMIT_REPEATED if request.committed else Input.ABORT_REPEATED
    if txn.producer_epoch != request.producer_epoch:
        return ErrorCode.PRODUCER_FENCED
    return Input.COMMIT if request.committed else Input.ABORT


def time_out(store: TransactionStore, transactional_id: str, now_ms: int) -> Decision:
    """Abort a transaction whose time is over, and fence its producer (T6).

    The timer is set when the transaction begins, and cancelled when it ends. A timer that comes late changes nothing.
    """
    txn = store.get(transactional_id)
    if txn is None or outcome(txn.state, Input.TIME_OUT) != TransactionState.PREPARE_EPOCH_FENCE:
        return NOTHING
    if txn.limit_ms is None:
        return NOTHING
    retry = (SetTimer((TIMEOUT_TIMER, transactional_id), store.config.retry_backoff_ms),)
    if store.is_pending(transactional_id):
        return Decision(timers=retry)
    decision = fence(store, txn, now_ms, lambda completed: (), no_one, retry)
    return decision if decision.records or decision.rest is not None else Decision(timers=retry)


def fence(
    store: TransactionStore,
    txn: TransactionMetadata,
    now_ms: int,
    done: Callable[[TransactionMetadata], tuple[Reply, ...]],
    refuse: Refusal,
    retry: tuple[Timer, ...] = (),
) -> Decision:
    """Through PREPARE_EPOCH_FENCE to PREPARE_ABORT: the producer's epoch becomes invalid before its transaction ends.

    The coordinator ends the transaction in its own protocol, V2, whichever protocol the producer speaks.
    """
    to = outcome(TransactionState.PREPARE_EPOCH_FENCE, Input.ABORT)
    assert isinstance(to, TransactionState)
    return _prepare(store, txn, to, TransactionVersion.V2, now_ms, done, refuse, retry)


def _prepare(
    store: TransactionStore,
    txn: TransactionMetadata,
    to: TransactionState,
    client_version: TransactionVersion,
    now_ms: int,
    done: Callable[[TransactionMetadata], tuple[Reply, ...]],
    refuse: Refusal,
    retry: tuple[Timer, ...] = (),
) -> Decision:
    """Write PREPARE_*, and have the markers written once it is durable. `done` answers with the state at the end."""
    rotates = client_version.bumps_epoch and txn.epoch_exhausted
    next_producer_id = store.new_producer_id() if rotates else NO_PRODUCER_ID
    if next_producer_id is None:
        return Decision(replies=refuse(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
    prepared = prepare_end(txn, to, client_version, next_producer_id, now_ms)
    completed = prepare_complete(prepared, _complete_state(prepared), now_ms)
    timers = (CancelTimer((TIMEOUT_TIMER, txn.transactional_id)),) if txn.state == TransactionState.ONGOING else ()
    if not prepared.partitions:
        # There is no marker to wait for, so both steps go into one batch.
        return store.write((prepared, completed), replies=done(completed), timers=timers, refuse=refuse, retry=retry)
    effects = (markers(store, prepared, prepared.partitions),)
    replies = done(completed)
    return store.write((prepared,), replies=replies, timers=timers, effects=effects, refuse=refuse, retry=retry)


def _complete(store: TransactionStore, prepared: TransactionMetadata, now_ms: int) -> Decision:
    """Write COMPLETE_*. No client would ask for it again, so a timer repeats an append that failed."""
    retry = SetTimer((MARKERS_TIMER, prepared.transactional_id), store.config.retry_backoff_ms)
    return store.write((prepare_complete(prepared, _complete_state(prepared), now_ms),), retry=(retry,))


def _complete_state(prepared: TransactionMetadata) -> TransactionState:
    to = outcome(prepared.state, Input.MARKERS_WRITTEN)
    assert isinstance(to, TransactionState)
    return to


def markers(
    store: TransactionStore, prepared: TransactionMetadata, partitions: frozenset[TopicPartition] | set[TopicPartition]
) -> WriteMarkers:
    """The effect that ends a prepared transaction in these of its partitions."""
    return WriteMarkers(
        transactional_id=prepared.transactional_id,
        producer_id=prepared.producer_id,
        producer_epoch=prepared.producer_epoch,
        commit=prepared.state == TransactionState.PREPARE_COMMIT,
        partitions=tuple(sorted(partitions)),
        coordinator_epoch=store.coordinator_epoch,
        transaction_version=prepared.client_version,
    )


def markers_written(
    store: TransactionStore,
    transactional_id: str,
    producer_id: int,
    producer_epoch: int,
    results: Mapping[TopicPartition, ErrorCode],
    now_ms: int,
) -> Decision:
    """Take in the outcome of a transaction's markers, and complete the transaction when no marker is missing.

    A report for another epoch than the one being ended is late and changes nothing. UNKNOWN_TOPIC_OR_PARTITION means
    that the topic is gone; a leader that cannot be reached for now is any other retriable error.
    """
    txn = store.get(transactional_id)
    if txn is None or txn.state not in PREPARED_STATES or store.is_pending(transactional_id):
        return NOTHING
    if (txn.producer_id, txn.producer_epoch) != (producer_id, producer_epoch):
        return NOTHING
    outstanding = store.outstanding(transactional_id)
    outstanding.difference_update(partition for partition, error in results.items() if error in _MARKER_DONE)
    if not outstanding:
        return _complete(store, txn, now_ms)
    failed = outstanding & results.keys()
    if not failed or any(results[partition] in _MARKER_FENCED for partition in failed):
        return NOTHING
    return Decision(timers=(SetTimer((MARKERS_TIMER, transactional_id), store.config.retry_backoff_ms),))


def write_markers_again(store: TransactionStore, transactional_id: str, now_ms: int) -> Decision:
    """Do what a prepared transaction still needs: write its missing markers, or the record that completes it."""
    txn = store.get(transactional_id)
    if txn is None or txn.state not in PREPARED_STATES or store.is_pending(transactional_id):
        return NOTHING
    outstanding = store.outstanding(transactional_id)
    if not outstanding:
        return _complete(store, txn, now_ms)
    return Decision(effects=(markers(store, txn, outstanding),))
