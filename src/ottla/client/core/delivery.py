"""What becomes of a record that was sent: a `Delivery`, which is its batch and its place in it.

A batch is settled once, for all its records; a Delivery costs one small object and holds no lock of its own. It can be
awaited in asyncio, and waited for in a thread.
"""

import asyncio
import threading
from collections.abc import Callable, Generator
from typing import NamedTuple

from ottla.base.types import TopicPartition
from ottla.client.errors import IllegalStateError, RequestTimeoutError

#: Offset of a record whose broker was not asked (acks=0), or that had it already and did not say where.
UNKNOWN_OFFSET = -1
NO_TIMESTAMP = -1


class RecordMetadata(NamedTuple):
    """Where a record is: `offset` is -1 when the broker did not say (acks=0); `timestamp_ms` is the log's."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


class Outcome:
    """The fate of one batch."""

    __slots__ = ("_lock", "_waiters", "base_offset", "done", "error", "log_append_time_ms", "tp")

    def __init__(self, tp: TopicPartition, lock: threading.Lock) -> None:
        self.tp = tp
        self.done = False
        self.error: Exception | None = None
        self.base_offset = UNKNOWN_OFFSET
        self.log_append_time_ms = NO_TIMESTAMP
        self._lock = lock
        self._waiters: list[Callable[[], object]] = []

    def settle(self, base_offset: int, log_append_time_ms: int, error: Exception | None) -> bool:
        """Fix the fate and wake who waits; False when it was fixed before."""
        with self._lock:
            if self.done:
                return False
            self.base_offset = base_offset
            self.log_append_time_ms = log_append_time_ms
            self.error = error
            self.done = True
            waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            waiter()
        return True

    def when_done(self, waiter: Callable[[], object]) -> None:
        """Call `waiter` once, at once if the fate is known, else in the thread that settles it."""
        with self._lock:
            if not self.done:
                self._waiters.append(waiter)
                return
        waiter()

    async def wait(self) -> None:
        """Wait in the running loop until the fate is known."""
        if self.done:
            return
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()

        def wake() -> None:
            if not future.done():
                future.set_result(None)

        self.when_done(lambda: loop.call_soon_threadsafe(wake))
        await future

    def wait_in_thread(self, timeout_s: float | None) -> bool:
        """Wait in a thread of the user's; False when `timeout_s` passes first."""
        if self.done:
            return True
        event = threading.Event()
        self.when_done(event.set)
        return event.wait(timeout_s)


class Delivery:
    """The fate of one record. Await it, or call `result` in blocking code."""

    __slots__ = ("_index", "_outcome", "_timestamp_ms")

    def __init__(self, outcome: Outcome, index: int, timestamp_ms: int) -> None:
        self._outcome = outcome
        self._index = index
        self._timestamp_ms = timestamp_ms

    def done(self) -> bool:
        """Whether the fate is known."""
        return self._outcome.done

    def exception(self) -> Exception | None:
        """Why the record was not delivered; None when it was. IllegalStateError while that is open."""
        if not self._outcome.done:
            raise IllegalStateError("the record is still on its way: wait for it, or ask done() first")
        return self._outcome.error

    def result(self, timeout_s: float | None = None) -> RecordMetadata:
        """Wait, in blocking code, and say where the record is. Raises why it was not delivered, RequestTimeoutError."""
        if not self._outcome.wait_in_thread(timeout_s):
            raise RequestTimeoutError(f"the record was not acknowledged within {timeout_s} s")
        return self._metadata()

    def __await__(self) -> Generator[object, None, RecordMetadata]:
        yield from self._outcome.wait().__await__()
        return self._metadata()

    def _metadata(self) -> RecordMetadata:
        outcome = self._outcome
        if outcome.error is not None:
            raise outcome.error
        offset = outcome.base_offset + self._index if outcome.base_offset >= 0 else UNKNOWN_OFFSET
        stamped = outcome.log_append_time_ms
        timestamp_ms = self._timestamp_ms if stamped == NO_TIMESTAMP else stamped
        return RecordMetadata(outcome.tp.topic, outcome.tp.partition, offset, timestamp_ms)
