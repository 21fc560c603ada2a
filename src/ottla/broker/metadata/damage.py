"""Is the metadata log torn at its end, as a crash may leave it, or damaged in its middle?

Every change of the metadata is on the device before anybody sees it. So a crash leaves at most one batch in part: the
last. Recovery cuts a log at the first batch that is not whole. If it cut the metadata log in its middle, the log would
forget topics, and their records would be set aside as strays. So a whole batch after a broken one means damage that a
person must look at, and the log is left as it is.
"""

from ottla.base.errors import CorruptDataError, StorageError
from ottla.broker.disk import Disk
from ottla.log.names import LOG, base_offset, file_name
from ottla.wire.batch import check_integrity, find_whole_batch, parse_header


def refuse_damage(disk: Disk, folder: str) -> None:
    """StorageError when the metadata log, which is in `folder`, is damaged in a way that no crash explains.

    Its beginning is gone, or a segment has a whole batch after a broken one. No segment of it is ever deleted.
    """
    names = [entry.name for entry in disk.entries(folder) or () if entry.name.endswith(LOG)]
    first = min((base for base in (base_offset(name, LOG) for name in names) if base is not None), default=0)
    if first > 0:
        raise StorageError(
            f"{disk}/{folder} has no {file_name(0, LOG)}: the metadata's beginning is gone; nothing was changed; "
            "put the file back from a copy"
        )
    for name in names:
        content = disk.open_folder(folder).read(name)
        _refuse_damage(f"{disk}/{folder}/{name}", content or b"")


def _refuse_damage(segment: str, content: bytes) -> None:
    position, next_offset = 0, 0
    while position < len(content):
        try:
            position, next_offset = _batch_at(content, position, next_offset)
        except CorruptDataError as fault:
            if find_whole_batch(memoryview(content), position + 1, next_offset, 2**63) is not None:
                raise StorageError(
                    f"{segment} is damaged at byte {position} ({fault}), and whole batches follow: "
                    "nothing was changed; put the file back from a copy"
                ) from None
            return


def _batch_at(content: bytes, position: int, next_offset: int) -> tuple[int, int]:
    """Where the batch at `position` ends, in bytes and offsets; CorruptDataError when it is not whole."""
    header = parse_header(content, position)
    check_integrity(content, position, header)
    if header.base_offset < next_offset:
        raise CorruptDataError(f"offset {header.base_offset} where {next_offset} or a later one is due")
    return position + header.size_bytes, header.last_offset + 1
