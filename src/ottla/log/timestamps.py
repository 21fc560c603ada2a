"""ListOffsets by time: the first record of at least an age, found through time index, batch headers, then one batch."""

from collections.abc import Sequence

from ottla.log.results import TimestampOffset
from ottla.log.segment import Segment
from ottla.wire.batch import BatchHeader, TimestampType


def find_timestamp(segments: Sequence[Segment], timestamp_ms: int, from_offset: int) -> TimestampOffset | None:
    """The first record at `from_offset` or later whose timestamp is `timestamp_ms` or later, or None."""
    for segment in segments:
        if segment.max_timestamp_ms < timestamp_ms:
            continue
        segment.load_indexes()
        # No record up to the entry's offset is younger than the entry, and none before its batch is as young.
        before = segment.time_index.lookup(timestamp_ms).offset
        position = segment.offset_index.lookup(max(before, from_offset)).position
        for at, header in segment.walk(position):
            if header.max_timestamp_ms >= timestamp_ms and header.last_offset >= from_offset:
                found = _first_record(segment, at, header, timestamp_ms, from_offset)
                if found is not None:
                    return found
    return None


def newest_record(segments: Sequence[Segment], from_offset: int) -> TimestampOffset | None:
    """The first record that has the newest timestamp of all (KIP-734), or None when no record has one."""
    newest = max(segments, key=lambda segment: segment.max_timestamp_ms, default=None)
    if newest is None or newest.max_timestamp_ms < 0:
        return None
    position = newest.locate(max(newest.max_timestamp_offset, from_offset))
    if position is None:
        return None
    _, header = next(newest.walk(position))
    return _first_record(newest, position, header, newest.max_timestamp_ms, from_offset)


def _first_record(
    segment: Segment, position: int, header: BatchHeader, timestamp_ms: int, from_offset: int
) -> TimestampOffset | None:
    epoch = header.partition_leader_epoch
    if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
        return TimestampOffset(header.max_timestamp_ms, max(header.base_offset, from_offset), epoch)
    from ottla.wire.records import decode_batch  # the only place that looks into a batch

    for record in decode_batch(segment.log.read(position, header.size_bytes)):
        if record.timestamp_ms >= timestamp_ms and record.offset >= from_offset:
            return TimestampOffset(record.timestamp_ms, record.offset, epoch)
    return None
