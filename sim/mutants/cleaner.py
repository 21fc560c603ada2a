"""Bugs of the log's cleaner: what it removes is what a coordinator needs at its next start."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from ottla.log import leftovers
from ottla.log.cleaner.batches import BatchFilter
from ottla.log.cleaner.transactions import CleanedTransactions
from ottla.log.names import CLEANED, SWAP
from ottla.log.storage import Storage
from ottla.wire.records import KeyRow


@contextmanager
def removes_the_last_record() -> Iterator[None]:
    """Of each key the last record goes, too."""
    right = BatchFilter._stay

    def removes(self: BatchFilter, rows: list[KeyRow], horizon_ms: int | None) -> list[bool]:
        latest = self._offsets.latest_offset
        older = [(offset - 1 if offset <= latest else offset, key, has_value) for offset, key, has_value in rows]
        return right(self, older, horizon_ms)

    with patch.object(BatchFilter, "_stay", removes):
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
