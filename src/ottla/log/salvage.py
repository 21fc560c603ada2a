"""Saves sound batches that come after damaged ones, in the one segment that holds flushed and unflushed bytes.

After kill -9, records that were acknowledged after the recovery point exist only in that segment's file. Batches below
the recovery point may be damaged. Then the next batch that its CRC proves whole, and all batches after it, are copied
into a new segment. The damaged file stays as it is, for a person who wants to mend it.
"""

from ottla.log.config import LogConfig
from ottla.log.names import LOG, file_name
from ottla.log.segment import Segment
from ottla.log.storage import Storage
from ottla.wire.batch import find_whole_batch


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
