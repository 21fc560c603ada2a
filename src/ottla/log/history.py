"""Finds batches that Apache Kafka's producer snapshots do not hold: they hold one each, and five may be in flight.

After a clean restart a client may send any of its last five batches again, because it did not get their answers. Our
own snapshots hold all of them. Apache Kafka remembers only the last one and refuses the others: in a directory that was
its own we look for the others in the last megabyte before the snapshot, and walk back until every producer that wrote
there has five.
"""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Final

from ottla.base.errors import CorruptDataError
from ottla.log.producers import BATCHES_TO_RETAIN, BatchMetadata, ProducerEntry, ProducerState
from ottla.log.segment import Segment
from ottla.wire.batch import BatchHeader

#: How far before a snapshot we look for older batches of its producers: room for five batches of many producers.
_HISTORY_BYTES: Final = 1_048_576
#: How much of these bytes is read at once.
_STEP_BYTES: Final = 32_768


def add_history(producers: ProducerState, segments: Sequence[Segment], snapshot_offset: int) -> None:
    """Find the batches that the snapshot's producers wrote before their last one."""
    wanted = {entry.producer_id: entry for entry in producers.producers.values() if _has_more(entry)}
    if not wanted or not segments:
        return
    oldest_offset = _history_start(segments, snapshot_offset)
    wanted = {key: entry for key, entry in wanted.items() if entry.batches[0].first_offset > oldest_offset}
    for header in _headers_back(segments, snapshot_offset):
        if not wanted or header.last_offset < oldest_offset:
            return
        entry = wanted.get(header.producer_id)
        if entry is None or header.is_control:
            continue
        if header.producer_epoch != entry.producer_epoch:
            del wanted[header.producer_id]
        elif header.last_offset < entry.batches[0].first_offset:
            entry.batches.appendleft(_metadata(header))
            if not _has_more(entry):
                del wanted[header.producer_id]


def _has_more(entry: ProducerEntry) -> bool:
    """Whether the producer may have written batches of its epoch before the first one that is known."""
    return 0 < len(entry.batches) < BATCHES_TO_RETAIN and entry.batches[0].first_sequence > 0


def _history_start(segments: Sequence[Segment], offset: int) -> int:
    """An offset about `_HISTORY_BYTES` before `offset`."""
    wanted_bytes = _HISTORY_BYTES
    for segment in reversed(segments):
        if segment.base_offset < offset:
            end = _position_of(segment, offset)
            if end > wanted_bytes:
                start = segment.position_before(end - wanted_bytes)
                return next(
                    (header.base_offset for header in _headers_between(segment, start, end)), segment.base_offset
                )
            wanted_bytes -= end
    return segments[0].base_offset


def _headers_back(segments: Sequence[Segment], offset: int) -> Iterator[BatchHeader]:
    """The headers before `offset`, newest first."""
    for segment in reversed(segments):
        end = _position_of(segment, offset) if segment.base_offset < offset else 0
        while end > 0:
            start = segment.position_before(max(end - _STEP_BYTES, 0))
            yield from reversed(_headers_between(segment, start, end))
            end = start


def _headers_between(segment: Segment, start: int, end: int) -> list[BatchHeader]:
    found = []
    with contextlib.suppress(CorruptDataError):  # bytes after `end` may be no batches, as in `_position_of`
        for at, header in segment.walk(start):
            if at >= end:
                break
            found.append(header)
    return found


def _position_of(segment: Segment, offset: int) -> int:
    """Where the batches before `offset` end. What comes after may be unchecked, and may not be batches."""
    position = segment.position_to(offset)
    try:
        for at, header in segment.walk(position):
            if header.base_offset >= offset:
                break
            position = at + header.size_bytes
    except CorruptDataError:
        pass
    return position


def _metadata(header: BatchHeader) -> BatchMetadata:
    return BatchMetadata(
        header.base_sequence, header.last_sequence, header.base_offset, header.last_offset, header.max_timestamp_ms
    )
