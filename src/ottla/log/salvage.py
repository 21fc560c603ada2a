"""Saves sound batches that come after damaged ones, where a segment may hold unflushed bytes.

After kill -9, records that were acknowledged after the recovery point exist only in that segment's file. Batches below
the recovery point may be damaged. Then the next batch that its CRC proves whole, and all batches after it, are copied
into a new segment. The damaged file stays as it is, for a person who wants to mend it.
"""

from collections.abc import Iterable, Sequence

from ottla.base.errors import CorruptDataError
from ottla.log.checking import ANY_OFFSET
from ottla.log.config import LogConfig
from ottla.log.names import LOG, base_offset, file_name
from ottla.log.segment import Segment
from ottla.log.storage import Storage
from ottla.wire.batch import BatchHeader, check_integrity, find_whole_batch, parse_header


def split_behind_damage(
    storage: Storage, segment: Segment, low_offset: int, limit_offset: int, config: LogConfig, now_ms: int
) -> Segment | None:
    """Copy the sound batches after `segment.size_bytes` into a new segment; None when there are none.

    Their offsets are `low_offset` or more, and below `limit_offset`. The new segment has no indexes yet. StorageError
    when the disk has no room for it.
    """
    low_offset = max(low_offset, segment.base_offset + 1)
    with segment.log.map() as view:
        found = find_whole_batch(view, segment.size_bytes + 1, low_offset, limit_offset)
        if found is None:
            return None
        position, base_offset = found
        with view[position:] as content:
            storage.write(file_name(base_offset, LOG), content)
    rest = Segment.load(storage, base_offset, config, now_ms)
    rest.forget_indexes()
    aborted = [entry for entry in segment.txn_index.entries if entry.last_offset >= base_offset]
    segment.txn_index.truncate_to(base_offset)
    for entry in aborted:
        rest.txn_index.append(entry)
    return rest


def reached_offset(segments: Sequence[Segment]) -> int:
    """How far a log has certainly come when its recovery point is not known: the offset behind its last sound batch.

    A batch in front of that one that is damaged must not end the log. No CRC covers a base offset: one that cannot be
    right for the bytes before it does not count.
    """
    if not segments:
        return 0
    newest = segments[-1]
    sound_end, end_offset = 0, newest.base_offset
    with newest.log.map() as view:
        found = _batch_at(view, 0, end_offset)
        while found is not None:
            at, header = found
            if header.base_offset - end_offset <= at - sound_end:  # a record takes a byte at least
                sound_end, end_offset = at + header.size_bytes, header.last_offset + 1
                found = _batch_at(view, sound_end, end_offset)
            else:
                found = _batch_behind(view, at + 1, end_offset)
    newest.close()
    return end_offset


def reached_in(storage: Storage, config: LogConfig, now_ms: int, names: Iterable[str]) -> int:
    """`reached_offset` of the log with these files, before they are opened; 0 without a log file."""
    bases = [base for base in (base_offset(name, LOG) for name in names) if base is not None]
    return reached_offset([Segment.load(storage, max(bases), config, now_ms)]) if bases else 0


def _batch_at(view: memoryview, position: int, offset: int) -> tuple[int, BatchHeader] | None:
    """The whole batch that begins here with this offset, or else the next one behind it."""
    try:
        header = parse_header(view, position)
        check_integrity(view, position, header)
    except CorruptDataError:
        header = None
    if header is not None and header.base_offset == offset:
        return position, header
    return _batch_behind(view, position, offset)


def _batch_behind(view: memoryview, position: int, low_offset: int) -> tuple[int, BatchHeader] | None:
    found = find_whole_batch(view, position, low_offset, ANY_OFFSET)
    return None if found is None else (found[0], parse_header(view, found[0]))
