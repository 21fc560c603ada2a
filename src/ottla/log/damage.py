"""Holes: offsets that were flushed to the device and are no longer in the files, because of a disk or a person.

Records that were acknowledged after the hole stay, and no offset is used twice: the log goes on after the hole. A
reader that gets there receives CORRUPT_MESSAGE; it is never led over the hole in silence. This ends when retention or
DeleteRecords has deleted what lay before. The ranges are kept in a checkpoint of their own, because indexes that were
made again do not show them. The broker keeps them, too, with its own checkpoints (`Outside.holes`): of a compacted log
nothing else would show a hole when that file is gone.
"""

from collections.abc import Collection
from contextlib import suppress
from typing import NamedTuple

from ottla.base.errors import CorruptDataError, StorageError
from ottla.log.checkpoint import decode_leader_epochs, encode_leader_epochs
from ottla.log.names import DAMAGED_OFFSETS
from ottla.log.storage import Storage


class OffsetRange(NamedTuple):
    """Offsets from `first_offset` up to `end_offset`, which is not included."""

    first_offset: int
    end_offset: int

    def __str__(self) -> str:
        return f"{self.first_offset}–{self.end_offset - 1}"

    def overlaps(self, other: "OffsetRange") -> bool:
        """Whether an offset is in both."""
        return max(self.first_offset, other.first_offset) < min(self.end_offset, other.end_offset)


class Cut(NamedTuple):
    """The end of a log file, or a whole file, that recovery has removed: what came before it is not whole."""

    name: str
    position: int
    size_bytes: int
    #: Where the log ends now, and the offset behind the last whole batch that was cut; equal when there was none.
    first_offset: int
    end_offset: int

    def __str__(self) -> str:
        what = f"{self.name}: cut {self.size_bytes} bytes at position {self.position}"
        if self.end_offset <= self.first_offset:
            return f"{what} that are no whole batches; the log ends at offset {self.first_offset}"
        return f"{what}; the records at offsets {OffsetRange(self.first_offset, self.end_offset)} are gone"


def read_damage(storage: Storage) -> tuple[OffsetRange, ...]:
    """The ranges that an earlier start has found."""
    content = storage.read(DAMAGED_OFFSETS)
    with suppress(CorruptDataError):
        # Two numbers a line, as in the checkpoint of leader epochs.
        return tuple(OffsetRange(*each) for each in decode_leader_epochs(content or b"0\n0\n"))
    return ()


def drop_unreadable(storage: Storage) -> tuple[str, ...]:
    """Remove the list of ranges if it cannot be read. Returns a sentence then; the list may be made again."""
    content = storage.read(DAMAGED_OFFSETS)
    try:
        if content is not None:
            decode_leader_epochs(content)
    except CorruptDataError as fault:
        storage.delete(DAMAGED_OFFSETS)
        return (
            f"{DAMAGED_OFFSETS} is damaged ({fault}): of the holes that it named, only those that are found again are "
            "errors to readers",
        )
    return ()


def unlisted(
    found: Collection[OffsetRange], listed: Collection[OffsetRange], known: Collection[OffsetRange]
) -> tuple[str, ...]:
    """A sentence when holes that the broker knew of were not in the list. By their ends: where one begins may move."""
    in_list = {hole.end_offset for hole in listed}
    before = {hole.end_offset for hole in known}
    missing = [hole for hole in found if hole.end_offset in before and hole.end_offset not in in_list]
    if not missing:
        return ()
    return (
        f"{DAMAGED_OFFSETS} does not name the offsets {', '.join(map(str, missing))}, as it must: it is made again",
    )


def write_damage(storage: Storage, ranges: tuple[OffsetRange, ...]) -> None:
    """Keep the ranges for the next start. On a full disk only the broker's checkpoints keep them, later."""
    with suppress(StorageError):
        if ranges:
            storage.write(DAMAGED_OFFSETS, encode_leader_epochs(ranges))
        else:
            storage.delete(DAMAGED_OFFSETS)
