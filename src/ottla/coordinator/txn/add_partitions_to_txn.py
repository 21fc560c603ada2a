"""AddPartitionsToTxn v0-v5, AddOffsetsToTxn v0-v4, and the same question asked by a produce (KIP-890).

A partition joins a transaction before its first record is written, so that the end knows where markers are needed.
Older clients add it themselves, and the broker that takes the records verifies that (`verify_only`). In KIP-890's
protocol (Produce v12, TxnOffsetCommit v5) the broker that takes the records adds the partition.
Order of checks after Kafka 4.3's `handleAddPartitionsToTransaction` and `handleVerifyPartitionsInTransaction`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator

from ottla.base.limits import MAX_INLINE_ADDED
from ottla.base.types import TopicPartition
from ottla.coordinator.decision import Decision, Reply, SetTimer, in_steps
from ottla.coordinator.txn.metadata import TransactionMetadata, prepare_add_partitions
from ottla.coordinator.txn.states import PREPARED_STATES, Input, TransactionState, TransactionVersion, outcome
from ottla.coordinator.txn.store import TIMEOUT_TIMER, TransactionStore
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from ottla.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)

_RETRIED_AS_NOT_ENOUGH_REPLICAS = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


def add_partitions_to_txn(
    store: TransactionStore,
    token: int,
    transaction: AddPartitionsToTxnTransaction,
    client_version: TransactionVersion,
    now_ms: int,
) -> Decision:
    """Add partitions to one transaction, or verify them; replies with an AddPartitionsToTxnResult.

    A handler of v0-v3, or of a produce, makes an AddPartitionsToTxnTransaction of what it has. `client_version` is V2
    when a broker asks for a client of KIP-890's protocol (AddPartitionsToTxn v5, Produce v12), else V0. Adding gives
    every partition the same error: INVALID_REQUEST, INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED;
    CONCURRENT_TRANSACTIONS and the coordinator errors (retry). Verifying may also say TRANSACTION_ABORTABLE.
    """

    def answer(error: ErrorCode) -> AddPartitionsToTxnResult:
        return _result(transaction, error)

    if transaction.verify_only:
        return in_steps(_verified(store, token, transaction))

    def named() -> frozenset[TopicPartition]:
        return frozenset(
            TopicPartition(topic.name, partition) for topic in transaction.topics for partition in topic.partitions
        )

    def steps() -> Generator[None, None, Decision]:
        yield
        partitions = named()
        yield
        return _add(store, token, transaction, partitions, client_version, now_ms, answer)

    if sum(len(topic.partitions) for topic in transaction.topics) > MAX_INLINE_ADDED:
        return in_steps(steps())
    return _add(store, token, transaction, named(), client_version, now_ms, answer)


def add_offsets_to_txn(
    store: TransactionStore, token: int, request: AddOffsetsToTxnRequest, offsets: TopicPartition, now_ms: int
) -> Decision:
    """Add the group's partition of `__consumer_offsets`; replies with an AddOffsetsToTxnResponse.

    Errors as in `add_partitions_to_txn`. Only clients from before KIP-890's protocol send this.
    """
    transaction = AddPartitionsToTxnTransaction(request.transactional_id, request.producer_id, request.producer_epoch)

    def answer(error: ErrorCode) -> AddOffsetsToTxnResponse:
        return AddOffsetsToTxnResponse(error_code=error)

    return _add(store, token, transaction, frozenset({offsets}), TransactionVersion.V0, now_ms, answer)


def _add(
    store: TransactionStore,
    token: int,
    transaction: AddPartitionsToTxnTransaction,
    partitions: frozenset[TopicPartition],
    client_version: TransactionVersion,
    now_ms: int,
    answer: Callable[[ErrorCode], object],
) -> Decision:
    def refuse(error: ErrorCode) -> tuple[Reply, ...]:
        return (Reply(token, answer(error)),)

    transactional_id = transaction.transactional_id
    txn = store.get(transactional_id)
    if not transactional_id:
        return Decision(replies=refuse(ErrorCode.INVALID_REQUEST))
    if store.in_transition(transactional_id):
        return Decision(replies=refuse(ErrorCode.CONCURRENT_TRANSACTIONS))
    error = _not_the_producer(txn, transaction)
    if txn is None or error != ErrorCode.NONE:
        return Decision(replies=refuse(error))
    if outcome(txn.state, Input.ADD) != TransactionState.ONGOING:
        return Decision(replies=refuse(ErrorCode.CONCURRENT_TRANSACTIONS))
    if txn.state == TransactionState.ONGOING and partitions <= txn.partitions:
        return Decision(replies=refuse(ErrorCode.NONE))
    target = prepare_add_partitions(txn, partitions, client_version, now_ms)
    timers: tuple[SetTimer, ...] = ()
    if txn.state != TransactionState.ONGOING and target.limit_ms is not None:
        timers = (SetTimer((TIMEOUT_TIMER, transactional_id), target.limit_ms),)
    return store.write((target,), replies=refuse(ErrorCode.NONE), timers=timers, refuse=refuse)


def _not_the_producer(txn: TransactionMetadata | None, transaction: AddPartitionsToTxnTransaction) -> ErrorCode:
    if txn is None or txn.producer_id != transaction.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if txn.producer_epoch != transaction.producer_epoch:
        return ErrorCode.PRODUCER_FENCED
    return ErrorCode.NONE


def _verified(
    store: TransactionStore, token: int, transaction: AddPartitionsToTxnTransaction
) -> Generator[None, None, Decision]:
    return Decision(replies=(Reply(token, (yield from _verify(store, transaction))),))


def _verify(
    store: TransactionStore, transaction: AddPartitionsToTxnTransaction
) -> Generator[None, None, AddPartitionsToTxnResult]:
    """Which partitions are in the transaction. Only durable state counts, and no record that is on its way."""
    txn = store.get(transaction.transactional_id)
    error = _not_the_producer(txn, transaction) if transaction.transactional_id else ErrorCode.INVALID_REQUEST
    if txn is not None and error == ErrorCode.NONE and txn.state in PREPARED_STATES:
        error = ErrorCode.CONCURRENT_TRANSACTIONS
    if txn is None or error != ErrorCode.NONE:
        return _result(transaction, error)
    return (yield from _result_steps(transaction, ErrorCode.TRANSACTION_ABORTABLE, txn.partitions))


def _result(transaction: AddPartitionsToTxnTransaction, error: ErrorCode) -> AddPartitionsToTxnResult:
    """`error` for all partitions. Topics with the same numbers are told the same, and there may be thousands."""
    same: dict[tuple[int, ...], tuple[AddPartitionsToTxnPartitionResult, ...]] = {}
    for topic in transaction.topics:
        if topic.partitions not in same:
            told = tuple(AddPartitionsToTxnPartitionResult(each, error) for each in topic.partitions)
            same[topic.partitions] = told
    topics = tuple(AddPartitionsToTxnTopicResult(topic.name, same[topic.partitions]) for topic in transaction.topics)
    return AddPartitionsToTxnResult(transaction.transactional_id, topics)


def _result_steps(
    transaction: AddPartitionsToTxnTransaction, error: ErrorCode, good: Collection[TopicPartition]
) -> Generator[None, None, AddPartitionsToTxnResult]:
    """`error` for all partitions but those that are `good`; in steps, of very many topics."""
    topics: list[AddPartitionsToTxnTopicResult] = []
    for number, (name, partitions) in enumerate(transaction.topics):
        if number and number % MAX_INLINE_ADDED == 0:
            yield
        told = tuple(
            AddPartitionsToTxnPartitionResult(each, ErrorCode.NONE if (name, each) in good else error)
            for each in partitions
        )
        topics.append(AddPartitionsToTxnTopicResult(name, told))
    return AddPartitionsToTxnResult(transaction.transactional_id, tuple(topics))


def produce_error(error: ErrorCode, *, adds_partitions: bool, knows_abortable: bool) -> ErrorCode:
    """The error for a Produce whose partition could not be added to its transaction, or is not in it.

    `adds_partitions`: Produce v12+, which retries CONCURRENT_TRANSACTIONS itself. `knows_abortable`: Produce v11+,
    which knows TRANSACTION_ABORTABLE. Older clients retry NOT_ENOUGH_REPLICAS without looking for another leader. After
    Kafka's `AddPartitionsToTxnHandler` and `ReplicaManager.handleProduceAppend`, which also ask again for a while
    before they answer CONCURRENT_TRANSACTIONS.
    """
    if error == ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error == ErrorCode.TRANSACTION_ABORTABLE and not knows_abortable:
        return ErrorCode.INVALID_TXN_STATE
    if error == ErrorCode.CONCURRENT_TRANSACTIONS and adds_partitions:
        return error
    if error == ErrorCode.CONCURRENT_TRANSACTIONS or error in _RETRIED_AS_NOT_ENOUGH_REPLICAS:
        return ErrorCode.NOT_ENOUGH_REPLICAS
    return error


def offset_commit_error(error: ErrorCode, *, adds_partitions: bool, knows_abortable: bool) -> ErrorCode:
    """The same for a TxnOffsetCommit, of v5+ and of v4+.

    NOT_ENOUGH_REPLICAS would end such a producer. What it may retry is named as it is (Apache Kafka's
    `CoordinatorOperationExceptionHelper`), or COORDINATOR_LOAD_IN_PROGRESS, which every client retries.
    """
    if error == ErrorCode.NETWORK_EXCEPTION or (error == ErrorCode.CONCURRENT_TRANSACTIONS and not adds_partitions):
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    if error in _RETRIED_AS_NOT_ENOUGH_REPLICAS:
        return error
    return produce_error(error, adds_partitions=adds_partitions, knows_abortable=knows_abortable)
