"""Changes of the metadata while the broker runs: one after the other, and the loop never waits for the device.

A change is appended and applied in turns of the loop; in between another thread brings it to the device. Nobody sees a
change that is not there: after a loss of power it might never have been.
"""

import asyncio
from collections.abc import Iterable

from ottla.broker.metadata.cluster import Change, ClusterMetadata, reported_sync
from ottla.broker.metadata.records import MetadataRecord
from ottla.broker.runtime.slices import Slices


class Changes:
    """Writes the metadata log of a broker that runs."""

    def __init__(self, metadata: ClusterMetadata, slices: Slices) -> None:
        self._metadata = metadata
        self._slices = slices
        #: Held from a change's append until it is applied: changes are applied in the order of the log.
        self._turn = asyncio.Lock()

    def change(self, records: Iterable[MetadataRecord]) -> Change:
        """A change that becomes one batch."""
        return self._metadata.change(records)

    async def write(self, change: Change) -> None:
        """Write a change; it holds and is on the device when this returns. StorageError when nothing has changed.

        If the broker stops meanwhile, `is_appended` says whether the change counts.
        """
        await self._slices.run(change.encode())
        async with self._turn:
            change.append()
            try:
                await self._sync()
            finally:  # also when the broker stops meanwhile: what is in the log must not be written once more
                change.apply()

    async def reserve_producer_ids(self) -> None:
        """Have the next block of producer ids on the device. StorageError when it cannot be written."""
        async with self._turn:
            change = self._metadata.reserve()
            if change is not None:
                await self._slices.run(change.encode())
                change.append()
            try:
                await self._sync()
            finally:
                if change is not None:
                    change.apply()

    async def _sync(self) -> None:
        loop = asyncio.get_running_loop()
        with reported_sync():
            for work in self._metadata.flushing():
                working = loop.run_in_executor(None, work)
                try:
                    await asyncio.shield(working)
                except asyncio.CancelledError:  # the broker stops, and will close the files that the thread still uses
                    await asyncio.wait([working])
                    raise
