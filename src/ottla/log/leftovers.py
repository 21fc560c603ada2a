"""What interrupted work has left in a partition's directory: removed before anything else is looked at."""

from collections.abc import Sequence
from contextlib import suppress

from ottla.base.errors import CorruptDataError, StorageError
from ottla.log.names import DELETED, LOG, OFFSET_INDEX, STALE, SWAP, TIME_INDEX, TXN_INDEX, base_offset
from ottla.log.segment import ANY_OFFSET, Segment, delete_segments
from ottla.log.storage import Storage
from ottla.wire.batch import check_integrity


def tidy(storage: Storage, names: list[str]) -> tuple[tuple[int, ...], frozenset[int]]:
    """Remove what is left of interrupted work.

    Returns the base offsets of the segments, ascending, and those of segments which have only indexes left although
    nobody was deleting them.
    """
    swapped = [name for name in names if name.endswith(SWAP)]
    if swapped:
        raise StorageError(
            f"{swapped[0]}: Apache Kafka was stopped in the middle of a compaction; start and stop it once more"
        )
    bases = sorted(base for base in (base_offset(name, LOG) for name in names) if base is not None)
    known = {None, *bases}
    orphans: set[int] = set()
    for name in names:
        found = {base_offset(name, suffix) for suffix in (OFFSET_INDEX, TIME_INDEX, TXN_INDEX)} - known
        if found or name.endswith(STALE):
            orphans |= {each for each in found if each is not None}
            storage.delete(name)
    return tuple(bases), frozenset(orphans - {base_offset(name, LOG + DELETED) for name in names})


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
        if header.last_offset >= offset:
            with suppress(CorruptDataError):
                check_integrity(segment.log.read(at, header.size_bytes), 0, header)
                return True
    return False
