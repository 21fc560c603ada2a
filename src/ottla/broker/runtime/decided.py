"""Changes of metadata that are decided by what is there: one after the other, each as one batch, seen in slices."""

import asyncio
from collections.abc import Callable, Iterable
from functools import partial

from ottla.base.errors import StorageError
from ottla.broker.metadata.records import MetadataRecord
from ottla.broker.runtime.changes import Changes
from ottla.broker.runtime.faults import DiskFaults
from ottla.broker.runtime.slices import Slices


class DecidedChanges:
    """Changes of one kind. A change that has begun is carried out whole, although its client may go."""

    def __init__(self, what: str, changes: Changes, slices: Slices, faults: DiskFaults) -> None:
        """`what` is changed, for the log."""
        self._what = what
        self._changes = changes
        self._slices = slices
        self._faults = faults
        self._changing = asyncio.Lock()

    def change(self, records: Callable[[], Iterable[MetadataRecord | None]]) -> "asyncio.Future[StorageError | None]":
        """Write what `records` decides when it is its turn, some in a turn of the loop: nobody else changes what it
        decides by. None of it counts if the disk refuses, and then why."""
        return self._slices.in_order(self._changing, partial(self._change, records), f"changing {self._what}")

    async def _change(self, records: Callable[[], Iterable[MetadataRecord | None]]) -> StorageError | None:
        try:
            # As brokers of Apache Kafka apply them: all are in the log, and are seen one after the other.
            change = self._changes.change(records())
            await self._changes.write(change, change.applying())
        except StorageError as fault:
            self._faults.report(f"{self._what} cannot be changed", fault)
            return fault
        return None
