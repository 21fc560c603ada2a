"""What a leader knows of producers: the rules of idempotence and of open transactions (SPEC P3, KIP-98, KIP-890).

Every replica has such a table for its own log. So a new leader knows only what its own log says.
"""

from collections import deque
from typing import NamedTuple

from ottla.wire.batch import BatchHeader
from ottla.wire.errors import ErrorCode

#: How many batches of each producer are remembered.
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
    #: The offset of the marker.
    last_offset: int
    committed: bool


class _Producer:
    __slots__ = ("batches", "coordinator_epoch", "epoch", "first_offset")

    def __init__(self, epoch: int, window: int) -> None:
        self.epoch = epoch
        self.coordinator_epoch = -1
        #: First offset of the open transaction; -1 if there is none.
        self.first_offset = -1
        self.batches: deque[Remembered] = deque(maxlen=window)

    def begin(self, epoch: int) -> None:
        if epoch != self.epoch:
            self.epoch = epoch
            self.batches.clear()


class _Guard(NamedTuple):
    """A verification: the first batch of a transaction needs it."""

    number: int
    epoch: int
    #: The second protocol (KIP-890): a new transaction begins with sequence 0.
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
        """First offset of the oldest open transaction; None if no transaction is open."""
        return min((p.first_offset for p in self._producers.values() if p.first_offset >= 0), default=None)

    def guard(self, producer_id: int, epoch: int, *, bumps_epoch: bool) -> int:
        """A number that the append must carry. If a marker comes before the append, the number is no longer valid."""
        known = self._guards.get(producer_id)
        if known is not None and known.epoch >= epoch:
            return known.number
        self._last_guard += 1
        self._guards[producer_id] = _Guard(self._last_guard, epoch, bumps_epoch)
        return self._last_guard

    # decisions

    def is_old(self, producer_id: int, epoch: int) -> bool:
        """Whether this log has a newer epoch of the producer."""
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
        """Why a data batch must not be appended; NONE if it may be."""
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
            return ErrorCode.NONE  # KAFKA-14359: the first batch of a producer may have any sequence
        if known.epoch != header.producer_epoch or fresh:
            expected = 0
        else:
            expected = (known.batches[-1].last_sequence + 1) % _SEQUENCES
        return ErrorCode.NONE if first == expected else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    def marker_refusal(self, producer_id: int, epoch: int, coordinator_epoch: int, *, bumps_epoch: bool) -> ErrorCode:
        """Why a marker must not be appended; NONE if it may be."""
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
