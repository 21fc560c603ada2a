"""What the coordinator knows about one transactional id, and the targets it may move to.

Every `prepare_*` is a pure function from the present to the next `TransactionMetadata`; none of them decides whether
the move is allowed (that is `states.TRANSITIONS`). Numbers as in Kafka 4.3's `TransactionMetadata`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator, Iterable, Sequence
from typing import Final, NamedTuple

from ottla.base.errors import CorruptDataError
from ottla.base.types import TopicPartition
from ottla.coordinator.decision import LogRecord
from ottla.coordinator.txn.states import LOGGED_STATES, TransactionState, TransactionVersion
from ottla.wire.transaction_records import PartitionsSchema, TransactionLogValue, encode_key, encode_value

NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
MAX_PRODUCER_EPOCH: Final = 32_767

#: Clients never get the last epoch, so that the coordinator can always fence them with one more.
LAST_CLIENT_EPOCH: Final = MAX_PRODUCER_EPOCH - 1

#: Topics of a transaction that one step of making its record goes through: half a millisecond.
_TOPICS_PER_STEP: Final = 2_000

#: The stored timeout of a transaction in two-phase commit, which never times out (KIP-939).
NO_TIMEOUT_MS: Final = 2_147_483_647


class TransactionMetadata(NamedTuple):
    """The state of one transactional id. Times are wall-clock milliseconds; epochs are int16."""

    transactional_id: str
    producer_id: int
    previous_producer_id: int
    next_producer_id: int
    producer_epoch: int
    #: The epoch before its producer asked for a higher one. It is not in the log: -1 after a restart, as in Kafka.
    last_producer_epoch: int
    timeout_ms: int
    state: TransactionState
    partitions: frozenset[TopicPartition]
    #: When the first partition was added; -1 in EMPTY.
    start_ms: int
    last_update_ms: int
    client_version: TransactionVersion

    @property
    def epoch_exhausted(self) -> bool:
        """Whether the epoch cannot be raised any more, so that a new producer id is needed."""
        return self.producer_epoch >= LAST_CLIENT_EPOCH

    @property
    def limit_ms(self) -> int | None:
        """How long it may be ONGOING; None with two-phase commit. Kafka aborts strictly after the time-out."""
        return None if self.timeout_ms == NO_TIMEOUT_MS else self.timeout_ms + 1

    def rest_ms(self, now_ms: int) -> int | None:
        """What is left of `limit_ms`, for a transaction that was read from the log.

        Only the wall clock can tell how long the broker was down, and somebody may have set it since. So the result is
        kept within bounds: it is never negative, and never more than `limit_ms`.
        """
        limit_ms = self.limit_ms
        return None if limit_ms is None else min(max(self.start_ms + limit_ms - now_ms, 0), limit_ms)


def created(transactional_id: str, producer_id: int, timeout_ms: int, now_ms: int) -> TransactionMetadata:
    """A transactional id that is new. It is in no log until its first InitProducerId has raised its epoch."""
    return TransactionMetadata(
        transactional_id=transactional_id,
        producer_id=producer_id,
        previous_producer_id=NO_PRODUCER_ID,
        next_producer_id=NO_PRODUCER_ID,
        producer_epoch=NO_PRODUCER_EPOCH,
        last_producer_epoch=NO_PRODUCER_EPOCH,
        timeout_ms=timeout_ms,
        state=TransactionState.EMPTY,
        partitions=frozenset(),
        start_ms=-1,
        last_update_ms=now_ms,
        client_version=TransactionVersion.V0,
    )


def prepare_init(
    txn: TransactionMetadata,
    *,
    producer_id: int,
    producer_epoch: int,
    last_producer_epoch: int,
    timeout_ms: int,
    now_ms: int,
) -> TransactionMetadata:
    """To EMPTY, with the producer id and epoch that the producer is told."""
    return txn._replace(
        state=TransactionState.EMPTY,
        producer_id=producer_id,
        previous_producer_id=txn.producer_id,
        producer_epoch=producer_epoch,
        last_producer_epoch=last_producer_epoch,
        timeout_ms=timeout_ms,
        partitions=frozenset(),
        start_ms=-1,
        last_update_ms=now_ms,
    )


def prepare_add_partitions(
    txn: TransactionMetadata, added: frozenset[TopicPartition], client_version: TransactionVersion, now_ms: int
) -> TransactionMetadata:
    """To ONGOING, with `added` among the partitions; the transaction's time begins with its first one."""
    return txn._replace(
        state=TransactionState.ONGOING,
        previous_producer_id=txn.producer_id,
        partitions=txn.partitions | added,
        start_ms=txn.start_ms if txn.state == TransactionState.ONGOING else now_ms,
        last_update_ms=now_ms,
        client_version=client_version,
    )


def prepare_end(
    txn: TransactionMetadata,
    to: TransactionState,
    client_version: TransactionVersion,
    next_producer_id: int,
    now_ms: int,
) -> TransactionMetadata:
    """To PREPARE_COMMIT or PREPARE_ABORT. With KIP-890 the markers already carry the raised epoch.

    `next_producer_id` is a fresh id when the epoch is exhausted, else -1; it takes over on completion.
    """
    bumps = client_version.bumps_epoch
    return txn._replace(
        state=to,
        previous_producer_id=txn.producer_id,
        next_producer_id=next_producer_id,
        producer_epoch=min(txn.producer_epoch + 1, MAX_PRODUCER_EPOCH) if bumps else txn.producer_epoch,
        last_producer_epoch=txn.producer_epoch if bumps else txn.last_producer_epoch,
        # An abort without a transaction has no start time, but the record needs one.
        start_ms=txn.start_ms if txn.state == TransactionState.ONGOING else now_ms,
        last_update_ms=now_ms,
        client_version=client_version,
    )


def prepare_complete(txn: TransactionMetadata, to: TransactionState, now_ms: int) -> TransactionMetadata:
    """To COMPLETE_COMMIT or COMPLETE_ABORT, and over to the next producer id where one was prepared."""
    rotates = txn.client_version.bumps_epoch and txn.next_producer_id != NO_PRODUCER_ID
    return txn._replace(
        state=to,
        producer_id=txn.next_producer_id if rotates else txn.producer_id,
        previous_producer_id=txn.producer_id,
        next_producer_id=NO_PRODUCER_ID,
        producer_epoch=0 if rotates else txn.producer_epoch,
        partitions=frozenset(),
        last_update_ms=now_ms,
    )


def to_record(txn: TransactionMetadata) -> LogRecord:
    """The record that makes `txn` durable."""
    return _record(txn, _schemas(sorted(_by_topic(txn).items())))


def record_steps(txn: TransactionMetadata) -> Generator[None, None, LogRecord]:
    """The same in steps: 10,000 topics take two milliseconds in the longest."""
    topics = _by_topic(txn)
    yield
    ordered = sorted(topics.items())
    yield
    schemas: list[PartitionsSchema] = []
    for begin in range(0, len(ordered), _TOPICS_PER_STEP):
        schemas += _schemas(ordered[begin : begin + _TOPICS_PER_STEP])
        yield
    return _record(txn, schemas)


def _by_topic(txn: TransactionMetadata) -> dict[str, list[int]]:
    topics: defaultdict[str, list[int]] = defaultdict(list)
    for topic, partition in txn.partitions:
        topics[topic].append(partition)
    return topics


def _schemas(ordered: Iterable[tuple[str, list[int]]]) -> list[PartitionsSchema]:
    return [PartitionsSchema(topic, tuple(sorted(ids))) for topic, ids in ordered]


def _record(txn: TransactionMetadata, schemas: Sequence[PartitionsSchema]) -> LogRecord:
    value = TransactionLogValue(
        producer_id=txn.producer_id,
        previous_producer_id=txn.previous_producer_id,
        next_producer_id=txn.next_producer_id,
        producer_epoch=txn.producer_epoch,
        transaction_timeout_ms=txn.timeout_ms,
        transaction_status=txn.state,
        transaction_partitions=None if txn.state == TransactionState.EMPTY else tuple(schemas),
        transaction_last_update_timestamp_ms=txn.last_update_ms,
        transaction_start_timestamp_ms=txn.start_ms,
        client_transaction_version=txn.client_version,
    )
    return LogRecord(encode_key(txn.transactional_id), encode_value(value))


def from_value(transactional_id: str, value: TransactionLogValue) -> TransactionMetadata:
    """The state of `transactional_id` from its record. Raises CorruptDataError for a state that no log can hold."""
    status = value.transaction_status
    if status not in LOGGED_STATES:
        raise CorruptDataError(f"transactional id {transactional_id!r}: no log holds the transaction state {status}")
    return TransactionMetadata(
        transactional_id=transactional_id,
        producer_id=value.producer_id,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        producer_epoch=value.producer_epoch,
        last_producer_epoch=NO_PRODUCER_EPOCH,
        timeout_ms=value.transaction_timeout_ms,
        state=TransactionState(status),
        partitions=frozenset(
            TopicPartition(topic.topic, partition)
            for topic in value.transaction_partitions or ()
            for partition in topic.partition_ids
        ),
        start_ms=value.transaction_start_timestamp_ms,
        last_update_ms=value.transaction_last_update_timestamp_ms,
        client_version=TransactionVersion(min(max(value.client_transaction_version, 0), TransactionVersion.V2)),
    )
