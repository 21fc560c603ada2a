"""The transactions that a pass goes through: which batches were aborted, and which markers are not needed."""

from bisect import bisect_left
from collections.abc import Generator, Iterable, Iterator, Sequence
from heapq import merge
from operator import attrgetter
from typing import Final, NamedTuple

from ottla.log.cleaner.steps import WORKED
from ottla.log.storage import Buffer
from ottla.log.txn_index import AbortedTxn
from ottla.wire.batch import BatchHeader, is_emptied
from ottla.wire.markers import parse_end_txn_marker

#: So many are put in order at once: a millisecond.
_SORTED_AT_ONCE: Final = 5_000
_first_offset = attrgetter("first_offset")
_last_offset = attrgetter("last_offset")


class Aborted(NamedTuple):
    """The transactions that one segment's markers aborted, in the order of these: `known` ones, the rest is newer."""

    entries: Sequence[AbortedTxn]
    known: int


def in_order(segments: Iterable[Aborted], start: int = 0) -> Generator[int, None, Iterator[AbortedTxn]]:
    """The aborted transactions that end at `start` or later, as they begin. It yields after every few thousand."""
    runs = []
    for entries, known in segments:
        first = bisect_left(entries, start, 0, known, key=_last_offset)
        for at in range(first, known, _SORTED_AT_ONCE):
            runs.append(sorted(entries[at : min(at + _SORTED_AT_ONCE, known)], key=_first_offset))
            yield WORKED
    return merge(*runs, key=_first_offset)


class CleanedTransactions:
    """Call it for each batch from a log's first on, in order. `aborted` are those aborted there, as they begin."""

    def __init__(self, aborted: Iterable[AbortedTxn]) -> None:
        #: Those that are still to come, and the next one.
        self._coming = iter(aborted)
        self._next = next(self._coming, None)
        #: The open ones by producer id, and whether a batch of each was seen.
        self._aborted: dict[int, tuple[AbortedTxn, bool]] = {}
        self._committed: set[int] = set()
        #: Aborted transactions of which a batch is still there; who writes the new segment takes them from here.
        self.kept: list[AbortedTxn] = []

    def is_aborted(self, header: BatchHeader) -> bool:
        """Whether the batch's transaction was aborted. For a batch of data."""
        self._begin(header.last_offset)
        if not header.is_transactional:
            return False
        known = self._aborted.get(header.producer_id)
        if known is None:
            self._committed.add(header.producer_id)
            return False
        self._aborted[header.producer_id] = known[0], True
        return True

    def is_over(self, marker: Buffer, header: BatchHeader) -> bool:
        """Whether nothing was seen of the transaction that the marker ends. CorruptBatchError if it is no marker."""
        self._begin(header.last_offset)
        if is_emptied(header):
            return True
        if parse_end_txn_marker(marker)[0]:
            seen = header.producer_id in self._committed
            self._committed.discard(header.producer_id)
            return not seen
        entry, seen = self._aborted.pop(header.producer_id, (None, False))
        if entry is not None and seen:
            self.kept.append(entry)
        return not seen

    def _begin(self, offset: int) -> None:
        """Open the aborted transactions that begin at `offset` or before it."""
        while self._next is not None and self._next.first_offset <= offset:
            self._aborted.setdefault(self._next.producer_id, (self._next, False))
            self._next = next(self._coming, None)
