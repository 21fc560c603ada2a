"""The transaction coordinator of one partition of `__transaction_state`.

What the runtime calls. Every method but `apply` reads the state and returns a `Decision` (see `coordinator.decision`);
request handlers live one file per API beside this one. A shard is used by one task at a time.

`now_ms` is the wall clock everywhere: it goes into records, and is compared with what they say. Timers are delays, so
that a transaction's time-out counts from the moment this shard saw it begin, whatever becomes of the wall clock.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping

from ottla.base.require import require
from ottla.base.types import TopicPartition
from ottla.coordinator.decision import NOTHING, Decision, LogRecord, SetTimer
from ottla.coordinator.txn import add_partitions_to_txn as adding
from ottla.coordinator.txn import end_txn as ending
from ottla.coordinator.txn import expiration, init_producer_id, listing
from ottla.coordinator.txn.config import TransactionConfig
from ottla.coordinator.txn.metadata import TransactionMetadata
from ottla.coordinator.txn.states import PREPARED_STATES, TransactionState, TransactionVersion
from ottla.coordinator.txn.store import EXPIRATION_TIMER, MARKERS_TIMER, TIMEOUT_TIMER, TransactionStore
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.wire.messages.add_partitions_to_txn import AddPartitionsToTxnTransaction
from ottla.wire.messages.describe_transactions import TransactionState as DescribedTransaction
from ottla.wire.messages.end_txn import EndTxnRequest
from ottla.wire.messages.init_producer_id import InitProducerIdRequest


class TransactionShard:
    """One partition of the transaction coordinator.

    `coordinator_epoch` is the partition's leader epoch. `new_producer_id` gives a producer id that was never given out
    (`ProducerIds.next_producer_id`), or None when the caller should try again later.
    """

    def __init__(
        self,
        coordinator_epoch: int,
        new_producer_id: Callable[[], int | None],
        config: TransactionConfig | None = None,
    ) -> None:
        self.store = TransactionStore(config or TransactionConfig(), coordinator_epoch, new_producer_id)

    @property
    def is_busy(self) -> bool:
        """Whether records of a decision are on their way to the log."""
        return self.store.is_busy

    def get(self, transactional_id: str) -> TransactionMetadata | None:
        """The durable state of an id."""
        return self.store.get(transactional_id)

    def init_producer_id(self, token: int, request: InitProducerIdRequest, now_ms: int) -> Decision:
        """InitProducerId with a transactional id."""
        return init_producer_id.init_producer_id(self.store, token, request, now_ms)

    def add_partitions_to_txn(
        self, token: int, transaction: AddPartitionsToTxnTransaction, client_version: TransactionVersion, now_ms: int
    ) -> Decision:
        """AddPartitionsToTxn for one transaction; also what a produce asks."""
        return adding.add_partitions_to_txn(self.store, token, transaction, client_version, now_ms)

    def add_offsets_to_txn(
        self, token: int, request: AddOffsetsToTxnRequest, offsets: TopicPartition, now_ms: int
    ) -> Decision:
        """AddOffsetsToTxn; `offsets` is the group's partition of `__consumer_offsets`."""
        return adding.add_offsets_to_txn(self.store, token, request, offsets, now_ms)

    def end_txn(self, token: int, request: EndTxnRequest, client_version: TransactionVersion, now_ms: int) -> Decision:
        """EndTxn."""
        return ending.end_txn(self.store, token, request, client_version, now_ms)

    def markers_written(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        results: Mapping[TopicPartition, ErrorCode],
        now_ms: int,
    ) -> Decision:
        """The outcome of a `WriteMarkers` effect, for some of its partitions or for all."""
        return ending.markers_written(self.store, transactional_id, producer_id, producer_epoch, results, now_ms)

    def describe(self, transactional_id: str) -> Generator[None, None, DescribedTransaction]:
        """DescribeTransactions for one id, in steps."""
        return listing.describe_transaction(self.store, transactional_id)

    def timer(self, key: tuple[str, ...], now_ms: int) -> Decision:
        """A timer that this shard set has fired."""
        match key:
            case (name, transactional_id) if name == TIMEOUT_TIMER:
                return ending.time_out(self.store, transactional_id, now_ms)
            case (name, transactional_id) if name == MARKERS_TIMER:
                return ending.write_markers_again(self.store, transactional_id, now_ms)
            case _:
                require(key == (EXPIRATION_TIMER,), f"no such timer: {key}")
                return expiration.expire(self.store, now_ms)

    def apply(self, record: LogRecord, now_ms: int) -> None:
        """Take in a durable record, live or at recovery."""
        self.store.apply(record)

    def append_failed(self, decision: Decision, error: ErrorCode) -> Decision:
        """The records of `decision` could not be appended. Its other parts must not be carried out."""
        return self.store.append_failed(decision, error)

    def loaded(self, now_ms: int) -> Iterator[Decision]:
        """All records of the partition are applied: watch what is open, end what was decided (T3).

        A transaction in each step. Whoever calls takes all steps before the next input.
        """
        yield Decision(timers=(SetTimer((EXPIRATION_TIMER,), self.store.config.expiration_interval_ms),))
        for txn in tuple(self.store.all()):
            if txn.state in PREPARED_STATES and txn.partitions:
                yield Decision(effects=(ending.markers(self.store, txn, txn.partitions),))
            elif txn.state in PREPARED_STATES:
                yield Decision(timers=(SetTimer((MARKERS_TIMER, txn.transactional_id), 0),))
            elif txn.state == TransactionState.ONGOING and (rest_ms := txn.rest_ms(now_ms)) is not None:
                yield Decision(timers=(SetTimer((TIMEOUT_TIMER, txn.transactional_id), rest_ms),))
            else:
                yield NOTHING
