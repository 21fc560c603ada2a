"""Searches by time (ListOffsets): batches that may take long to open are opened one after the other in a thread."""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from ottla.base.limits import MAX_INLINE_OPENED_BYTES
from ottla.broker.runtime.slices import Slices
from ottla.log.timestamps import BatchSearch

#: What a step without a batch counts among the bytes that are looked at on the loop: the indexes of a partition.
_STEP_BYTES: Final = 4_096


class Searches:
    """The searches of all requests."""

    def __init__(self, slices: Slices) -> None:
        self._slices = slices
        # One thread: each batch may take MAX_DECOMPRESSED_BATCH_BYTES, also when its client has gone meanwhile.
        self._thread = ThreadPoolExecutor(1, "searches")

    def run(
        self, steps: Iterator[BatchSearch | None], timed: Callable[[Iterator[None]], Iterator[None]]
    ) -> "asyncio.Task[None] | None":
        """Take all steps: at once (None) if they are few and short, else while others are served.

        `timed` is put around the steps that are taken on the loop.
        """
        room_bytes = MAX_INLINE_OPENED_BYTES
        for batch in steps:
            room_bytes -= _STEP_BYTES if batch is None else batch.size_bytes
            if room_bytes < 0 or (batch is not None and batch.is_long):
                return self._slices.start(self._slowly(batch, steps, timed), "a search by time")
        return None

    async def _slowly(
        self,
        batch: BatchSearch | None,
        steps: Iterator[BatchSearch | None],
        timed: Callable[[Iterator[None]], Iterator[None]],
    ) -> None:
        more = True

        def to_the_next_long_one() -> Iterator[None]:
            nonlocal batch, more
            for each in steps:
                if each is not None and each.is_long:
                    batch = each
                    return
                yield
            more = False

        while more:
            if batch is not None and batch.is_long:
                await asyncio.get_running_loop().run_in_executor(self._thread, batch.run)
            batch = None
            await self._slices.run(timed(to_the_next_long_one()))

    def close(self) -> None:
        """The broker stops: return when no file is read any more."""
        self._thread.shutdown(cancel_futures=True)
