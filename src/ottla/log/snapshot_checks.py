"""Whether a producer snapshot is the one of its offset. Its CRC only says that it is whole.

With an older one in its place, transactions would be open that have ended, and their records hidden; or the records of
open and aborted ones would be shown. So what it says of producers must fit the last batches before its offset. These
are few, in one place of one file: every start looks at them, in each partition. They count as far as they lead up to
the offset without a gap. In front of damage, a hole or what was compacted nobody knows what followed.

A producer that a snapshot does not know may have expired, unless it has a transaction open.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Final

from ottla.base.errors import CorruptDataError
from ottla.log.producers import ProducerEntry, ProducerState
from ottla.log.segment import Segment
from ottla.wire.batch import BatchHeader, is_emptied

#: How many batches are looked at. Between two entries of an offset index there are fewer, but for odd settings.
_MOST_BATCHES: Final = 1_000


def is_of_its_offset(state: ProducerState, segments: Sequence[Segment]) -> bool:
    """Whether nothing in the log, which has these segments, contradicts what a snapshot says. StorageError."""
    offset = state.end_offset
    if any(max(_last_offset(each), each.txn_first_offset) >= offset for each in state.producers.values()):
        return False
    open_at = {(each.producer_id, each.first_offset) for each in state.ongoing.values()}
    if open_at and any(
        (each.producer_id, each.first_offset) in open_at and each.last_offset < offset
        for segment in segments
        for each in segment.txn_index.entries
    ):
        return False
    segment = next((each for each in reversed(segments) if each.base_offset < offset), None)
    return segment is None or not _is_contradicted(state, segment)


def _is_contradicted(state: ProducerState, segment: Segment) -> bool:
    judged: set[int] = set()
    try:
        for position, header in _last_batches(segment, state.end_offset):
            producer_id = header.producer_id
            if producer_id < 0 or producer_id in judged:
                continue
            judged.add(producer_id)
            if _contradicts(header, state.producers.get(producer_id)) and segment.is_whole(position, header):
                return True
    finally:
        segment.close()
    return False


def _last_batches(segment: Segment, offset: int) -> Iterator[tuple[int, BatchHeader]]:
    """The batches that lead up to `offset`, newest first."""
    start = segment.position_before(max(segment.position_to(offset - 1) - 1, 0))
    found = []
    with suppress(CorruptDataError):
        for position, header in islice(segment.walk(start), _MOST_BATCHES):
            if header.base_offset >= offset:
                break
            found.append((position, header))
    for position, header in reversed(found):
        if header.last_offset + 1 != offset:
            return
        offset = header.base_offset
        yield position, header


def _contradicts(header: BatchHeader, entry: ProducerEntry | None) -> bool:
    """Whether the last batch of a producer before the snapshot says something else than its entry."""
    if is_emptied(header):
        return False  # what else was there is compacted
    if entry is None:
        return header.is_transactional and not header.is_control
    if entry.producer_epoch != header.producer_epoch:
        return entry.producer_epoch < header.producer_epoch
    if header.is_control:
        return entry.txn_first_offset >= 0 or _last_offset(entry) > header.last_offset
    return _last_offset(entry) != header.last_offset or (header.is_transactional and entry.txn_first_offset < 0)


def _last_offset(entry: ProducerEntry) -> int:
    return entry.batches[-1].last_offset if entry.batches else -1
