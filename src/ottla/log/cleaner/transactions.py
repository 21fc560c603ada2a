"""The transactions that a pass goes through: which batches were aborted, and which markers are not needed."""

from collections.abc import Iterable

from ottla.log.storage import Buffer
from ottla.log.txn_index import AbortedTxn
from ottla.wire.batch import BatchHeader, is_emptied, parse_end_txn_marker


class CleanedTransactions:
    """Call it for each batch from a log's first on, in order. `aborted` are all transactions aborted there."""

    def __init__(self, aborted: Iterable[AbortedTxn]) -> None:
        #: Those that are still to come, the next one last.
        self._coming = sorted(aborted, key=lambda each: -each.first_offset)
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
        while self._coming and self._coming[-1].first_offset <= offset:
            entry = self._coming.pop()
            self._aborted.setdefault(entry.producer_id, (entry, False))
