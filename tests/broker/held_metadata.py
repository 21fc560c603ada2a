"""A device that takes nothing of the metadata log until a test says so."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial

import pytest

from ottla.broker.metadata.cluster import ClusterMetadata

_PATIENCE_S = 60.0


class Held:
    """The device, seen from the test's loop."""

    def __init__(self) -> None:
        self._waits, self._goes_on = threading.Event(), threading.Event()

    async def is_waited_for(self) -> None:
        """Return when a change waits for the device."""
        assert await asyncio.to_thread(self._waits.wait, _PATIENCE_S)

    def go_on(self) -> None:
        """It takes everything from now on."""
        self._goes_on.set()

    def wait(self, work: Callable[[], None]) -> None:
        """What a thread of the broker does."""
        self._waits.set()
        assert self._goes_on.wait(_PATIENCE_S)
        work()


@asynccontextmanager
async def held_metadata() -> AsyncIterator[Held]:
    """It is held as long as the body runs, or until `go_on`."""
    held, flushing = Held(), ClusterMetadata.flushing

    def holding(metadata: ClusterMetadata, *, sync_mark: bool = False) -> Iterator[Callable[[], None]]:
        for work in flushing(metadata, sync_mark=sync_mark):
            yield partial(held.wait, work)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(ClusterMetadata, "flushing", holding)
        try:
            yield held
        finally:
            held.go_on()
