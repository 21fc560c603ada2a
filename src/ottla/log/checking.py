"""What the bytes of a log file hold at a position: whole batches, or messages of Apache Kafka before 0.11."""

from typing import Final

from ottla.base.errors import StorageError
from ottla.wire.batch import BatchHeader, check_integrity, find_whole_batch, is_old_message, parse_header
from ottla.wire.batch_errors import CorruptBatchError, UnsupportedMagicError

#: Higher than every offset.
ANY_OFFSET: Final = 2**63 - 1


def whole_batch(view: memoryview, position: int, trusted_offset: int) -> BatchHeader | None:
    """The header of the batch at `position`; None when there is none, or a changed one.

    Below `trusted_offset` its records are not checked. StorageError for an old message, see `refuse_old_message`.
    """
    try:
        header = parse_header(view, position)
        if header.last_offset >= trusted_offset or position + header.size_bytes > len(view):
            check_integrity(view, position, header)
    except UnsupportedMagicError as fault:
        refuse_old_message(view, position, fault)
        return None
    except CorruptBatchError:
        return None
    return header if header.last_offset_delta >= 0 else None


def refuse_old_message(view: memoryview, position: int, fault: UnsupportedMagicError) -> None:
    """Raise StorageError if an old message begins here. Kafka before 0.11 wrote it; it is no damage and is not cut."""
    if is_old_message(view, position):
        raise StorageError(f"position {position}: {fault}; let Apache Kafka's retention remove it first") from None


def last_sound_offset(view: memoryview, position: int, end_offset: int) -> int:
    """The last offset of the whole batches behind `position` that have `end_offset` or more, wherever they may be."""
    last_offset = end_offset - 1
    while (found := find_whole_batch(view, position, end_offset, ANY_OFFSET)) is not None:
        header = parse_header(view, found[0])
        last_offset, position = max(last_offset, header.last_offset), found[0] + header.size_bytes
    return last_offset
