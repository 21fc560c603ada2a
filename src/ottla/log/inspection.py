"""Looks whether the files of a flushed segment fit together: a cheap look first, a thorough one if they do not.

A disk or a person may have cut a file. The cheap look compares the files: the last index entry must lead to a batch
of the log; the batches from there on must end where the file ends and where the next segment begins; no timestamp of
theirs may be later than the time index says; and the CRC of a log's last batch must be right, because its header says
where the log goes on. That costs a read or two. When something does not fit, both indexes are made again from the
headers of all batches, and the result says whether batches are missing.
"""

from collections import deque
from typing import NamedTuple

from ottla.base.errors import CorruptDataError
from ottla.log.checking import ANY_OFFSET
from ottla.log.index import OffsetPosition
from ottla.log.segment import Segment
from ottla.log.txn_index import AbortsSeal


class Inspection(NamedTuple):
    """What was found. The segment's `size_bytes` counts whole batches only; bytes after them stay in the file."""

    #: The offset after the last whole batch.
    end_offset: int
    #: The indexes were made again.
    rebuilt: bool = False
    #: The file ends within a batch, or an index knows of batches that are not there.
    lacks_batches: bool = False
    #: Bytes of the file after the last whole batch.
    junk_bytes: int = 0


def inspect(
    segment: Segment,
    names: frozenset[str],
    limit_offset: int,
    *,
    gaps_below: int = ANY_OFFSET,
    has_lost_its_end: bool = False,
) -> Inspection:
    """Look at a flushed segment, which must end at `limit_offset` or before. StorageError when it cannot be read.

    It leaves out no offset from `gaps_below` on (`Segment.sound_headers`).
    `has_lost_its_end`: an earlier start has found so. Somebody may have put the file back; a header alone does not say.
    """
    indexed_offset = segment.base_offset - 1
    last = segment.check(names)
    if last is not None:
        indexed_offset = _indexed_offset(segment, last)
        end_offset = _end_of_sound(segment, last, indexed_offset, limit_offset, gaps_below, has_lost_its_end)
        if end_offset is not None:
            return Inspection(end_offset)
    there = {segment.offset_index.name, segment.time_index.name} <= names
    before = _contents(segment)
    end_offset, position = _rebuild(segment, limit_offset, gaps_below, has_lost_its_end)
    # Behind damaged batches an index always seems to lack some. It is no news every time.
    rebuilt = not there or _contents(segment) != before
    junk_bytes, segment.size_bytes = segment.size_bytes - position, position
    lacks = junk_bytes > 0 or end_offset <= indexed_offset < limit_offset
    return Inspection(end_offset, rebuilt, lacks and end_offset < limit_offset, junk_bytes)


def _contents(segment: Segment) -> tuple[bytes, bytes]:
    """What both indexes hold."""
    return segment.offset_index.content(), segment.time_index.content()


def _rebuild(segment: Segment, limit_offset: int, gaps_below: int, has_lost_its_end: bool) -> tuple[int, int]:
    """Make both indexes again. Returns the offset and the position behind the last sound batch.

    What comes behind it may be sound, and this batch's header may be damaged: then its last offset would end the log
    too late, and the sound batches would be cut. So its CRC must be right.
    """
    end_offset, position = segment.rebuild_indexes(limit_offset, gaps_below=gaps_below)
    last = (
        deque(segment.sound_headers(0, limit_offset, gaps_below=gaps_below), 1)
        if limit_offset == ANY_OFFSET or has_lost_its_end or position < segment.size_bytes
        else ()
    )
    for at, header in last:
        if not segment.is_whole(at, header):
            return segment.rebuild_indexes(header.base_offset, gaps_below=gaps_below)
    return end_offset, position


def has_fitting_indexes(segment: Segment, names: frozenset[str]) -> bool:
    """Whether the last index entries lead to a batch with a fitting timestamp. The segment may go on after it."""
    last = segment.check(names)
    if last is None:
        return False
    if last.position == 0:
        return True
    found = next(segment.sound_headers(last.position, ANY_OFFSET), None)
    if found is None:
        return False
    header = found[1]
    return header.base_offset <= last.offset and header.max_timestamp_ms <= segment.max_timestamp_ms


def _indexed_offset(segment: Segment, last: OffsetPosition) -> int:
    """The last offset that an index names; without entries the offset before the segment's first."""
    known = [segment.base_offset - 1]
    if last.position > 0:
        known.append(last.offset)
    if segment.max_timestamp_ms >= 0:
        known.append(segment.max_timestamp_offset)
    return max(known)


def _end_of_sound(
    segment: Segment,
    last: OffsetPosition,
    indexed_offset: int,
    limit_offset: int,
    gaps_below: int,
    has_lost_its_end: bool,
) -> int | None:
    """The offset after the last batch, or None when log and indexes do not fit together."""
    end_offset, end, newest_ms, final = segment.base_offset, last.position, -1, None
    for position, header in segment.sound_headers(last.position, limit_offset, gaps_below=gaps_below):
        if position == last.position > 0 and header.base_offset > last.offset:
            return None
        end_offset, end = header.last_offset + 1, position + header.size_bytes
        newest_ms = max(newest_ms, header.max_timestamp_ms)
        final = position, header
    fits = end == segment.size_bytes and end_offset > indexed_offset and newest_ms <= segment.max_timestamp_ms
    looks = limit_offset == ANY_OFFSET or has_lost_its_end
    if fits and looks and final is not None and not segment.is_whole(*final):
        return None  # the log would go on behind a last offset that nothing vouches for
    return end_offset if fits else None


def load_txn_index(segment: Segment, names: frozenset[str], limit_offset: int, seal: AbortsSeal | None) -> bool:
    """Read a segment's aborted transactions; False when the file's content cannot be true, or does not fit the `seal`.

    Without a seal, a missing file counts as one that was never needed: it is only made for the first abort.
    """
    if segment.txn_index.name not in names:
        return seal is None
    try:
        segment.txn_index.load(segment.base_offset, limit_offset)
    except CorruptDataError:
        return False
    return seal is None or segment.txn_index.fits(seal)
