"""DescribeTransactions v0 and ListTransactions v0-v2. They change nothing (T14)."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.base.patterns import PatternError, compile_pattern
from ottla.coordinator.txn.metadata import TransactionMetadata
from ottla.coordinator.txn.states import PREPARED_STATES, STATE_BY_KAFKA_NAME
from ottla.coordinator.txn.store import TransactionStore
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import describe_transactions as describe_messages
from ottla.wire.messages import list_transactions as list_messages


def describe_transaction(store: TransactionStore, transactional_id: str) -> describe_messages.TransactionState:
    """One transactional id as DescribeTransactions shows it.

    While markers are written, the partitions are those whose marker is still outstanding, as in Kafka: they hold back
    the LSO. Errors: INVALID_REQUEST, TRANSACTIONAL_ID_NOT_FOUND.
    """
    if not transactional_id:
        return describe_messages.TransactionState(ErrorCode.INVALID_REQUEST, transactional_id)
    txn = store.get(transactional_id)
    if txn is None:
        return describe_messages.TransactionState(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, transactional_id)
    partitions = store.outstanding(transactional_id) if txn.state in PREPARED_STATES else txn.partitions
    topics: dict[str, list[int]] = {}
    for partition in sorted(partitions):
        topics.setdefault(partition.topic, []).append(partition.partition)
    return describe_messages.TransactionState(
        error_code=ErrorCode.NONE,
        transactional_id=transactional_id,
        transaction_state=txn.state.kafka_name,
        transaction_timeout_ms=txn.timeout_ms,
        transaction_start_time_ms=txn.start_ms,
        producer_id=txn.producer_id,
        producer_epoch=txn.producer_epoch,
        topics=tuple(describe_messages.TopicData(topic, tuple(ids)) for topic, ids in topics.items()),
    )


def list_transactions(
    stores: Iterable[TransactionStore], request: list_messages.ListTransactionsRequest, now_ms: int
) -> list_messages.ListTransactionsResponse:
    """The transactions of all shards of this broker that pass every filter except the pattern (`only_matching`).

    `duration_filter` (v1+), if not negative: only transactions that run longer than this, in ms.
    """
    unknown = tuple(name for name in request.state_filters if name not in STATE_BY_KAFKA_NAME)
    states = {STATE_BY_KAFKA_NAME[name] for name in request.state_filters if name in STATE_BY_KAFKA_NAME}
    producer_ids = frozenset(request.producer_id_filters)

    def shown(txn: TransactionMetadata) -> bool:
        return (
            (not producer_ids or txn.producer_id in producer_ids)
            and (not request.state_filters or txn.state in states)
            and (request.duration_filter < 0 or now_ms - txn.start_ms > request.duration_filter)
        )

    return list_messages.ListTransactionsResponse(
        unknown_state_filters=unknown,
        transaction_states=tuple(
            list_messages.TransactionState(txn.transactional_id, txn.producer_id, txn.state.kafka_name)
            for store in stores
            for txn in store.all()
            if shown(txn)
        ),
    )


def only_matching(
    pattern: str | None, listed: list_messages.ListTransactionsResponse
) -> list_messages.ListTransactionsResponse:
    """`listed` without the ids that the regular expression (RE2; v2+) does not match as a whole.

    INVALID_REGULAR_EXPRESSION when it is none, or too large. It works on values alone, so that it may run in another
    thread: with a slow pattern each id costs milliseconds.
    """
    if not pattern:
        return listed
    try:
        compiled = compile_pattern(pattern)
    except PatternError:
        return list_messages.ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
    matching = tuple(each for each in listed.transaction_states if compiled.matches(each.transactional_id))
    return listed._replace(transaction_states=matching)
