"""InitProducerId v0-v6: who may write as a transactional id, and as which producer id and epoch.

Without a transactional id: a new producer id with epoch 0 (v0+). With a transactional id: the epoch goes up, which
fences an older producer. What that producer left open is aborted first; until then the answer is
CONCURRENT_TRANSACTIONS (T3). A request with producer id and epoch (v3+, KIP-360) asks for a higher epoch for itself: an
epoch that is not the caller's is refused, and a repeated request gets the same answer. When the epochs of a producer id
are used up, a new id replaces it. v6 (KIP-939): `enable_2pc` removes the timeout, if the broker allows it;
`keep_prepared_txn` is answered UNSUPPORTED_VERSION, as in Kafka 4.3. Order of checks after
`TransactionCoordinator.handleInitProducerId`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ottla.coordinator.decision import Decision, Reply
from ottla.coordinator.txn.end_txn import fence
from ottla.coordinator.txn.metadata import (
    LAST_CLIENT_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMEOUT_MS,
    TransactionMetadata,
    created,
    prepare_init,
)
from ottla.coordinator.txn.states import Input, TransactionState, outcome
from ottla.coordinator.txn.store import TransactionStore
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

_NOTHING_EXPECTED: Final = (NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


def _error(error: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=error, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH)


def idempotent_producer_id(
    request: InitProducerIdRequest, new_producer_id: Callable[[], int | None]
) -> InitProducerIdResponse:
    """The answer to a request without a transactional id, which no shard needs to see.

    Errors: INVALID_REQUEST (producer id without epoch, or the other way), COORDINATOR_LOAD_IN_PROGRESS (retry).
    """
    if not _consistent(request):
        return _error(ErrorCode.INVALID_REQUEST)
    producer_id = new_producer_id()
    if producer_id is None:
        return _error(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def _consistent(request: InitProducerIdRequest) -> bool:
    return (request.producer_id == NO_PRODUCER_ID) == (request.producer_epoch == NO_PRODUCER_EPOCH)


def init_producer_id(store: TransactionStore, token: int, request: InitProducerIdRequest, now_ms: int) -> Decision:
    """Decide a request with a transactional id; replies with an InitProducerIdResponse.

    Errors: INVALID_REQUEST, TRANSACTIONAL_ID_AUTHORIZATION_FAILED (two-phase commit is not allowed),
    UNSUPPORTED_VERSION, INVALID_TRANSACTION_TIMEOUT, PRODUCER_FENCED (fatal); CONCURRENT_TRANSACTIONS,
    COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR (retry).
    """

    def refuse(error: ErrorCode) -> tuple[Reply, ...]:
        return (Reply(token, _error(error)),)

    transactional_id = request.transactional_id
    invalid = _invalid(store, request)
    if not transactional_id or invalid != ErrorCode.NONE:
        return Decision(replies=refuse(invalid))
    if store.in_transition(transactional_id):
        return Decision(replies=refuse(ErrorCode.CONCURRENT_TRANSACTIONS))
    timeout_ms = NO_TIMEOUT_MS if request.enable_2pc else request.transaction_timeout_ms
    txn = store.get(transactional_id)
    if txn is None:
        producer_id = store.new_producer_id()
        if producer_id is None:
            return Decision(replies=refuse(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
        txn = created(transactional_id, producer_id, timeout_ms, now_ms)
    expected = (request.producer_id, request.producer_epoch)
    if expected != _NOTHING_EXPECTED and not _may_be_current(txn, *expected):
        return Decision(replies=refuse(ErrorCode.PRODUCER_FENCED))
    to = outcome(txn.state, Input.INIT)
    if to == TransactionState.PREPARE_EPOCH_FENCE:
        # No client is told this epoch: the caller comes again and gets the next one.
        return fence(store, txn, now_ms, lambda completed: refuse(ErrorCode.CONCURRENT_TRANSACTIONS), refuse)
    target = _next(store, txn, None if expected == _NOTHING_EXPECTED else request.producer_epoch, timeout_ms, now_ms)
    if isinstance(target, ErrorCode):
        return Decision(replies=refuse(target))
    answer = InitProducerIdResponse(producer_id=target.producer_id, producer_epoch=target.producer_epoch)
    return store.write((target,), replies=(Reply(token, answer),), refuse=refuse)


def _invalid(store: TransactionStore, request: InitProducerIdRequest) -> ErrorCode:
    config = store.config
    if not request.transactional_id or not _consistent(request):
        return ErrorCode.INVALID_REQUEST
    if request.enable_2pc and not config.two_phase_commit:
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if request.keep_prepared_txn:
        return ErrorCode.UNSUPPORTED_VERSION
    if not request.enable_2pc and not 0 < request.transaction_timeout_ms <= config.max_timeout_ms:
        return ErrorCode.INVALID_TRANSACTION_TIMEOUT
    return ErrorCode.NONE


def _may_be_current(txn: TransactionMetadata, producer_id: int, producer_epoch: int) -> bool:
    """Whether a producer with this id may ask for the next epoch (KIP-360); its present epoch is checked later.

    It may when the id is new here (its state has expired), when the producer id is the present one, or when it is the
    one before and its epochs are used up: the answer to the request that rotated it was lost.
    """
    return (
        txn.producer_epoch == NO_PRODUCER_EPOCH
        or producer_id == txn.producer_id
        or (producer_id == txn.previous_producer_id and producer_epoch >= LAST_CLIENT_EPOCH)
    )


def _next(
    store: TransactionStore, txn: TransactionMetadata, expected_epoch: int | None, timeout_ms: int, now_ms: int
) -> TransactionMetadata | ErrorCode:
    """The target with the next epoch, or the next producer id."""

    def target(producer_id: int, epoch: int, last_epoch: int) -> TransactionMetadata:
        return prepare_init(
            txn,
            producer_id=producer_id,
            producer_epoch=epoch,
            last_producer_epoch=last_epoch,
            timeout_ms=timeout_ms,
            now_ms=now_ms,
        )

    current = txn.producer_epoch
    if expected_epoch is not None and current not in (NO_PRODUCER_EPOCH, expected_epoch):
        if expected_epoch != txn.last_producer_epoch:
            return ErrorCode.PRODUCER_FENCED
        # This producer's epoch was raised already, and only the answer was lost.
        return target(txn.producer_id, current, txn.last_producer_epoch)
    last_epoch = NO_PRODUCER_EPOCH if expected_epoch is None else current
    if not txn.epoch_exhausted:
        return target(txn.producer_id, current + 1, last_epoch)
    producer_id = store.new_producer_id()
    return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if producer_id is None else target(producer_id, 0, last_epoch)
