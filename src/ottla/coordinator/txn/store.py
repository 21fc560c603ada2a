"""The state of one shard, and the way from a target to the log and back.

Durable state is what the records say: one `TransactionMetadata` for every id, changed by `apply` alone. Soft state is
what only this process knows: targets on their way to the log (`Pending`), and, for a prepared transaction, the
partitions whose marker is still missing. Losing soft state does no harm: a restart writes all markers again.

While an id is in transition nothing else may move it. So there is one target for an id at a time, and `apply` checks
that what became durable is what was decided.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Set
from typing import NamedTuple, TypeAlias

from ottla.base.limits import MAX_INLINE_ADDED
from ottla.base.require import require
from ottla.base.types import TopicPartition
from ottla.coordinator.decision import Decision, Effect, LogRecord, Reply, SetTimer, Timer, in_steps
from ottla.coordinator.txn.config import TransactionConfig
from ottla.coordinator.txn.metadata import TransactionMetadata, from_value, record_steps, to_record
from ottla.coordinator.txn.states import PREPARED_STATES
from ottla.wire.errors import ErrorCode
from ottla.wire.transaction_records import decode_key, decode_value, encode_key

#: The answer to waiting requests when the records could not be appended.
Refusal: TypeAlias = Callable[[ErrorCode], tuple[Reply, ...]]

#: Fires when an ONGOING transaction is too old: (TIMEOUT_TIMER, transactional id).
TIMEOUT_TIMER = "transaction-timeout"
#: Fires when outstanding markers, or the record after them, should be tried again: (MARKERS_TIMER, transactional id).
MARKERS_TIMER = "transaction-markers"
#: Fires when it is time to look for idle ids.
EXPIRATION_TIMER = "transactional-id-expiration"

_UNAVAILABLE = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
_NOT_LEADER = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR})
_TOO_LARGE = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})


class Pending(NamedTuple):
    """Records of one id on their way to the log, each with the state it stands for; None is a tombstone."""

    records: tuple[LogRecord, ...]
    targets: tuple[TransactionMetadata | None, ...]
    refuse: Refusal
    #: Timers to set if the append fails and no client would ask again.
    retry: tuple[Timer, ...] = ()


def no_one(error: ErrorCode) -> tuple[Reply, ...]:
    """Refuses a decision that no request waits for: there is nobody to answer."""
    return ()


def coordinator_error(error: ErrorCode) -> ErrorCode:
    """The client's error for the log's `error` (as in Kafka's `TransactionStateManager.appendTransactionToLog`)."""
    if error in _UNAVAILABLE:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if error in _NOT_LEADER:
        return ErrorCode.NOT_COORDINATOR
    if error in _TOO_LARGE:
        return ErrorCode.UNKNOWN_SERVER_ERROR
    return error


class TransactionStore:
    """All transactional ids of one partition of `__transaction_state`."""

    def __init__(
        self, config: TransactionConfig, coordinator_epoch: int, new_producer_id: Callable[[], int | None]
    ) -> None:
        self.config = config
        #: The leader epoch of the partition. Every marker carries it, which fences an older coordinator.
        self.coordinator_epoch = coordinator_epoch
        #: Gives a new producer id, or None while the next block of them is not durable.
        self.new_producer_id = new_producer_id
        self._transactions: dict[str, TransactionMetadata] = {}
        self._by_producer: dict[int, str] = {}
        self._pending: dict[str, Pending] = {}
        self._outstanding: dict[str, set[TopicPartition]] = {}
        #: Ids that the present pass of `expiration` has still to look at.
        self.to_expire: deque[str] = deque()

    def get(self, transactional_id: str) -> TransactionMetadata | None:
        """What the log says about an id, or None when it says nothing."""
        return self._transactions.get(transactional_id)

    def all(self) -> Iterable[TransactionMetadata]:
        """Every id, in the order in which they came."""
        return self._transactions.values()

    @property
    def is_busy(self) -> bool:
        """Whether a record of any id is on its way to the log."""
        return bool(self._pending)

    def of_producer(self, producer_id: int) -> TransactionMetadata | None:
        """The id whose producer has this producer id now, or None."""
        return self._transactions.get(self._by_producer.get(producer_id, ""))

    def waiting(self, txn: TransactionMetadata) -> Set[TopicPartition]:
        """The partitions that wait for its marker; while markers are written, those where it may be missing.

        This may be the set itself and no copy.
        """
        return self._outstanding[txn.transactional_id] if txn.state in PREPARED_STATES else txn.partitions

    def is_pending(self, transactional_id: str) -> bool:
        """Whether a record of this id is on its way to the log."""
        return transactional_id in self._pending

    def in_transition(self, transactional_id: str) -> bool:
        """Whether requests that would move this id must wait: a record is on its way, or markers are being written."""
        if transactional_id in self._pending:
            return True
        txn = self._transactions.get(transactional_id)
        return txn is not None and txn.state in PREPARED_STATES

    def outstanding(self, transactional_id: str) -> set[TopicPartition]:
        """The partitions of a prepared transaction whose marker may be missing. This is the set itself and no copy."""
        return self._outstanding[transactional_id]

    def write(
        self,
        targets: tuple[TransactionMetadata, ...],
        *,
        replies: tuple[Reply, ...] = (),
        timers: tuple[Timer, ...] = (),
        effects: tuple[Effect, ...] = (),
        refuse: Refusal = no_one,
        retry: tuple[Timer, ...] = (),
    ) -> Decision:
        """A decision that moves one id through `targets`, all of them in one batch.

        With very many partitions it is the rest of the one that this gives. `retry`: timers to set if the append fails.
        """
        transactional_id = targets[0].transactional_id
        self._require_settled(transactional_id)

        def written(records: tuple[LogRecord, ...]) -> Decision:
            self._pending[transactional_id] = Pending(records, targets, refuse, retry)
            return Decision(records, replies, timers, None, effects)

        def steps() -> Generator[None, None, Decision]:
            yield
            records: tuple[LogRecord, ...] = ()
            for target in targets:
                records = (*records, (yield from record_steps(target)))
            return written(records)

        for target in targets:
            if len(target.partitions) > MAX_INLINE_ADDED:
                return in_steps(steps())
        return written(tuple(map(to_record, targets)))

    def forget(self, transactional_ids: Iterable[str], timers: tuple[Timer, ...]) -> Decision:
        """A decision that writes tombstones for ids that are not in transition. Until then the ids are DEAD."""
        records = []
        for transactional_id in transactional_ids:
            self._require_settled(transactional_id)
            record = LogRecord(encode_key(transactional_id), None)
            self._pending[transactional_id] = Pending((record,), (None,), no_one)
            records.append(record)
        return Decision(records=tuple(records), timers=timers)

    def _require_settled(self, transactional_id: str) -> None:
        if transactional_id in self._pending:
            require(False, f"{transactional_id!r} is already in transition")

    def apply(self, record: LogRecord) -> None:
        """Take in a durable record, live or at recovery.

        Records of a type this version does not know are skipped. Raises CorruptDataError for one that cannot be read.
        """
        transactional_id = decode_key(record.key)
        if transactional_id is None:
            return
        pending = self._pending.get(transactional_id)
        if pending is not None:
            if pending.records[0] != record:
                require(False, f"{transactional_id!r}: the log holds another record than was decided")
            txn = pending.targets[0]
            if len(pending.records) > 1:
                self._pending[transactional_id] = pending._replace(
                    records=pending.records[1:], targets=pending.targets[1:]
                )
            else:
                del self._pending[transactional_id]
        else:
            txn = None if record.value is None else from_value(transactional_id, decode_value(record.value))
        self._set(transactional_id, txn)

    def _set(self, transactional_id: str, txn: TransactionMetadata | None) -> None:
        before = self._transactions.get(transactional_id)
        if before is not None:
            self._by_producer.pop(before.producer_id, None)
        if txn is None:
            self._transactions.pop(transactional_id, None)
        else:
            self._transactions[transactional_id] = txn
            self._by_producer[txn.producer_id] = transactional_id
        if txn is not None and txn.state in PREPARED_STATES:
            self._outstanding[transactional_id] = set(txn.partitions)
        else:
            self._outstanding.pop(transactional_id, None)

    def append_failed(self, decision: Decision, error: ErrorCode) -> Decision:
        """Undo what `write` or `forget` prepared: nothing became durable, the state is what it was.

        Waiting requests are answered with the client's form of `error`. A timer repeats what no client would ask for
        again (a timed-out transaction, a completion, an expiration). A transaction that stays open keeps the timer of
        its time-out: it was not cancelled.
        """
        replies: list[Reply] = []
        timers: list[Timer] = [
            SetTimer(timer.key, timer.delay_ms + self.config.retry_backoff_ms)
            for timer in decision.timers
            if isinstance(timer, SetTimer) and timer.key == (EXPIRATION_TIMER,)
        ]
        if timers:
            self.to_expire.clear()  # the next pass begins from the first id
        for transactional_id in dict.fromkeys(decode_key(record.key) for record in decision.records):
            pending = self._pending.pop(transactional_id or "", None)
            if transactional_id is None or pending is None:
                continue
            replies.extend(pending.refuse(coordinator_error(error)))
            timers.extend(pending.retry)
        return Decision(replies=tuple(replies), timers=tuple(timers))
