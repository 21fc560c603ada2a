"""What a leader knows of producers: the rules of idempotence and of open transactions (SPEC P3, KIP-98, KIP-890).

Every replica keeps this for its own log, so a new leader knows what it has and nothing more.
"""

from collections import deque
from typing import NamedTuple

from ottla.wire.batch import BatchHeader
from ottla.wire.errors import ErrorCode

#: How many batches of a producer are remembered.
REMEMBERED = 5
_SEQUENCES = 2**31


class Remembered(NamedTuple):
    """One of a producer's last batches."""

    first_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int


class Completed(NamedTuple):
    """A transaction that has ended in this log."""

    producer_id: int
    first_offset: int
    #: The marker's.
    last_offset: int
    committed: bool


class _Producer:
    __slots__ = ("batches", "coordinator_epoch", "epoch", "first_offset")

    def __init__(self, epoch: int, window: int) -> None:
        self.epoch = epoch
        self.coordinator_epoch = -1
        #: First offset of the open transaction, or -1.
        self.first_offset = -1
        self.batches: deque[Remembered] = deque(maxlen=window)

    def begin(self, epoch: int) -> None:
        if epoch != self.epoch:
            self.epoch = epoch
            self.batches.clear()


class _Guard(NamedTuple):
    """A transaction that is being verified before its first batch."""

    number: int
    epoch: int
    #: KIP-890's second protocol: a new transaction begins with sequence 0.
    bumps_epoch: bool


class ProducerTable:
    """All producers of one log."""

    def __init__(self, window: int = REMEMBERED) -> None:
        self._window = window
        self._producers: dict[int, _Producer] = {}
        self._guards: dict[int, _Guard] = {}
        self._last_guard = 0
        self.completed: list[Completed] = []

    # transactions

    def is_open(self, producer_id: int, epoch: int) -> bool:
        """Whether the producer has a transaction open here."""
        known = self._producers.get(producer_id)
        return known is not None and known.epoch == epoch and known.first_offset >= 0

    def first_open(self) -> int | None:
        """First offset of the oldest open transaction."""
        return min((p.first_offset for p in self._producers.values() if p.first_offset >= 0), default=None)

    def guard(self, producer_id: int, epoch: int, *, bumps_epoch: bool) -> int:
        """A number that the append must show: a marker in between makes it void."""
        known = self._guards.get(producer_id)
        if known is not None and known.epoch >= epoch:
            return known.number
        self._last_guard += 1
        self._guards[producer_id] = _Guard(self._last_guard, epoch, bumps_epoch)
        return self._last_guard

    # decisions

    def is_old(self, producer_id: int, epoch: int) -> bool:
        """Whether a newer epoch was seen here."""
        known = self._producers.get(producer_id)
        return known is not None and epoch < known.epoch

    def duplicate_of(self, header: BatchHeader) -> Remembered | None:
        """The remembered batch that `header` repeats."""
        known = self._producers.get(header.producer_id)
        if known is None or known.epoch != header.producer_epoch:
            return None
        wanted = (header.base_sequence, header.last_sequence)
        return next((b for b in known.batches if (b.first_sequence, b.last_sequence) == wanted), None)

    def refusal(self, header: BatchHeader, guard: int, *, check_sequence: bool = True) -> ErrorCode:
        """Why a data batch may not be appended; NONE if it may."""
        known = self._producers.get(header.producer_id)
        if known is not None and header.producer_epoch < known.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if header.is_transactional:
            waiting = self._guards.get(header.producer_id)
            if not self.is_open(header.producer_id, header.producer_epoch) and (
                waiting is None or waiting.number != guard
            ):
                return ErrorCode.INVALID_TXN_STATE
        elif known is not None and known.first_offset >= 0:
            return ErrorCode.INVALID_TXN_STATE
        return self._sequence(known, header) if check_sequence else ErrorCode.NONE

    def _sequence(self, known: _Producer | None, header: BatchHeader) -> ErrorCode:
        first = header.base_sequence
        waiting = self._guards.get(header.producer_id)
        fresh = known is None or not known.batches
        if waiting is not None and waiting.bumps_epoch and fresh and first != 0:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        if known is None:
            return ErrorCode.NONE  # KAFKA-14359: whatever comes first is taken
        if known.epoch != header.producer_epoch or fresh:
            expected = 0
        else:
            expected = (known.batches[-1].last_sequence + 1) % _SEQUENCES
        return ErrorCode.NONE if first == expected else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    def marker_refusal(self, producer_id: int, epoch: int, coordinator_epoch: int, *, bumps_epoch: bool) -> ErrorCode:
        """Why a marker may not be appended."""
        known = self._producers.get(producer_id)
        if known is None:
            return ErrorCode.NONE
        if epoch < known.epoch or (bumps_epoch and epoch == known.epoch and known.first_offset >= 0):
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if coordinator_epoch < known.coordinator_epoch:
            return ErrorCode.TRANSACTION_COORDINATOR_FENCED
        return ErrorCode.NONE

    # what was appended

    def appended(self, header: BatchHeader, base_offset: int) -> None:
        """A data batch is in the log."""
        if header.producer_id < 0:
            return
        known = self._producers.get(header.producer_id)
        if known is None:
            known = self._producers[header.producer_id] = _Producer(header.producer_epoch, self._window)
        known.begin(header.producer_epoch)
        last_offset = base_offset + header.last_offset_delta
        if header.base_sequence >= 0:
            known.batches.append(Remembered(header.base_sequence, header.last_sequence, base_offset, last_offset))
        if header.is_transactional:
            if known.first_offset < 0:
                known.first_offset = base_offset
            self._guards.pop(header.producer_id, None)

    def ended(self, producer_id: int, epoch: int, coordinator_epoch: int, offset: int, *, commit: bool) -> None:
        """A marker is in the log at `offset`."""
        known = self._producers.get(producer_id)
        if known is None:
            known = self._producers[producer_id] = _Producer(epoch, self._window)
        known.begin(epoch)
        known.coordinator_epoch = coordinator_epoch
        waiting = self._guards.get(producer_id)
        if waiting is not None and not (waiting.bumps_epoch and waiting.epoch == epoch):
            del self._guards[producer_id]
        if known.first_offset >= 0:
            self.completed.append(Completed(producer_id, known.first_offset, offset, commit))
            known.first_offset = -1
