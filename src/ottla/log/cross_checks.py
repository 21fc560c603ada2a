"""What the files beside a log say, held against its batches one by one, in the order of the log.

Each class here takes the batches of a segment, or of a whole log, and says at the end what does not fit. None of them
keeps the batches: a log of any size is gone through with the entries of one index in memory.
"""

from collections.abc import Iterator
from enum import Enum
from typing import Final

from ottla.base.errors import CorruptDataError
from ottla.log.epochs import LeaderEpochs
from ottla.log.index import OffsetPosition, TimestampEntry
from ottla.log.names import LEADER_EPOCH_CHECKPOINT, SNAPSHOT, TXN_INDEX, base_offset, file_name
from ottla.log.producers import CompletedTransaction, ProducerEntry, ProducerState
from ottla.log.snapshot import decode_snapshot
from ottla.log.storage import Storage
from ottla.log.txn_index import AbortedTxn, TransactionIndex
from ottla.wire.batch import BatchHeader, is_emptied
from ottla.wire.markers import parse_end_txn_marker

#: Higher than every offset.
_ANY_OFFSET: Final = 2**63 - 1


class OffsetIndexCheck:
    """Every entry of a `.index` leads to a batch, and no entry's offset lies in a later entry's batch or behind it."""

    def __init__(self, name: str, entries: Iterator[OffsetPosition]) -> None:
        self.name = name
        self.fault: str | None = None
        self._entries = entries
        self._next = next(entries, None)
        self._offset = -1

    def take(self, position: int, header: BatchHeader) -> None:
        """The next batch."""
        entry = self._next
        if entry is None or entry.position > position or self.fault:
            return
        if entry.position < position:
            self.fault = f"no batch begins at position {entry.position}, where offset {entry.offset} leads"
        elif entry.offset < header.base_offset or self._offset >= header.base_offset:
            wrong = entry.offset if entry.offset < header.base_offset else self._offset
            self.fault = f"offset {wrong} does not lie where it leads: offset {header.base_offset} is at {position}"
        self._step()

    def skip(self, position: int) -> None:
        """Nobody can read what lies before `position`."""
        while self._next is not None and self._next.position < position:
            self._step()

    def end(self, end_offset: int) -> None:
        """There are no more batches; the last one ends before `end_offset`."""
        if self.fault is None and self._next is not None:
            self.fault = f"no batch begins at position {self._next.position}, where offset {self._next.offset} leads"
        elif self.fault is None and self._offset >= end_offset:
            self.fault = f"offset {self._offset} is not in the segment, which ends at {end_offset}"

    def _step(self) -> None:
        if self._next is not None:
            self._offset = self._next.offset
        self._next = next(self._entries, None)


class TimeIndexCheck:
    """Every entry of a `.timeindex` has the newest timestamp up to its offset."""

    def __init__(self, name: str, entries: Iterator[TimestampEntry]) -> None:
        self.name = name
        self.fault: str | None = None
        self._entries = entries
        self._next = next(entries, None)
        self._newest_ms = -1
        #: Batches that nobody can read may have had a later timestamp than those that were seen.
        self._is_exact = True

    def take(self, header: BatchHeader) -> None:
        """The next batch."""
        self._compare(header.base_offset)
        self._newest_ms = max(self._newest_ms, header.max_timestamp_ms)

    def skip(self) -> None:
        """Nobody can read the next batches."""
        self._is_exact = False

    def end(self, end_offset: int) -> None:
        """There are no more batches; the last one ends before `end_offset`."""
        self._compare(end_offset)
        if self.fault is None and self._next is not None:
            self.fault = f"offset {self._next.offset} is not in the segment, which ends at {end_offset}"

    def _compare(self, before_offset: int) -> None:
        """Look at the entries whose batches were taken."""
        while self._next is not None and self._next.offset < before_offset:
            timestamp_ms, offset = self._next
            wrong = timestamp_ms != self._newest_ms if self._is_exact else timestamp_ms < self._newest_ms
            if wrong and self.fault is None:
                self.fault = f"the newest timestamp up to offset {offset} is {self._newest_ms}, not {timestamp_ms}"
            self._next = next(self._entries, None)


class Trust(Enum):
    """How much the batches that were taken say of a transaction that ends."""

    #: The log begins at offset 0, and every batch of it was taken.
    ALL = "all"
    #: Older batches were deleted: a transaction, or a producer, may have begun in them.
    BEGINS_LATER = "begins later"
    #: Batches in between could not be read, or were compacted away.
    BATCHES_ARE_MISSING = "batches are missing"


class AbortsCheck:
    """The `.txnindex` of a segment names the transactions that its markers aborted, and no other."""

    def __init__(self, storage: Storage, base: int, limit_offset: int, begins_at: int) -> None:
        """Of the segment at `base`; the log's first batch is at `begins_at`."""
        self._begins_at = begins_at
        index = TransactionIndex(storage, file_name(base, TXN_INDEX))
        self.name = index.name
        self.fault: str | None = None
        self._entries: list[AbortedTxn] = []
        self._at = 0
        if index.name in storage.names():
            try:
                index.load(base, limit_offset)
                self._entries = index.entries
            except CorruptDataError as fault:
                self.fault = str(fault).removeprefix(f"{index.name}: ")

    def take(self, offset: int, ended: CompletedTransaction | None, *, commit: bool, trust: Trust) -> None:
        """The next transaction marker, at `offset`; `ended` is the transaction that it ends, where that is known."""
        self._pass_by(offset, trust)
        if self.fault is not None:
            return
        found = self._entries[self._at] if self._at < len(self._entries) else None
        if found is None or found.last_offset != offset:
            if ended is not None and not commit and trust is not Trust.BATCHES_ARE_MISSING:
                self.fault = (
                    f"the transaction of producer {ended.producer_id} that was aborted at offset {offset} is missing: "
                    "readers would be shown its records"
                )
            return
        self._at += 1
        if commit or (trust is Trust.ALL and ended is None):
            self.fault = f"the marker at offset {offset} aborts nothing"
        elif ended is not None and trust is not Trust.BATCHES_ARE_MISSING:
            expected = AbortedTxn(ended.producer_id, ended.first_offset, ended.last_offset, ended.last_stable_offset)
            began_before = found.first_offset < self._begins_at and found.producer_id == ended.producer_id
            if (found[:3] != expected[:3] and not began_before) or (trust is Trust.ALL and found != expected):
                self.fault = f"{found} should be {expected}"

    def end(self, trust: Trust) -> None:
        """There are no more markers."""
        self._pass_by(_ANY_OFFSET, trust)

    def _pass_by(self, offset: int, trust: Trust) -> None:
        """Entries before `offset` have no marker."""
        while self.fault is None and self._at < len(self._entries) and self._entries[self._at].last_offset < offset:
            if trust is not Trust.BATCHES_ARE_MISSING:
                self.fault = f"there is no abort marker at offset {self._entries[self._at].last_offset}"
            self._at += 1


class ProducersCheck:
    """Replays the producers, and holds every `.snapshot` against them where the log has come so far."""

    def __init__(self, storage: Storage, first_offset: int, *, is_complete: bool, is_cleaned: bool = False) -> None:
        """The log's first batch is at `first_offset`; `is_complete` says that all its batches are there, from 0 on,
        and `is_cleaned` that any may be gone but a producer's last one."""
        self.state = ProducerState(first_offset)
        #: Snapshots that contradict the batches, and those that cannot be read; each with the cause.
        self.faults: list[tuple[str, str]] = []
        self.damaged: list[tuple[str, str]] = []
        self._storage = storage
        self._first_offset = first_offset
        self._is_complete = is_complete
        self._is_cleaned = is_cleaned
        #: Where batches could not be read.
        self._unread_to = first_offset
        offsets = (base_offset(name, SNAPSHOT) for name in storage.names())
        self._waiting = sorted((each for each in offsets if each is not None), reverse=True)

    def take(self, header: BatchHeader, batch: memoryview) -> tuple[CompletedTransaction | None, bool] | None:
        """The next batch. For a transaction's marker: what it ends, and whether it commits."""
        self._compare(header.base_offset)
        self.state.end_offset = header.last_offset + 1
        if header.producer_id < 0 or (header.is_control and is_emptied(header)):
            return None
        offset, timestamp_ms = header.base_offset, header.max_timestamp_ms
        if not header.is_control:
            self.state.apply_batch(header, offset, timestamp_ms, timestamp_ms)
            return None
        commit, coordinator_epoch = parse_end_txn_marker(batch)
        ended = self.state.apply_marker(
            header, offset, committed=commit, coordinator_epoch=coordinator_epoch, now_ms=timestamp_ms
        )
        return ended, commit

    def skip(self, end_offset: int) -> None:
        """Nobody can read the batches before `end_offset`."""
        self._unread_to, self._is_complete = end_offset, False

    def end(self) -> None:
        """There are no more batches."""
        self._compare(_ANY_OFFSET)

    def _compare(self, up_to: int) -> None:
        while self._waiting and self._waiting[-1] <= up_to:
            offset = self._waiting.pop()
            name = file_name(offset, SNAPSHOT)
            try:
                said = decode_snapshot(self._storage.read(name) or b"", offset)
            except CorruptDataError as fault:
                self.damaged.append((name, str(fault)))
                continue
            if offset < self._first_offset:
                continue
            wrong = next((each for each in said.producers.values() if self._is_wrong(each, offset)), None)
            if wrong is not None:
                self.faults.append((name, f"producer {wrong.producer_id} did not write what it says at {offset}"))

    def _is_wrong(self, said: ProducerEntry, end_offset: int) -> bool:
        """Whether the batches contradict an entry of the snapshot at `end_offset`."""
        if not said.batches or said.batches[-1].last_offset < self._unread_to:
            return False
        last, mine = said.batches[-1], self.state.producers.get(said.producer_id)
        if mine is None or not mine.batches:
            return self._is_complete
        known = mine.batches[-1]
        if self._is_cleaned and known.last_offset < last.last_offset < end_offset:
            return False  # it was the last one then, and is gone: the cleaner keeps a later one
        same = (last.last_offset, last.last_sequence, said.producer_epoch) == (
            known.last_offset,
            known.last_sequence,
            mine.producer_epoch,
        )
        if not same:
            return True
        # Those before the last one may be gone from a compacted log. One that is there must be what the snapshot says.
        there = {batch.last_offset: batch[:3] for batch in mine.batches}
        if any(there.get(batch.last_offset, batch[:3]) != batch[:3] for batch in said.batches):
            return True
        return self._is_complete and said.txn_first_offset != mine.txn_first_offset


class EpochsCheck:
    """The leader epoch in each batch is the one that `leader-epoch-checkpoint` has for its offset."""

    def __init__(self, storage: Storage) -> None:
        self._epochs = LeaderEpochs(storage)
        #: The pair that was told last: one sentence for a run of batches.
        self._told: tuple[int, int] | None = None

    def take(self, header: BatchHeader, start_offset: int) -> str | None:
        """The next batch; what is wrong with it. The log begins at `start_offset`, perhaps behind its first batches."""
        pair = header.partition_leader_epoch, self._epochs.at(max(header.base_offset, start_offset))
        if header.last_offset < start_offset:
            return None
        if pair[0] in (-1, pair[1]):
            self._told = None
            return None
        if pair == self._told:
            return None
        self._told = pair
        return (
            f"the batch at offset {header.base_offset} is of leader epoch {pair[0]}, and "
            f"{LEADER_EPOCH_CHECKPOINT} says {pair[1]}"
        )
