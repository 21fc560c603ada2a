"""DescribeTransactions v0 and ListTransactions v0-v2. They change nothing (T14)."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator

from ottla.base.limits import MAX_INLINE_ADDED
from ottla.base.patterns import Pattern, PatternError, compile_pattern
from ottla.base.steps import Pace
from ottla.coordinator.txn.metadata import TransactionMetadata
from ottla.coordinator.txn.states import STATE_BY_KAFKA_NAME
from ottla.coordinator.txn.store import TransactionStore
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import describe_transactions as describe_messages
from ottla.wire.messages import list_transactions as list_messages


def describe_transaction(
    store: TransactionStore, transactional_id: str
) -> Generator[None, None, describe_messages.TransactionState]:
    """One transactional id as DescribeTransactions shows it; in steps, with very many partitions as they were at first.

    While markers are written, the partitions are those whose marker is still outstanding, as in Kafka: they hold back
    the LSO. Errors: INVALID_REQUEST, TRANSACTIONAL_ID_NOT_FOUND.
    """
    if not transactional_id:
        return describe_messages.TransactionState(ErrorCode.INVALID_REQUEST, transactional_id)
    txn = store.get(transactional_id)
    if txn is None:
        return describe_messages.TransactionState(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, transactional_id)
    topics: dict[str, list[int]] = {}
    pace = Pace(MAX_INLINE_ADDED)
    waiting = sorted(store.waiting(txn))
    if pace.is_over(len(waiting)):
        yield
    for partition in waiting:
        topics.setdefault(partition.topic, []).append(partition.partition)
        if pace.is_over(1):
            yield
    told: list[describe_messages.TopicData] = []
    for topic, ids in topics.items():
        told.append(describe_messages.TopicData(topic, tuple(ids)))
        if pace.is_over(1):
            yield
    return describe_messages.TransactionState(
        error_code=ErrorCode.NONE,
        transactional_id=transactional_id,
        transaction_state=txn.state.kafka_name,
        transaction_timeout_ms=txn.timeout_ms,
        transaction_start_time_ms=txn.start_ms,
        producer_id=txn.producer_id,
        producer_epoch=txn.producer_epoch,
        topics=tuple(told),
    )


class Listing:
    """ListTransactions: take all `steps`, then there is the `response`.

    `duration_filter` (v1+), if not negative: only transactions that run longer than this, in ms. A pattern (RE2; v2+)
    has to match the whole id. `may_see` is asked for each id that passes the filters.
    """

    def __init__(
        self, request: list_messages.ListTransactionsRequest, now_ms: int, may_see: Callable[[str], bool] | None = None
    ) -> None:
        self._request = request
        self._now_ms = now_ms
        self._may_see = may_see
        self._states = {STATE_BY_KAFKA_NAME[name] for name in request.state_filters if name in STATE_BY_KAFKA_NAME}
        self._producer_ids = frozenset(request.producer_id_filters)
        self._listed: list[list_messages.TransactionState] = []
        self._pattern: Pattern | None = None
        self._is_refused = False
        if request.transactional_id_pattern:
            try:
                self._pattern = compile_pattern(request.transactional_id_pattern)
            except PatternError:
                self._is_refused = True

    def steps(self, stores: Iterable[TransactionStore]) -> Iterator[None]:
        """One transaction in each. What changes meanwhile is told as it was before, or as it is then.

        A slow pattern takes up to two milliseconds for an id. In a thread others would wait for longer: Python's lock
        changes hands at every id, and who waits for it while the thread makes lists waits 5 ms each time.
        """
        for store in () if self._is_refused else stores:
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
            and (self._pattern is None or self._pattern.matches(txn.transactional_id))
            and (self._may_see is None or self._may_see(txn.transactional_id))
        )

    @property
    def response(self) -> list_messages.ListTransactionsResponse:
        """What was found; INVALID_REGULAR_EXPRESSION when the pattern is none, or too large."""
        if self._is_refused:
            return list_messages.ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
        return list_messages.ListTransactionsResponse(
            unknown_state_filters=tuple(
                name for name in self._request.state_filters if name not in STATE_BY_KAFKA_NAME
            ),
            transaction_states=tuple(self._listed),
        )
