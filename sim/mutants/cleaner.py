"""Bugs of the log's cleaner: what it removes is what a coordinator needs at its next start."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from ottla.log import leftovers
from ottla.log.cleaner.offset_map import OffsetMap
from ottla.log.cleaner.transactions import CleanedTransactions
from ottla.log.names import CLEANED, SWAP
from ottla.log.storage import Storage


@contextmanager
def removes_the_last_record() -> Iterator[None]:
    """Of each key the last record goes, too."""
    right = OffsetMap.get
    with patch.object(OffsetMap, "get", lambda self, key: right(self, key) + 1):
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
