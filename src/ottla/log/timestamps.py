"""ListOffsets by time: finds the first record at or after a time, by the time index, batch headers, and one batch."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from ottla.base.errors import CorruptDataError
from ottla.log.locating import locate
from ottla.log.results import TimestampOffset
from ottla.log.segment import Segment
from ottla.wire.batch import BatchHeader, TimestampType

if TYPE_CHECKING:
    from ottla.wire.records import Record


def find_timestamp(segments: Iterable[Segment], timestamp_ms: int, from_offset: int) -> TimestampOffset | None:
    """The first record at `from_offset` or later whose timestamp is `timestamp_ms` or later, or None."""
    for segment in segments:
        if segment.max_timestamp_ms < timestamp_ms:
            continue
        segment.load_indexes()
        # No record up to the entry's offset has a later timestamp than the entry, and none before its batch has the
        # same one.
        before = segment.time_index.lookup(timestamp_ms).offset
        position = segment.position_to(max(before, from_offset))
        for at, header in _batches(segment, position):
            if header.max_timestamp_ms >= timestamp_ms and header.last_offset >= from_offset:
                found = _first_record(segment, at, header, timestamp_ms, from_offset)
                if found is not None:
                    return found
    return None


def newest_record(segments: Iterable[Segment], from_offset: int) -> TimestampOffset | None:
    """Of the records at `from_offset` or later, the first one with the newest timestamp (KIP-734).

    None when no record has a timestamp. `segments` come by their newest timestamps, latest first. Usually one is read.
    """
    newest: TimestampOffset | None = None
    for segment in segments:
        if segment.max_timestamp_ms <= (newest.timestamp_ms if newest is not None else -1):
            break
        found = _newest_in(segment, from_offset)
        if found is not None and (newest is None or found.timestamp_ms > newest.timestamp_ms):
            newest = found
    return newest


def _newest_in(segment: Segment, from_offset: int) -> TimestampOffset | None:
    segment.load_indexes()
    newest_ms, last_offset = segment.max_timestamp_ms, segment.max_timestamp_offset
    if last_offset >= from_offset:
        position = locate(segment, last_offset)
        if position is not None:
            found = _first_record(segment, position, segment.header_at(position), newest_ms, from_offset)
            if found is not None:
                return found
    # The record that the indexes name is deleted, so the batches that are left must be read.
    newest: TimestampOffset | None = None
    start = locate(segment, from_offset)
    for position, header in _batches(segment, segment.size_bytes if start is None else start):
        if header.max_timestamp_ms > (newest.timestamp_ms if newest is not None else -1):
            found = _newest_of(segment, position, header, from_offset)
            if found is not None and (newest is None or found.timestamp_ms > newest.timestamp_ms):
                newest = found
    return newest


def _batches(segment: Segment, position: int) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of every batch to the segment's end. CorruptDataError when the way does not lead there."""
    for at, header in segment.walk(position):
        yield at, header
        position = at + header.size_bytes
    if position != segment.size_bytes:
        raise CorruptDataError(f"segment {segment.base_offset}: no whole batch at position {position}")


def _newest_of(segment: Segment, position: int, header: BatchHeader, from_offset: int) -> TimestampOffset | None:
    """Of one batch's records at `from_offset` or later, the first one with the newest timestamp."""
    if header.base_offset >= from_offset or header.timestamp_type is TimestampType.LOG_APPEND_TIME:
        return _first_record(segment, position, header, header.max_timestamp_ms, from_offset)
    left = [each for each in _records(segment, position, header) if each.offset >= from_offset]
    newest = max(left, key=lambda each: each.timestamp_ms, default=None)
    if newest is None:
        return None
    return TimestampOffset(newest.timestamp_ms, newest.offset, header.partition_leader_epoch)


def _first_record(
    segment: Segment, position: int, header: BatchHeader, timestamp_ms: int, from_offset: int
) -> TimestampOffset | None:
    epoch = header.partition_leader_epoch
    is_whole = header.record_count == header.last_offset_delta + 1
    if is_whole and header.timestamp_type is TimestampType.LOG_APPEND_TIME:  # the cleaner has removed no record
        return TimestampOffset(header.max_timestamp_ms, max(header.base_offset, from_offset), epoch)
    for record in _records(segment, position, header):
        if record.timestamp_ms >= timestamp_ms and record.offset >= from_offset:
            return TimestampOffset(record.timestamp_ms, record.offset, epoch)
    return None


def _records(segment: Segment, position: int, header: BatchHeader) -> "list[Record]":
    from ottla.wire.records import decode_batch  # the only place that looks into a batch

    return decode_batch(segment.log.read(position, header.size_bytes))
