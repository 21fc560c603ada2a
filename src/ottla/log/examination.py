"""Reads every byte of a partition's directory, and says what does not fit together.

A start looks at the ends of flushed segments, and reads only what a crash may have torn (`recovery`). This is for
somebody who has the time: every batch against its CRC, every offset against the one before, every entry of every index,
every snapshot and leader epoch against the batches. It runs after recovery, so what recovery mends it does not find
again, and it changes nothing.

Files of the log cleaner that is at work, or was stopped (`.cleaned`, `.swap`), are no damage and are passed over.
"""

from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from enum import Enum
from typing import Final, NamedTuple

from ottla.base.errors import CorruptDataError
from ottla.log.cross_checks import AbortsCheck, EpochsCheck, OffsetIndexCheck, ProducersCheck, TimeIndexCheck, Trust
from ottla.log.damage import OffsetRange
from ottla.log.index import offset_entries, time_entries
from ottla.log.names import LOG, OFFSET_INDEX, TIME_INDEX, base_offset, file_name
from ottla.log.storage import Storage
from ottla.wire.batch import BatchHeader, check_integrity, find_whole_batch, parse_header

#: After how many bytes progress is told.
_PROGRESS_BYTES: Final = 8_388_608
_ANY_OFFSET: Final = 2**63 - 1


class FlawKind(Enum):
    """What follows from a flaw."""

    #: Bytes of a log file that are no batch: who reads there gets an error.
    UNREADABLE = "unreadable"
    #: The same, within a hole that is known.
    KNOWN = "known"
    #: Offsets are missing between two whole batches, and nothing says why.
    GAP = "gap"
    #: Two files contradict each other, and neither can be made from the other.
    CONTRADICTION = "contradiction"
    #: A file that can be made again from the log.
    DERIVED = "derived"


class Flaw(NamedTuple):
    """One thing that does not fit."""

    kind: FlawKind
    #: The file, without its folder.
    file: str
    cause: str
    position: int | None = None
    first_offset: int | None = None
    end_offset: int | None = None


class Scope(NamedTuple):
    """What is known of a log that is examined."""

    #: From its start to its end.
    extent: OffsetRange
    #: Flushed records that are known to be gone.
    holes: Collection[OffsetRange] = ()
    #: Offsets below may be missing: the log is compacted, or was.
    compacted_below: int = 0


def examine(storage: Storage, scope: Scope, advance: Callable[[int], None]) -> Iterator[Flaw]:
    """Everything that is wrong with the partition in `storage`; `advance` hears how many bytes were read since.

    StorageError when a file cannot be read.
    """
    bases = sorted(base for base in (base_offset(name, LOG) for name in storage.names()) if base is not None)
    walk = _Walk(storage, scope, bases, advance)
    for number, base in enumerate(bases):
        limit_offset = bases[number + 1] if number + 1 < len(bases) else _ANY_OFFSET
        yield from walk.segment(base, limit_offset)
    yield from walk.end()


class _Walk:
    def __init__(self, storage: Storage, scope: Scope, bases: list[int], advance: Callable[[int], None]) -> None:
        self._storage = storage
        self._scope = scope
        self._advance = advance
        is_cleaned = scope.compacted_below > 0
        if is_cleaned or scope.holes:
            self._trust = Trust.BATCHES_ARE_MISSING
        else:
            self._trust = Trust.ALL if bases[:1] == [0] else Trust.BEGINS_LATER
        is_whole = self._trust is Trust.ALL
        self._is_damaged = False
        self._begins_at = bases[0] if bases else 0
        self._producers = ProducersCheck(storage, self._begins_at, is_complete=is_whole, is_cleaned=is_cleaned)
        self._epochs = EpochsCheck(storage)
        self._gaps = _Gaps()

    def segment(self, base: int, limit_offset: int) -> Iterator[Flaw]:
        """One segment and the indexes beside it."""
        checks = _Beside(self._storage, base, limit_offset, self._begins_at)
        log = self._storage.open(file_name(base, LOG))
        next_offset = base
        try:
            with log.map() as view:
                position = told = 0
                while position < len(view):
                    found = _batch_at(view, position, next_offset, limit_offset)
                    if isinstance(found, BatchHeader):
                        yield from self._batch(view, position, found, next_offset, checks)
                        position, next_offset = position + found.size_bytes, found.last_offset + 1
                    else:
                        at, flaw = self._unreadable(view, position, next_offset, (base, limit_offset), found)
                        position, next_offset = at, flaw.end_offset or next_offset
                        checks.skip(position)
                        self._skip(next_offset)
                        yield from self._gaps.told()
                        yield from self._unless_known(flaw)
                    if position - told >= _PROGRESS_BYTES:
                        self._advance(position - told)
                        told = position
                self._advance(len(view) - told)
                yield from self._gaps.told()
        finally:
            log.close()
        for name, cause in checks.end(next_offset, self._trust):
            yield self._derived(name, cause)

    def end(self) -> Iterator[Flaw]:
        """What the whole log says."""
        self._producers.end()
        for name, cause in self._producers.damaged:
            yield Flaw(FlawKind.DERIVED, name, cause)
        for name, cause in self._producers.faults:
            yield self._derived(name, cause)

    def _derived(self, name: str, cause: str) -> Flaw:
        """A file that does not fit the log. From a damaged log it must not be made again: it may know better."""
        if self._is_damaged:
            return Flaw(FlawKind.CONTRADICTION, name, f"{cause}; but the log itself is damaged")
        return Flaw(FlawKind.DERIVED, name, cause)

    def _batch(
        self, view: memoryview, position: int, header: BatchHeader, next_offset: int, checks: "_Beside"
    ) -> Iterator[Flaw]:
        gap = OffsetRange(next_offset, header.base_offset)
        if gap.first_offset < gap.end_offset > self._scope.compacted_below:
            name = file_name(checks.base, LOG)
            flaw = Flaw(FlawKind.GAP, name, f"there are no records at offsets {gap}", position, *gap)
            self._skip(header.base_offset)
            for unknown in self._unless_known(flaw):
                yield from self._gaps.add(unknown)
        checks.take(position, header)
        cause = self._epochs.take(header, self._scope.extent.first_offset)
        if cause is not None:
            name = file_name(checks.base, LOG)
            yield Flaw(FlawKind.CONTRADICTION, name, cause, position, header.base_offset, header.last_offset + 1)
        # The only fault there can be is a control record that is no marker.
        with view[position : position + header.size_bytes] as batch, suppress(CorruptDataError):
            marker = self._producers.take(header, batch)
            if marker is not None:
                checks.aborts.take(header.base_offset, marker[0], commit=marker[1], trust=self._trust)

    def _unreadable(
        self, view: memoryview, position: int, next_offset: int, bounds: tuple[int, int], cause: str
    ) -> tuple[int, Flaw]:
        """Where the next whole batch is, and what lies before it."""
        base, limit_offset = bounds
        found = find_whole_batch(view, position + 1, next_offset, limit_offset)
        if found is None:
            end_offset = limit_offset if limit_offset < _ANY_OFFSET else self._scope.extent.end_offset
            found = len(view), max(end_offset, next_offset)
        at, end_offset = found
        lost = OffsetRange(next_offset, end_offset)
        whose = f"the records at offsets {lost} cannot be read" if next_offset < end_offset else "no record is lost"
        cause = f"{at - position} bytes are no batch ({cause}): {whose}"
        return at, Flaw(FlawKind.UNREADABLE, file_name(base, LOG), cause, position, next_offset, end_offset)

    def _skip(self, end_offset: int) -> None:
        self._is_damaged = True
        self._trust = Trust.BATCHES_ARE_MISSING
        self._producers.skip(end_offset)

    def _unless_known(self, flaw: Flaw) -> Iterator[Flaw]:
        """Nothing for records that were deleted; less for a hole, which is told already."""
        first, end = flaw.first_offset or 0, flaw.end_offset or 0
        if first < end <= self._scope.extent.first_offset:
            return
        if any(hole.first_offset <= first and end <= hole.end_offset for hole in self._scope.holes):
            flaw = flaw._replace(kind=FlawKind.KNOWN)
        yield flaw


class _Gaps:
    """Gaps of one file that follow each other are told in one sentence: there may be one behind each batch."""

    def __init__(self) -> None:
        self._first: Flaw | None = None
        self._count = self._offsets = 0

    def add(self, gap: Flaw) -> Iterator[Flaw]:
        """One more, with its offsets; those before it, if they are of another kind."""
        if self._first is not None and self._first.kind is not gap.kind:
            yield from self.told()
        first = gap if self._first is None else self._first
        self._first = first._replace(end_offset=gap.end_offset)
        self._count += 1
        self._offsets += (gap.end_offset or 0) - (gap.first_offset or 0)

    def told(self) -> Iterator[Flaw]:
        """All of them, if there are any."""
        if self._first is not None:
            cause = f"and {self._offsets:,} offsets in all are missing in {self._count:,} places from here on"
            flaw = self._first
            yield flaw if self._count == 1 else flaw._replace(cause=f"{flaw.cause}, {cause}")
        self._first, self._count, self._offsets = None, 0, 0


class _Beside:
    """The indexes of one segment."""

    def __init__(self, storage: Storage, base: int, limit_offset: int, begins_at: int) -> None:
        self.base = base
        name = file_name(base, OFFSET_INDEX)
        self._offsets = OffsetIndexCheck(name, offset_entries(storage.read(name) or b"", base))
        name = file_name(base, TIME_INDEX)
        self._times = TimeIndexCheck(name, time_entries(storage.read(name) or b"", base))
        self.aborts = AbortsCheck(storage, base, limit_offset, begins_at)

    def take(self, position: int, header: BatchHeader) -> None:
        self._offsets.take(position, header)
        self._times.take(header)

    def skip(self, position: int) -> None:
        self._offsets.skip(position)
        self._times.skip()

    def end(self, end_offset: int, trust: Trust) -> Iterator[tuple[str, str]]:
        self._offsets.end(end_offset)
        self._times.end(end_offset)
        self.aborts.end(trust)
        for check in (self._offsets, self._times, self.aborts):
            if check.fault is not None:
                yield check.name, check.fault


def _batch_at(view: memoryview, position: int, next_offset: int, limit_offset: int) -> BatchHeader | str:
    """The batch, or why there is none."""
    try:
        header = parse_header(view, position)
        check_integrity(view, position, header)
    except CorruptDataError as fault:
        return str(fault)
    if not next_offset <= header.base_offset <= header.last_offset < limit_offset:
        return f"its offset {header.base_offset} does not follow {next_offset - 1}"
    return header
