"""What one partition knows about its producers: the checks of idempotence and transactions, and their state.

Theory of operation. Nothing here touches a file. `check_batch` and `check_marker` decide (an error or None) and change
nothing; once the bytes are in the log, `apply_batch` and `apply_marker` change the state. Recovery calls only the two
applies, over the batches it finds, so live and recovered state are the same by construction (SPEC P7).

Per producer id: its epoch, its last five batches (P3; KIP-98 allows five in flight), where its open transaction began,
the coordinator epoch of its last marker, and when it was last heard of. The first offsets of open transactions, oldest
first, give the last stable offset (T8).

Differences from Kafka 4.3: whether an entry expires depends on when it was last written and not only on its records'
timestamps, so a producer that writes old timestamps keeps its state. And nothing expires during recovery. A batch that
is sent again, and that has gone with a damaged file from between the remembered ones, is a duplicate and not out of
order: after the latter a producer writes those that follow once more, too, and they are there. And what the disk
refuses of a producer of whom nothing is known stays the next that it may write (KAFKA-14359).
"""

from collections import deque
from collections.abc import Generator, Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from ottla.base.require import require
from ottla.log.damage import OffsetRange
from ottla.log.results import NO_GUARD, ActiveProducer, Origin, RecordError, VerificationGuard
from ottla.log.verification import Verification
from ottla.wire.batch import BatchHeader
from ottla.wire.errors import ErrorCode

#: Batches remembered per producer; `max.in.flight.requests.per.connection` of an idempotent producer is at most this.
BATCHES_TO_RETAIN: Final = 5
#: So many producers of whom nothing is known may wait for the disk; then the first is forgotten.
_MAX_AWAITED: Final = 1_000
#: Producers that are looked at in one step.
_AT_ONCE: Final = 500
_SEQUENCE_MAX: Final = 2**31 - 1


class Refusal(NamedTuple):
    """Why an append is refused."""

    error: ErrorCode
    message: str
    record_errors: tuple[RecordError, ...] = ()


class BatchMetadata(NamedTuple):
    """One remembered batch of a producer."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp_ms: int


class ProducerEntry:
    """The state of one producer id."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "generation",
        "has_gone_on",
        "last_seen_ms",
        "last_timestamp_ms",
        "producer_epoch",
        "producer_id",
        "txn_first_offset",
    )

    def __init__(self, producer_id: int, producer_epoch: int) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.coordinator_epoch = -1
        #: Newest timestamp of its last batch or marker. Snapshots hold this.
        self.last_timestamp_ms = -1
        #: When that batch or marker was written. Snapshots do not hold this.
        self.last_seen_ms = -1
        #: First offset of the open transaction, or -1.
        self.txn_first_offset = -1
        #: It may have written more since its last batch: what it wrote is deleted, and was not on the device.
        self.has_gone_on = False
        self.batches: deque[BatchMetadata] = deque(maxlen=BATCHES_TO_RETAIN)
        #: Since which `freeze` it may be changed.
        self.generation = 0

    def copy(self) -> "ProducerEntry":
        """One that may be changed, in the place of this one."""
        copied = ProducerEntry(self.producer_id, self.producer_epoch)
        copied.coordinator_epoch = self.coordinator_epoch
        copied.last_timestamp_ms, copied.last_seen_ms = self.last_timestamp_ms, self.last_seen_ms
        copied.txn_first_offset = self.txn_first_offset
        copied.has_gone_on = self.has_gone_on
        copied.batches.extend(self.batches)
        return copied

    @property
    def last_sequence(self) -> int:
        """The newest batch's last sequence, or -1."""
        return self.batches[-1].last_sequence if self.batches else -1

    def set_epoch(self, producer_epoch: int) -> None:
        """A new epoch starts without batches."""
        if producer_epoch != self.producer_epoch:
            self.batches.clear()
            self.producer_epoch = producer_epoch


class OngoingTransaction(NamedTuple):
    """An open transaction, and where its first batch lies (`position` is -1 where only the offset is known)."""

    producer_id: int
    first_offset: int
    segment_base_offset: int = -1
    position: int = -1


class CompletedTransaction(NamedTuple):
    """A transaction that a marker has just ended."""

    producer_id: int
    first_offset: int
    #: Offset of the marker.
    last_offset: int
    committed: bool
    #: Where the LSO stands once the transaction is gone.
    last_stable_offset: int


class ProducerState:
    """Every producer of one partition, up to `end_offset`."""

    def __init__(self, end_offset: int = 0) -> None:
        self.producers: dict[int, ProducerEntry] = {}
        #: By first offset; a transaction that opens later has a higher one, so the dict is in order.
        self.ongoing: dict[int, OngoingTransaction] = {}
        self.end_offset = end_offset
        #: What the files have lost (`damage`).
        self.holes: tuple[OffsetRange, ...] = ()
        #: Below this offset batches may be gone from the files by right, deleted or compacted, since before the start.
        self.thinned_below = 0
        #: Where batches may be missing: deleted, compacted, or taken by a loss of power, perhaps before their answers.
        self.missing: tuple[OffsetRange, ...] = ()
        #: The snapshot that this comes from has all the last batches of its producers, and not the last one only.
        self.history_is_known = False
        #: Of producers of whom nothing is known: the epoch and sequence of a batch that the disk has refused.
        self._awaited: dict[int, tuple[int, int]] = {}
        self._verifications: dict[int, Verification] = {}
        self._next_guard = NO_GUARD + 1
        self._generation = 0

    def freeze(self) -> Sequence[ProducerEntry]:
        """All entries as they are now: from now on each is copied before it changes, once. For snapshots."""
        self._generation += 1
        return tuple(self.producers.values())

    # ---- questions

    def first_unstable_offset(self) -> OngoingTransaction | None:
        """The oldest open transaction, or None."""
        return next(iter(self.ongoing.values()), None)

    def has_ongoing_transaction(self, producer_id: int, producer_epoch: int | None = None) -> bool:
        """Whether the producer (of that epoch, when given) has an open transaction here."""
        entry = self.producers.get(producer_id)
        if entry is None or entry.txn_first_offset < 0:
            return False
        return producer_epoch is None or entry.producer_epoch == producer_epoch

    def active(self, producer_id: int | None = None) -> Iterator[ActiveProducer]:
        """DescribeProducers, one after the other: those that are known now, each as it is when its turn comes.

        With `producer_id` only that one, if it is known: the others are not gone through.
        """
        for each in tuple(self.producers) if producer_id is None else (producer_id,):
            entry = self.producers.get(each)
            if entry is None:
                continue
            yield ActiveProducer(
                entry.producer_id,
                entry.producer_epoch,
                entry.last_sequence,
                entry.last_timestamp_ms,
                entry.coordinator_epoch,
                entry.txn_first_offset,
            )

    def find_duplicate(self, header: BatchHeader) -> BatchMetadata | None:
        """The remembered batch that has exactly this one's sequences (P3)."""
        entry = self.producers.get(header.producer_id)
        if entry is None or entry.producer_epoch != header.producer_epoch:
            return None
        first, last = header.base_sequence, header.last_sequence
        for batch in entry.batches:
            if batch.first_sequence == first and batch.last_sequence == last:
                return batch
        return None

    # ---- verification (KIP-890)

    def begin_verification(
        self, producer_id: int, sequence: int, producer_epoch: int, *, supports_epoch_bump: bool, now_ms: int
    ) -> VerificationGuard:
        """The guard that the append must carry after the coordinator has confirmed the transaction.

        NO_GUARD when the transaction is open here already and needs no confirmation. An error for an old epoch.
        """
        entry = self.producers.get(producer_id)
        if entry is not None and producer_epoch < entry.producer_epoch:
            refusal = _old_epoch(producer_id, producer_epoch, entry.producer_epoch)
            return VerificationGuard(NO_GUARD, refusal.error, refusal.message)
        if self.has_ongoing_transaction(producer_id, producer_epoch):
            return VerificationGuard(NO_GUARD)
        waiting = self._verifications.get(producer_id)
        if waiting is None:
            # Each attempt has a guard of its own: a confirmation that comes after the transaction's end must not fit a
            # later transaction.
            waiting = Verification(self._next_guard, sequence, producer_epoch, supports_epoch_bump, now_ms)
            self._next_guard += 1
            self._verifications[producer_id] = waiting
        else:
            waiting.update(sequence, producer_epoch)
        return VerificationGuard(waiting.guard)

    def confirm_verification(self, producer_id: int, guard: int) -> None:
        """The coordinator has confirmed: the next batch that the broker writes (Origin.COORDINATOR) needs no guard.

        This is for a writer that cannot carry the guard to its append. A marker in between ends the verification, as
        it does with a guard.
        """
        waiting = self._verifications.get(producer_id)
        if waiting is not None and waiting.guard == guard:
            waiting.confirmed = True

    # ---- checks: they change nothing

    def check_batch(self, header: BatchHeader, origin: Origin, guard: int, *, verify: bool) -> Refusal | None:
        """Whether a data batch with a producer id may be appended now."""
        producer_id, producer_epoch = header.producer_id, header.producer_epoch
        entry = self.producers.get(producer_id)
        if entry is not None and producer_epoch < entry.producer_epoch:
            return _old_epoch(producer_id, producer_epoch, entry.producer_epoch)
        ongoing = entry is not None and entry.txn_first_offset >= 0
        transactional = header.is_transactional
        if transactional and verify and not (ongoing and entry and entry.producer_epoch == producer_epoch):
            waiting = self._verifications.get(producer_id)
            confirmed = waiting is not None and waiting.confirmed and origin is Origin.COORDINATOR
            if waiting is None or not (waiting.guard == guard or confirmed):
                return Refusal(ErrorCode.INVALID_TXN_STATE, "Record was not part of an ongoing transaction")
        if ongoing and not transactional:
            return Refusal(
                ErrorCode.INVALID_TXN_STATE,
                f"Expected transactional write from producer {producer_id}, it has one open",
            )
        return self._check_sequence(entry, header) if origin is Origin.CLIENT else None

    def _check_sequence(self, entry: ProducerEntry | None, header: BatchHeader) -> Refusal | None:
        first = header.base_sequence
        waiting = self._verifications.get(header.producer_id) if self._verifications else None
        if waiting is not None:
            if waiting.supports_epoch_bump and first != 0 and (entry is None or not entry.batches):
                return _out_of_order(header, "0, a new transaction's first")
            if first > waiting.lowest_sequence:
                return _out_of_order(header, f"{waiting.lowest_sequence}, the earliest seen")
        if entry is None or entry.producer_epoch < 0:
            return self._check_first(header)
        if entry.producer_epoch != header.producer_epoch:
            return None if first == 0 else _out_of_order(header, "0, a new epoch's first")
        last = entry.last_sequence
        if first == last + 1 or (first == 0 and last == _SEQUENCE_MAX):
            return None
        if entry.has_gone_on and 0 < (first - last) & _SEQUENCE_MAX <= _SEQUENCE_MAX // 2:
            return self._check_first(header)
        if self._is_lost(header, entry.batches):
            return Refusal(
                ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
                f"Producer {header.producer_id} has written the sequences from {first} to {header.last_sequence} "
                "before, and their records are gone with a damaged file",
            )
        if self._may_be_lost(header, entry.batches):
            return Refusal(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"It is unknown whether producer {header.producer_id} has written the sequences from {first} to "
                f"{header.last_sequence} before: what was there is gone with a damaged file, or deleted",
            )
        return _out_of_order(header, str(0 if last == _SEQUENCE_MAX else last + 1))

    def _check_first(self, header: BatchHeader) -> Refusal | None:
        """Nothing is known, perhaps because its records were deleted: any sequence may come next.

        But it may have more than one batch on the way. When the disk has refused the first of them, and would take the
        second, the first could never be written; the producer would write both in a new epoch, and the second twice.
        """
        epoch, sequence = self._awaited.get(header.producer_id, (-1, -1))
        ahead = (header.base_sequence - sequence) & _SEQUENCE_MAX
        if epoch != header.producer_epoch or not 0 < ahead <= _SEQUENCE_MAX // 2:
            return None
        return _out_of_order(header, f"{sequence}, which the disk has refused")

    def _is_lost(self, header: BatchHeader, batches: Sequence[BatchMetadata]) -> bool:
        """Whether its sequences are missing between two batches, and a hole is there: it was written, and is gone."""
        between = _between(header, batches)
        return between is not None and any(
            between.first_offset < hole.end_offset <= between.end_offset for hole in self.holes
        )

    def _may_be_lost(self, header: BatchHeader, batches: Sequence[BatchMetadata]) -> bool:
        """Whether it may have been written, and be gone: before the oldest batch that is known, or between two of them.

        What was deleted the snapshots know, but they may be damaged; or a loss of power has taken it, and kept later
        batches. Not in a transaction: there, out of order makes the producer abort, and nothing is written again.
        """
        if header.is_transactional or not batches:
            return False
        between = _between(header, batches)
        if between is not None:
            has_room = between.end_offset - between.first_offset > header.last_offset_delta
            return has_room and any(between.overlaps(gone) for gone in self.missing)
        if len(batches) == BATCHES_TO_RETAIN:
            return False
        oldest = batches[0]
        is_gone = oldest.first_offset < self.thinned_below or any(
            hole.end_offset <= oldest.first_offset for hole in self.holes
        )
        return is_gone and header.base_sequence <= header.last_sequence < oldest.first_sequence

    def check_marker(
        self, producer_id: int, producer_epoch: int, coordinator_epoch: int, transaction_version: int
    ) -> Refusal | None:
        """Whether an end-transaction marker may be appended now."""
        entry = self.producers.get(producer_id)
        if entry is None:
            return None
        current = entry.producer_epoch
        # KIP-1228: under version 2 the coordinator raises the epoch before each end. So a marker of the present epoch
        # comes late, unless it repeats the one that has just ended the transaction.
        late = producer_epoch < current
        if transaction_version >= 2 and producer_epoch == current and entry.txn_first_offset >= 0:
            late = True
        if late:
            return _old_epoch(producer_id, producer_epoch, current)
        if entry.coordinator_epoch > coordinator_epoch:
            return Refusal(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"Coordinator epoch {coordinator_epoch} for producer {producer_id} is older than "
                f"{entry.coordinator_epoch}",
            )
        return None

    # ---- applies: they refuse nothing

    def refused(self, header: BatchHeader) -> None:
        """The disk has refused a batch that was the next one; see `_check_first`."""
        producer_id = header.producer_id
        entry = self.producers.get(producer_id)
        if producer_id >= 0 and (entry is None or entry.has_gone_on):
            self._awaited[producer_id] = header.producer_epoch, header.base_sequence
            if len(self._awaited) > _MAX_AWAITED:
                del self._awaited[next(iter(self._awaited))]

    def apply_batch(
        self,
        header: BatchHeader,
        base_offset: int,
        timestamp_ms: int,
        now_ms: int,
        segment_base_offset: int = -1,
        position: int = -1,
    ) -> None:
        """A data batch with a producer id is in the log, at `base_offset` and with the newest timestamp `timestamp_ms`.

        These two do not come from `header`, which is as the client sent it.
        """
        producer_id, producer_epoch = header.producer_id, header.producer_epoch
        entry = self._to_change(producer_id, producer_epoch)
        if entry.producer_epoch != producer_epoch:
            entry.set_epoch(producer_epoch)
        if entry.has_gone_on:
            entry.has_gone_on = False
            self._awaited.pop(producer_id, None)
        entry.batches.append(
            BatchMetadata(
                header.base_sequence,
                header.last_sequence,
                base_offset,
                base_offset + header.last_offset_delta,
                timestamp_ms,
            )
        )
        entry.last_timestamp_ms = timestamp_ms
        entry.last_seen_ms = now_ms
        if header.is_transactional:
            if entry.txn_first_offset < 0:
                entry.txn_first_offset = base_offset
                self.ongoing[base_offset] = OngoingTransaction(producer_id, base_offset, segment_base_offset, position)
            self._verifications.pop(producer_id, None)

    def apply_marker(
        self, header: BatchHeader, offset: int, *, committed: bool, coordinator_epoch: int, now_ms: int
    ) -> CompletedTransaction | None:
        """A marker is in the log at `offset`; returns the transaction it ended, if one was open here."""
        producer_id, producer_epoch = header.producer_id, header.producer_epoch
        entry = self._to_change(producer_id, producer_epoch)
        entry.set_epoch(producer_epoch)
        entry.coordinator_epoch = coordinator_epoch
        entry.last_timestamp_ms = header.max_timestamp_ms
        entry.last_seen_ms = now_ms
        waiting = self._verifications.get(producer_id)
        # Under version 2 a marker with the waiting batch's epoch belongs to the transaction before.
        if waiting is not None and not (waiting.supports_epoch_bump and waiting.producer_epoch == producer_epoch):
            del self._verifications[producer_id]
        first_offset, entry.txn_first_offset = entry.txn_first_offset, -1
        if first_offset < 0:
            return None
        gone = self.ongoing.pop(first_offset, None)
        require(gone is not None, f"producer {producer_id} ends a transaction at {first_offset} that nobody opened")
        oldest = self.first_unstable_offset()
        stable = offset + 1 if oldest is None else oldest.first_offset
        return CompletedTransaction(producer_id, first_offset, offset, committed, stable)

    def _to_change(self, producer_id: int, producer_epoch: int) -> ProducerEntry:
        entry = self.producers.get(producer_id)
        if entry is None:
            self._awaited.pop(producer_id, None)
            entry = self.producers[producer_id] = ProducerEntry(producer_id, producer_epoch)
        elif entry.generation != self._generation:
            entry = self.producers[producer_id] = entry.copy()
        entry.generation = self._generation
        return entry

    def begin_again(self, offset: int) -> None:
        """All records are deleted, and the log begins here. Of the last ones before that nothing may be known.

        Who had a transaction open has no record in it any more, and perhaps its end is among what is gone.
        """
        for entry in self.producers.values():
            entry.txn_first_offset = -1
            entry.has_gone_on = self.end_offset < offset
        self.ongoing.clear()
        self.end_offset = offset

    def expire(self, now_ms: int, expiration_ms: int) -> Generator[None, None, int]:
        """Forget producers that have been silent for `expiration_ms` and have nothing open; how many they were.

        In steps: they may write in between, and new ones may come.
        """
        gone = 0
        for at, producer_id in enumerate(tuple(self.producers), 1):
            entry = self.producers.get(producer_id)
            if entry is not None and entry.txn_first_offset < 0:
                silent_ms = now_ms - max(entry.last_seen_ms, entry.last_timestamp_ms)
                if silent_ms >= expiration_ms:
                    del self.producers[producer_id]
                    gone += 1
            if at % _AT_ONCE == 0:
                yield
        for at, producer_id in enumerate(tuple(self._verifications), 1):
            waiting = self._verifications.get(producer_id)
            if waiting is not None and now_ms - waiting.started_ms >= expiration_ms:
                del self._verifications[producer_id]
            if at % _AT_ONCE == 0:
                yield
        return gone


def _between(header: BatchHeader, batches: Sequence[BatchMetadata]) -> OffsetRange | None:
    """Where a batch was whose sequences are missing between two that are known; None if it is no such one."""
    first, last = header.base_sequence, header.last_sequence
    for one, following in pairwise(batches):
        if one.last_sequence < first <= last < following.first_sequence:
            return OffsetRange(one.last_offset + 1, following.first_offset)
    return None


def _old_epoch(producer_id: int, producer_epoch: int, current: int) -> Refusal:
    # Since KIP-588 a fenced produce says INVALID_PRODUCER_EPOCH, so that the client aborts and asks the coordinator.
    return Refusal(
        ErrorCode.INVALID_PRODUCER_EPOCH,
        f"Epoch of producer {producer_id} is {producer_epoch}, the last seen one is {current}",
    )


def _out_of_order(header: BatchHeader, expected: str) -> Refusal:
    return Refusal(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"Out of order sequence number for producer {header.producer_id}: {header.base_sequence}, expected {expected}",
    )
