"""Changes of the metadata while the broker runs: one after the other, and the loop never waits for the device.

A change is appended and applied in turns of the loop; in between another thread brings it to the device. Nobody sees a
change that is not there: after a loss of power it might never have been. While the device refuses, changes wait.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Final

from ottla.base.errors import StorageError
from ottla.broker.metadata.cluster import Change, ClusterMetadata
from ottla.broker.metadata.records import MetadataRecord
from ottla.broker.runtime.slices import Slices

_log = logging.getLogger(__name__)

#: How long it waits until it asks a device again that has refused.
_RETRY_S: Final = 0.5


class Changes:
    """Writes the metadata log of a broker that runs."""

    def __init__(
        self,
        metadata: ClusterMetadata,
        slices: Slices,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`pause` waits for so many seconds."""
        self._metadata = metadata
        self._slices = slices
        self._pause = pause
        #: Held from a change's append until it is applied: changes are applied in the order of the log.
        self._turn = asyncio.Lock()

    def change(self, records: Iterable[MetadataRecord | None]) -> Change:
        """A change that becomes one batch."""
        return self._metadata.change(records)

    async def write(self, change: Change, applying: Iterator[None] | None = None) -> None:
        """Write a change; it holds and is on the device when this returns. StorageError when nothing has changed.

        All see it at once, or as far as each step of `applying` applies it.

        What was written cannot be taken back: it waits for a device that refuses, and so do the changes behind it.
        If the broker stops meanwhile, `is_appended` says whether the change counts.
        """
        await self._slices.run(change.encode())
        async with self._turn:
            change.append()
            try:
                if change.is_appended:
                    await self._sync()
                    if applying is not None:
                        await self._slices.run(applying)
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
        has_told = False
        while True:
            try:
                await self._flush()
            except StorageError as fault:
                if not has_told:
                    _log.error("a change of the metadata waits until it is on the device: %s", fault)
                    has_told = True
                await self._pause(_RETRY_S)
            else:
                return

    async def _flush(self) -> None:
        loop = asyncio.get_running_loop()
        for work in self._metadata.flushing():
            working = loop.run_in_executor(None, work)
            try:
                await asyncio.shield(working)
            except asyncio.CancelledError:  # the broker stops, and will close the files that the thread still uses
                await asyncio.wait([working])
                raise
