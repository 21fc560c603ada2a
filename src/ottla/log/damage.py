"""Offsets that were flushed to the device and are not in the files any more: a disk or a hand has damaged the log.

What was acknowledged after them stays, and offsets are not used twice: the log goes on behind the hole. A reader that
gets there is told (CORRUPT_MESSAGE) instead of being led over it in silence, until retention or DeleteRecords has
passed. The ranges are kept in a checkpoint of their own, since indexes that were made again do not show them.
"""

from contextlib import suppress
from typing import NamedTuple

from ottla.base.errors import CorruptDataError, StorageError
from ottla.log.checkpoint import decode_leader_epochs, encode_leader_epochs
from ottla.log.names import DAMAGED_OFFSETS
from ottla.log.storage import Storage


class OffsetRange(NamedTuple):
    """Offsets from `first_offset` up to, but not with, `end_offset`."""

    first_offset: int
    end_offset: int

    def __str__(self) -> str:
        return f"{self.first_offset}–{self.end_offset - 1}"


def read_damage(storage: Storage) -> tuple[OffsetRange, ...]:
    """The ranges an earlier start has found."""
    content = storage.read(DAMAGED_OFFSETS)
    with suppress(CorruptDataError):
        # Two numbers a line, as in the checkpoint of leader epochs.
        return tuple(OffsetRange(*each) for each in decode_leader_epochs(content or b"0\n0\n"))
    return ()


def write_damage(storage: Storage, ranges: tuple[OffsetRange, ...]) -> None:
    """Keep the ranges for the next start; without room on the disk they are looked for once more then."""
    with suppress(StorageError):
        if ranges:
            storage.write(DAMAGED_OFFSETS, encode_leader_epochs(ranges))
        else:
            storage.delete(DAMAGED_OFFSETS)
