"""What interrupted work has left in a partition's directory: removed before anything else is looked at."""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.log.checking import ANY_OFFSET
from ottla.log.cleaner.swap import finish, without_log
from ottla.log.names import DELETED, LOG, OFFSET_INDEX, TIME_INDEX, TXN_INDEX, base_offset
from ottla.log.segment import Segment, delete_segments
from ottla.log.storage import Storage


class Tidied(NamedTuple):
    """What there is when interrupted work is finished or removed."""

    names: frozenset[str]
    #: Base offsets of the segments, ascending.
    bases: tuple[int, ...]
    #: Those which have only indexes left although nobody was deleting them.
    orphans: frozenset[int]


def tidy(storage: Storage, names: list[str]) -> Tidied:
    """Finish what the cleaner was about to do, and remove what is left of other interrupted work.

    StorageError when a cleaned segment that should take the place of others is damaged.
    """
    orphans = set(without_log(names))
    if finish(storage, names):
        names = storage.names()
    bases = sorted(base for base in (base_offset(name, LOG) for name in names) if base is not None)
    known = {None, *bases}
    for name in names:
        found = {base_offset(name, suffix) for suffix in (OFFSET_INDEX, TIME_INDEX, TXN_INDEX)} - known
        if found:
            orphans |= {each for each in found if each is not None}
            storage.delete(name)
    marks = [name for name in names if name.endswith(DELETED)]
    if marks:
        storage.sync_names()  # a mark goes last: without it, indexes would be orphans
    for name in marks:
        storage.delete(name)
    marked = {base_offset(name, LOG + DELETED) for name in marks}
    return Tidied(frozenset(names), tuple(bases), frozenset(orphans - marked))


def without_failed_rolls(storage: Storage, segments: Sequence[Segment]) -> tuple[Segment, ...]:
    """Remove empty segments that begin before the end of the segment in front of them.

    The disk refused something in the middle of a roll, and then took appends again, to the old segment. That segment
    must not be cut where the empty one begins: all of its batches are acknowledged.
    """
    kept: list[Segment] = []
    leftovers: list[Segment] = []
    for segment in segments:
        failed = segment.size_bytes == 0 and bool(kept) and _reaches(kept[-1], segment.base_offset)
        (leftovers if failed else kept).append(segment)
    delete_segments(storage, leftovers)
    return tuple(kept)


def _reaches(segment: Segment, offset: int) -> bool:
    """Whether the segment has a whole batch with this offset, or a later one. A changed header may say anything."""
    for at, header in segment.sound_headers(0, ANY_OFFSET):
        if header.last_offset >= offset and segment.is_whole(at, header):
            return True
    return False
