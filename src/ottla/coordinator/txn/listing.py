"""DescribeTransactions v0 and ListTransactions v0-v2. They change nothing (T14)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ottla.base.patterns import PatternError, compile_pattern
from ottla.coordinator.txn.metadata import TransactionMetadata
from ottla.coordinator.txn.states import STATE_BY_KAFKA_NAME
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
    topics: dict[str, list[int]] = {}
    for partition in sorted(store.waiting(txn)):
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


class Listing:
    """ListTransactions: take all `steps`, then there is the `response`, of all filters except the pattern.

    `duration_filter` (v1+), if not negative: only transactions that run longer than this, in ms.
    """

    def __init__(self, request: list_messages.ListTransactionsRequest, now_ms: int) -> None:
        self._request = request
        self._now_ms = now_ms
        self._states = {STATE_BY_KAFKA_NAME[name] for name in request.state_filters if name in STATE_BY_KAFKA_NAME}
        self._producer_ids = frozenset(request.producer_id_filters)
        self._listed: list[list_messages.TransactionState] = []

    def steps(self, stores: Iterable[TransactionStore]) -> Iterator[None]:
        """One transaction in each. What changes meanwhile is told as it was before, or as it is then."""
        for store in stores:
            for txn in tuple(store.all()):
                if self._shows(txn):
                    state = txn.state.kafka_name
                    self._listed.append(list_messages.TransactionState(txn.transactional_id, txn.producer_id, state))
                yield

    def _shows(self, txn: TransactionMetadata) -> bool:
        longer_than_ms = self._request.duration_filter
        return (
            (not self._producer_ids or txn.producer_id in self._producer_ids)
            and (not self._request.state_filters or txn.state in self._states)
            and (longer_than_ms < 0 or self._now_ms - txn.start_ms > longer_than_ms)
        )

    @property
    def response(self) -> list_messages.ListTransactionsResponse:
        """What was found."""
        return list_messages.ListTransactionsResponse(
            unknown_state_filters=tuple(
                name for name in self._request.state_filters if name not in STATE_BY_KAFKA_NAME
            ),
            transaction_states=tuple(self._listed),
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
