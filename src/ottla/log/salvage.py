"""Saves sound batches that come after damaged ones, in the one segment that holds flushed and unflushed bytes.

After kill -9, records that were acknowledged after the recovery point exist only in that segment's file. Batches below
the recovery point may be damaged. Then the next batch that its CRC proves whole, and all batches after it, are copied
into a new segment. The damaged file stays as it is, for a person who wants to mend it.
"""

from struct import Struct
from typing import Final

from ottla.log.config import LogConfig
from ottla.log.names import LOG, file_name
from ottla.log.segment import Segment
from ottla.log.storage import Storage
from ottla.wire.batch import check_integrity, parse_header
from ottla.wire.batch_errors import CorruptBatchError

#: How many bytes are searched at once for the magic byte of a batch.
_CHUNK_BYTES: Final = 1_048_576
_MAGIC_AT: Final = 16
_MAGIC: Final = b"\x02"
_BASE_OFFSET: Final = Struct(">q")


def split_behind_damage(
    storage: Storage, segment: Segment, low_offset: int, limit_offset: int, config: LogConfig, now_ms: int
) -> Segment | None:
    """Copy the sound batches after `segment.size_bytes` into a new segment; None when there are none.

    Their offsets are `low_offset` or more, and below `limit_offset`. The new segment has no indexes yet. StorageError
    when the disk has no room for it.
    """
    low_offset = max(low_offset, segment.base_offset + 1)
    with segment.log.map() as view:
        found = next_batch(view, segment.size_bytes + 1, low_offset, limit_offset)
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


def next_batch(view: memoryview, position: int, low_offset: int, limit_offset: int) -> tuple[int, int] | None:
    """Position and base offset of the first whole batch that begins at `position` or after it."""
    for start in range(position, len(view), _CHUNK_BYTES):
        chunk = bytes(view[start + _MAGIC_AT : start + _MAGIC_AT + _CHUNK_BYTES])
        at = chunk.find(_MAGIC)
        while at >= 0:
            (base_offset,) = _BASE_OFFSET.unpack_from(view, start + at)
            if low_offset <= base_offset < limit_offset and _is_whole(view, start + at):
                return start + at, base_offset
            at = chunk.find(_MAGIC, at + 1)
    return None


def _is_whole(view: memoryview, position: int) -> bool:
    try:
        check_integrity(view, position, parse_header(view, position))
    except CorruptBatchError:
        return False
    return True
