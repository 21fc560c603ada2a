"""Bugs of the log's cleaner: what it removes is what a coordinator needs at its next start."""

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from unittest.mock import patch

from ottla.log import leftovers
from ottla.log.cleaner.cleaning import Cleaning
from ottla.log.cleaner.offset_map import OffsetMap
from ottla.log.cleaner.transactions import CleanedTransactions
from ottla.log.names import CLEANED, SWAP
from ottla.log.storage import Storage
from ottla.wire.batch import BatchHeader
from ottla.wire.records import decode_batch


@contextmanager
def removes_the_last_record() -> Iterator[None]:
    """Of each key the last record goes, too."""
    right = Cleaning._put

    def removes(self: Cleaning, offsets: OffsetMap, batch: bytes, header: BatchHeader) -> Generator[int, None, bool]:
        has_room = yield from right(self, offsets, batch, header)
        for record in decode_batch(batch) if has_room else ():
            if record.key is not None and record.offset >= self._job.first_dirty_offset:
                offsets.put(record.key, record.offset + 1)
        return has_room

    with patch.object(Cleaning, "_put", removes):
        yield


@contextmanager
def takes_aborted_for_committed() -> Iterator[None]:
    """Records of aborted transactions count as the last ones of their keys."""
    with patch.object(CleanedTransactions, "is_aborted", lambda self, header: False):
        yield


@contextmanager
def gives_up_its_segments() -> Iterator[None]:
    """A start removes what the cleaner was about to put in place, although the old segments may be gone."""

    def remove(storage: Storage, names: list[str]) -> bool:
        left = [name for name in names if name.endswith((CLEANED, SWAP))]
        for name in left:
            storage.delete(name)
        return bool(left)

    with patch.object(leftovers, "finish", remove):
        yield
