"""Long work in the event loop, in slices, so that requests have their turn between two slices.

Long work is an iterator that does a small step between two `yield`s: it opens one partition, or applies one batch of a
log. A slice takes as many steps as fit into `TURN_MS`. There is only one slice in a turn of the loop: several pieces of
long work take turns. Other code runs between two slices, so after each step it must find everything consistent.

A step may give a future. Then the work goes on when it is done.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Generator, Iterable, Iterator
from typing import Any, Final, TypeVar

from ottla.base.clock import Clock
from ottla.base.errors import OttlaError

_log = logging.getLogger(__name__)

T = TypeVar("T")

#: How long one slice may keep the loop. (The step that goes beyond it is finished.)
TURN_MS: Final = 1


class Slices:
    """The long work of one broker."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        #: Held from a slice's start to the loop's next turn. Work that waits for it is served in order.
        self._turn = asyncio.Lock()
        self._tasks: set[asyncio.Task[Any]] = set()

    async def run(self, steps: Iterator[object]) -> None:
        """Take all steps, and raise what a step raises. If all fit into one slice, nothing else runs in between.

        Steps that are given up are ended now: the traceback of why may keep them, and what they hold, for long.
        """
        loop, has_more = asyncio.get_running_loop(), True
        try:
            while has_more:
                await self._turn.acquire()
                try:
                    has_more, waits_for = self._slice(steps)
                finally:
                    loop.call_soon(self._turn.release)
                if waits_for is not None:
                    await asyncio.wait((waits_for,))  # it is not cancelled with the work
                elif has_more:
                    await asyncio.sleep(0)
        finally:
            if isinstance(steps, Generator):
                steps.close()

    async def collect(self, made: Iterable[T]) -> list[T]:
        """All that an iterator makes, one thing in a step. What it goes through must not change meanwhile."""
        found: list[T] = []

        def steps() -> Iterator[None]:
            for each in made:
                found.append(each)
                yield

        await self.run(steps())
        return found

    def start(self, work: Coroutine[Any, Any, T], what: str) -> asyncio.Task[T]:
        """Run `work` in a task of its own. `close` ends it, and its faults are logged, so nobody need wait for it."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)

        def ended(gone: asyncio.Task[T]) -> None:
            self._tasks.discard(gone)
            fault = None if gone.cancelled() else gone.exception()
            if isinstance(fault, OttlaError):  # a fault that may be: a shard resigns, a device refuses
                _log.error("%s has failed: %s", what, fault)
            elif fault is not None:
                _log.critical("%s has failed", what, exc_info=fault)

        task.add_done_callback(ended)
        return task

    def in_order(
        self, lock: asyncio.Lock, work: Callable[[], Coroutine[Any, Any, T]], what: str
    ) -> "asyncio.Future[T]":
        """Run `work` with the lock, behind those that wait for it already.

        What has begun is carried out whole, although its client may go. What has not goes with its client: else any
        number of large requests could wait here whose connections, and room for frames, are free again.
        """
        has_begun = False

        async def begin() -> T:
            nonlocal has_begun
            async with lock:
                has_begun = True
                return await work()

        task = self.start(begin(), what)
        waiting = asyncio.shield(task)

        def left(gone: "asyncio.Future[T]") -> None:
            if gone.cancelled() and not has_begun:
                task.cancel()

        waiting.add_done_callback(left)
        return waiting

    async def close(self) -> None:
        """The broker stops: end what runs, and wait until it has ended."""
        while self._tasks:
            tasks = tuple(self._tasks)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _slice(self, steps: Iterator[object]) -> "tuple[bool, asyncio.Future[Any] | None]":
        """Take steps until the turn is over. Whether there are more, and what the next one waits for."""
        end_ms = self._clock.monotonic_ms() + TURN_MS
        for step in steps:
            if isinstance(step, asyncio.Future):
                return True, step
            if self._clock.monotonic_ms() >= end_ms:
                return True, None
        return False, None
