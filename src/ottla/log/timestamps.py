"""ListOffsets by time: finds the first record at or after a time, by the time index, batch headers, and one batch.

A search is an iterator, because it may have to look at much: it yields every so many headers, and each batch whose
records have to be walked (`BatchSearch`). Whoever takes the steps may walk a batch elsewhere. Between two steps the log
may change, so a search keeps no segment loaded over a step: it goes on in the file that it has begun with.
"""

from collections.abc import Generator, Iterator
from itertools import chain
from typing import Final, TypeAlias

from ottla.base.errors import CorruptDataError, StorageError, kept
from ottla.base.limits import MAX_INLINE_OPENED_BYTES, RECORDS_AT_ONCE
from ottla.log.epochs import LeaderEpochs
from ottla.log.locating import locate
from ottla.log.results import TimestampOffset
from ottla.log.segment import Segment
from ottla.log.segments import Segments
from ottla.log.storage import File, Slice
from ottla.wire.batch import BatchHeader, Compression, TimestampType
from ottla.wire.special_timestamp import SpecialTimestamp

#: Headers that are looked at in one step: a fifth of a millisecond.
HEADERS_AT_ONCE: Final = 100
#: Segments that are passed over in one step, because their records are all older.
_SEGMENTS_AT_ONCE: Final = 100
#: Before every time that a record can have.
_NO_TIME_MS: Final = -(2**63)

#: Steps, and what was found.
Search: TypeAlias = Generator["BatchSearch | None", None, TimestampOffset | None]


class BatchSearch:
    """A batch whose records are walked: to the first of at least a time, or for the first with the newest one.

    No record is built. `run` may be called in another thread; `result` does it in place if nobody has.
    """

    __slots__ = ("_fault", "_found", "_from_offset", "_header", "_is_done", "_slice", "_timestamp_ms")

    def __init__(
        self, file: File, position: int, header: BatchHeader, timestamp_ms: int | None, from_offset: int
    ) -> None:
        """With a `timestamp_ms` of None the newest record is wanted."""
        self._slice = Slice(file, position, header.size_bytes)
        self._header = header
        self._timestamp_ms = timestamp_ms
        self._from_offset = from_offset
        self._is_done = False
        self._found: TimestampOffset | None = None
        self._fault: CorruptDataError | StorageError | None = None

    @property
    def size_bytes(self) -> int:
        """Of the batch, as it is in the file."""
        return self._slice.length_bytes

    @property
    def is_long(self) -> bool:
        """Whether nobody's loop should do it: a few compressed bytes may stand for millions of records."""
        return self._header.compression is not Compression.NONE or self.size_bytes > MAX_INLINE_OPENED_BYTES

    def run(self) -> None:
        """Walk the records."""
        try:
            self._found = self._walk()
        except (CorruptDataError, StorageError) as fault:
            self._fault = kept(fault)
        self._is_done = True

    def result(self) -> TimestampOffset | None:
        """What was found. CorruptDataError, StorageError."""
        if not self._is_done:
            self.run()
        if self._fault is not None:
            raise self._let_go()
        return self._found

    def _let_go(self) -> CorruptDataError | StorageError:
        """The fault. No frame of its traceback may hold it, and this one is not among them: see `kept`."""
        fault, self._fault, self._is_done = self._fault, None, False
        assert fault is not None
        return fault

    def _walk(self) -> TimestampOffset | None:
        from ottla.wire.record_codec import find_newest, find_time
        from ottla.wire.records import open_batch  # both imported here: few batches are opened

        cursor = open_batch(self._slice.read(), 0, self._header)
        epoch, start, time_ms = self._header.partition_leader_epoch, self._from_offset, self._timestamp_ms
        if time_ms is not None:
            while cursor.taken < cursor.count:
                if find_time(cursor, RECORDS_AT_ONCE, time_ms, start):
                    return TimestampOffset(cursor.timestamp_ms, cursor.offset, epoch)
            return None
        newest_ms, offset = _NO_TIME_MS, -1
        while cursor.taken < cursor.count:
            newest_ms, offset = find_newest(cursor, RECORDS_AT_ONCE, start, newest_ms, offset)
        return TimestampOffset(newest_ms, offset, epoch) if offset >= 0 else None


def search(segments: Segments, epochs: LeaderEpochs, timestamp_ms: int, start_offset: int, limit_offset: int) -> Search:
    """What ListOffsets answers, in a log from `start_offset` up to `limit_offset`."""
    match timestamp_ms:
        case SpecialTimestamp.LATEST:
            return TimestampOffset(-1, limit_offset, epochs.leaders)
        case SpecialTimestamp.EARLIEST | SpecialTimestamp.EARLIEST_LOCAL:
            return TimestampOffset(-1, start_offset, epochs.at(start_offset))
        case SpecialTimestamp.LATEST_TIERED | SpecialTimestamp.EARLIEST_PENDING_UPLOAD:
            return TimestampOffset(-1, -1)  # there is no tiered storage
        case SpecialTimestamp.MAX_TIMESTAMP:
            found = yield from _newest_record(segments, start_offset)
        case _:
            found = yield from _find_timestamp(segments, timestamp_ms, start_offset)
    return found if found is not None and found.offset < limit_offset else None


def _find_timestamp(segments: Segments, timestamp_ms: int, from_offset: int) -> Search:
    """The first record at `from_offset` or later whose timestamp is `timestamp_ms` or later, or None."""
    at: int | None = from_offset
    passed = 0
    while at is not None:
        segment = segments.holding(at)
        at = segments.following_base(segment)
        if segment.max_timestamp_ms < timestamp_ms:
            passed += 1
            if passed % _SEGMENTS_AT_ONCE == 0:
                yield None
            continue
        with segments.loaded(segment):
            # No record up to the entry's offset has a later timestamp than the entry, and none before its batch has
            # the same one.
            before = segment.time_index.lookup(timestamp_ms).offset
            batches = _Batches(segment, segment.position_to(max(before, from_offset)))
        for batch in batches:
            if batch is None:
                yield None
                continue
            position, header = batch
            if header.max_timestamp_ms >= timestamp_ms and header.last_offset >= from_offset:
                found = yield from _first_record(batches.file, position, header, timestamp_ms, from_offset)
                if found is not None:
                    return found
        yield None
    return None


def _newest_record(segments: Segments, from_offset: int) -> Search:
    """Of the records at `from_offset` or later, the first one with the newest timestamp (KIP-734).

    None when no record has a timestamp. Segments come by their newest timestamps, latest first. Usually one is read.
    """
    newest: TimestampOffset | None = None
    looked: set[Segment] = set()
    while (segment := segments.newest(looked, from_offset)) is not None:
        if segment.max_timestamp_ms <= (newest.timestamp_ms if newest is not None else -1):
            break
        looked.add(segment)
        found = yield from _newest_in(segments, segment, from_offset)
        if found is not None and (newest is None or found.timestamp_ms > newest.timestamp_ms):
            newest = found
        yield None
    return newest


def _newest_in(segments: Segments, segment: Segment, from_offset: int) -> Search:
    newest_ms, last_offset = segment.max_timestamp_ms, segment.max_timestamp_offset
    if last_offset >= from_offset:
        with segments.loaded(segment):
            file, position = segment.log, locate(segment, last_offset)
            header = None if position is None else segment.header_at(position)
        if position is not None and header is not None:
            found = yield from _first_record(file, position, header, newest_ms, from_offset)
            if found is not None:
                return found
            if not segments.has(segment):
                return None  # what the cleaner has put in its place will be looked at
    # The record that the indexes name is deleted, so the batches that are left must be read.
    with segments.loaded(segment):
        start = locate(segment, from_offset)
        batches = _Batches(segment, segment.size_bytes if start is None else start)
    newest: TimestampOffset | None = None
    for batch in batches:
        if batch is None:
            yield None
        elif batch[1].max_timestamp_ms > (newest.timestamp_ms if newest is not None else -1):
            found = yield from _newest_of(batches.file, *batch, from_offset)
            if found is not None and (newest is None or found.timestamp_ms > newest.timestamp_ms):
                newest = found
    return newest


class _Batches:
    """Position and header of every batch of a segment from a position on, to where the segment ends now.

    None comes in between, every so many headers. CorruptDataError when the way does not lead to the segment's end.
    """

    def __init__(self, segment: Segment, position: int) -> None:
        self.file = segment.log
        self._base_offset = segment.base_offset
        self._position = position
        self._end = segment.size_bytes
        walk = segment.walk(position)
        first = next(walk, None)  # from here on the walk has its file, whatever becomes of the segment
        self._walk = chain(() if first is None else (first,), walk)

    def __iter__(self) -> Iterator[tuple[int, BatchHeader] | None]:
        position = self._position
        for number, (at, header) in enumerate(self._walk, 1):
            yield at, header
            position = at + header.size_bytes
            if number % HEADERS_AT_ONCE == 0:
                yield None
        if position != self._end:
            raise CorruptDataError(f"segment {self._base_offset}: no whole batch at position {position}")


def _newest_of(file: File, position: int, header: BatchHeader, from_offset: int) -> Search:
    """Of one batch's records at `from_offset` or later, the first one with the newest timestamp."""
    if header.base_offset >= from_offset or header.timestamp_type is TimestampType.LOG_APPEND_TIME:
        return (yield from _first_record(file, position, header, header.max_timestamp_ms, from_offset))
    batch = BatchSearch(file, position, header, None, from_offset)
    yield batch
    return batch.result()


def _first_record(file: File, position: int, header: BatchHeader, timestamp_ms: int, from_offset: int) -> Search:
    is_whole = header.record_count == header.last_offset_delta + 1
    if is_whole and header.timestamp_type is TimestampType.LOG_APPEND_TIME:  # the cleaner has removed no record
        return TimestampOffset(
            header.max_timestamp_ms, max(header.base_offset, from_offset), header.partition_leader_epoch
        )
    batch = BatchSearch(file, position, header, timestamp_ms, from_offset)
    yield batch
    return batch.result()
