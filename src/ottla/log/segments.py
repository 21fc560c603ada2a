"""A partition's segments in order: which of them holds an offset, and at which position."""

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice, pairwise
from typing import Final

from ottla.base.errors import StorageError
from ottla.base.require import require
from ottla.log.config import LogConfig
from ottla.log.locating import locate
from ottla.log.names import LOG, file_name
from ottla.log.producers import CompletedTransaction
from ottla.log.results import AbortedTransaction
from ottla.log.segment import Segment, delete_segments
from ottla.log.storage import File, Storage
from ottla.log.txn_index import AbortedTxn, AbortsSeal

#: How many positions of the newest batches are kept in memory. A consumer at the end of the log reads there next.
_RECENT_BATCHES: Final = 256
#: How many closed segments stay loaded (file and index entries): those that were read last.
_LOADED_SEGMENTS: Final = 4


class Segments:
    """At least one segment; the last is the active one."""

    def __init__(self, storage: Storage, segments: Sequence[Segment]) -> None:
        self._storage = storage
        self._segments = list(segments)
        self._bases = [segment.base_offset for segment in segments]
        #: Those in which transactions were aborted: a log may have thousands of others, and each read asks.
        self._aborting = [segment for segment in segments if segment.txn_index.entries]
        self._recent: dict[int, int] = {}
        self._loaded: deque[Segment] = deque()
        #: Segments that are no part of the log any more, but whose files must still be deleted.
        self._retired: list[Segment] = []
        self.active = segments[-1]
        #: The disk has refused a roll in its middle, and may hold a file of the segment that should follow.
        self.is_rolling = False
        #: A large batch is being written to the active segment (`parts`): nothing may come behind it, nor a roll.
        self.is_held = False
        #: The first file's name is on the device for certain.
        self.is_named = False
        #: The files may be those of another log by now.
        self._is_closed = False

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def __len__(self) -> int:
        return len(self._segments)

    def __getitem__(self, number: int) -> Segment:
        return self._segments[number]

    @property
    def bases(self) -> tuple[int, ...]:
        """Their base offsets."""
        return tuple(self._bases)

    @property
    def is_unnamed(self) -> bool:
        """Whether there is one file, and the device may not know its name."""
        return not self.is_named and len(self._segments) == 1

    def roll(self, end_offset: int, config: LogConfig, now_ms: int) -> None:
        """Close the active segment and begin the next one at the end of the log.

        StorageError when the disk refuses it. If it does so in the middle (`is_rolling`), nothing may be appended
        before another call has made the roll: there may be a file of the next segment, and its name says that no batch
        with such an offset is in this one.

        The first file of a log has its name on the device before there is a second one. Else the second might be there
        alone after a loss of power, and the log begin with it. Nearly always a flush has seen to that before, or the
        log's owner (`rolling`).
        """
        if self.is_unnamed:
            self._storage.sync_names()
            self.is_named = True
        self.to_append().end()
        was_rolling, self.is_rolling = self.is_rolling, True
        segment = Segment.create(self._storage, end_offset, config, now_ms)
        if was_rolling:
            segment.remove_mark()
        self._add(segment)
        self.is_rolling = False

    def to_append(self) -> Segment:
        """The active segment. StorageError behind `close`."""
        if self.is_held or self._is_closed:
            require(not self.is_held, "a large batch is being written")
            raise StorageError(f"the log with {self.active.log_name} is closed")
        return self.active

    def close(self) -> None:
        """Close the files. They are opened again to be read, but nothing is appended any more."""
        self._is_closed = True
        for segment in self._segments:
            segment.close()

    def _add(self, segment: Segment) -> None:
        """Make `segment` the active one."""
        self._remember(self.active)
        self._segments.append(segment)
        self._bases.append(segment.base_offset)
        self.active = segment
        self._recent.clear()

    def retire_first(self, count: int) -> None:
        """Take the oldest `count` segments out of the log; `delete_retired` removes their files."""
        gone, self._segments = self._segments[:count], self._segments[count:]
        del self._bases[:count]
        self._retired += gone
        self._aborting = [segment for segment in self._aborting if segment.base_offset >= self._bases[0]]
        self._forget(gone)

    def has_all(self, bases: Sequence[int]) -> bool:
        """Whether closed segments with these base offsets follow one another in the log."""
        number = bisect_right(self._bases, bases[0]) - 1
        return number >= 0 and self._bases[number : number + len(bases)] == list(bases) and bases[-1] < self._bases[-1]

    def replace(self, bases: Sequence[int], segment: Segment) -> list[Segment]:
        """Put a closed segment in the place of those with these base offsets (`has_all`), which are returned."""
        number, count = self._bases.index(bases[0]), len(bases)
        gone = self._segments[number : number + count]
        self._segments[number : number + count] = [segment]
        self._bases[number : number + count] = [segment.base_offset]
        self._aborting = [each for each in self._segments if each.txn_index.entries]
        self._forget(gone)
        return gone

    def _forget(self, gone: Sequence[Segment]) -> None:
        for segment in gone:
            if segment in self._loaded:
                self._loaded.remove(segment)

    @property
    def has_retired(self) -> bool:
        """Whether segments that are out of the log have files that are still to be deleted."""
        return bool(self._retired)

    def delete_retired(self) -> int:
        """Delete the files of segments that are out of the log; how many segments.

        StorageError when a file cannot be deleted. The next call goes on there.
        """
        count = len(self._retired)
        delete_segments(self._storage, self._retired)
        return count

    @property
    def retired_bases(self) -> tuple[int, ...]:
        """Base offsets of segments that are out of the log, and may have files still."""
        return tuple(segment.base_offset for segment in tuple(self._retired))

    def retired_files(self, offset: int) -> list[File]:
        """The log files that such segments have with records at `offset` or later.

        A loss of power may bring a file back that is deleted, and the log would end where it is not whole. So they are
        synced before the segments behind them; those that are gone in the meantime, by their names.
        """
        bases = [*self.retired_bases, self._bases[0]]
        files = []
        for base, end in pairwise(bases):
            name = file_name(base, LOG)
            if end > offset:
                try:
                    files.append(self._storage.open(name))
                except StorageError:
                    if name in self._storage.names():
                        raise
        return files

    def note(self, offset: int, position: int) -> None:
        """A batch with this base offset was written at this position of the active segment."""
        recent = self._recent
        if len(recent) >= _RECENT_BATCHES:
            recent.clear()
        recent[offset] = position

    def is_recent(self, offset: int) -> bool:
        """Whether a batch with this base offset was written not long ago, by this process."""
        return offset in self._recent

    def find(self, offset: int) -> tuple[Segment, int] | None:
        """The segment and position of the first batch that ends at `offset` or later; None at the end of the log."""
        position = self._recent.get(offset)
        if position is not None:
            return self.active, position
        for segment in self._from(offset):
            if segment is not self.active:
                self._remember(segment)
            position = locate(segment, offset)
            if position is not None:
                return segment, position
        return None

    def holding(self, offset: int) -> Segment:
        """The segment with this offset, if any has it; else the next one."""
        return self._segments[max(bisect_right(self._bases, offset) - 1, 0)]

    def newest(self, without: Container[Segment], from_offset: int) -> Segment | None:
        """Of the segments that are not among those, and may have records at `from_offset` or later, the one with the
        newest timestamp; of equal ones the oldest."""
        left = (segment for segment in self._from(from_offset) if segment not in without)
        return max(left, key=lambda segment: segment.max_timestamp_ms, default=None)

    def has(self, segment: Segment) -> bool:
        """Whether the segment is part of the log still."""
        number = bisect_right(self._bases, segment.base_offset) - 1
        return number >= 0 and self._segments[number] is segment

    @contextmanager
    def loaded(self, segment: Segment) -> Iterator[None]:
        """For a search: what it loads of a closed segment is let go afterwards."""
        segment.load_indexes()
        try:
            yield
        finally:
            if segment is not self.active and segment not in self._loaded:
                segment.unload()

    def note_abort(self, ended: CompletedTransaction) -> None:
        """A marker that was just written to the active segment has aborted this transaction."""
        self.active.txn_index.append(
            AbortedTxn(ended.producer_id, ended.first_offset, ended.last_offset, ended.last_stable_offset)
        )
        if not self._aborting or self._aborting[-1] is not self.active:
            self._aborting.append(self.active)

    def has_aborted(self, segment: Segment) -> bool:
        """Whether any marker in `segment` or after it aborted a transaction."""
        return bool(self._aborting) and self._aborting[-1].base_offset >= segment.base_offset

    def aborted(self, segment: Segment, from_offset: int, end_offset: int) -> tuple[AbortedTransaction, ...]:
        """Aborted transactions with records in the range, which begins in `segment`."""
        found = []
        first = bisect_left(self._aborting, segment.base_offset, key=lambda each: each.base_offset)
        for each in islice(self._aborting, first, None):
            entries, more = each.txn_index.overlapping(from_offset, end_offset)
            found += [AbortedTransaction(entry.producer_id, entry.first_offset) for entry in entries]
            if not more:
                break
        return tuple(found)

    def aborts(self) -> dict[int, AbortsSeal]:
        """What the `.txnindex` of each segment in which transactions were aborted must hold, by base offset."""
        return {each.base_offset: each.txn_index.seal() for each in self._aborting}

    def following_base(self, segment: Segment) -> int | None:
        """The base offset of the segment after this one, or None for the active one."""
        number = bisect_right(self._bases, segment.base_offset)
        return self._bases[number] if number < len(self._bases) else None

    def ending_after(self, offset: int) -> list[Segment]:
        """The segments that may hold records at `offset` or later."""
        return list(self._from(offset))

    def _from(self, offset: int) -> Iterator[Segment]:
        number = max(bisect_right(self._bases, offset) - 1, 0)
        return map(self._segments.__getitem__, range(number, len(self._segments)))

    def _remember(self, segment: Segment) -> None:
        loaded = self._loaded
        if loaded and loaded[-1] is segment:
            return
        segment.load_indexes()
        if segment in loaded:
            loaded.remove(segment)
        loaded.append(segment)
        if len(loaded) > _LOADED_SEGMENTS:
            loaded.popleft().unload()
