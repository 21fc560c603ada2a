"""Bugs of the log's cleaner: what it removes is what a coordinator needs at its next start."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from ottla.log.cleaner.offset_map import OffsetMap
from ottla.log.cleaner.transactions import CleanedTransactions


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
