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
#: Place of a Delivery that is for all records of its batch.
WHOLE_BATCH = -1


class RecordMetadata(NamedTuple):
    """Where a record is: `offset` is -1 when the broker did not say (acks=0); `timestamp_ms` is the log's."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


class Outcome:
    """The fate of one batch."""

    __slots__ = ("_halves", "_lock", "_waiters", "base_offset", "done", "error", "log_append_time_ms", "tp")

    def __init__(self, tp: TopicPartition, lock: threading.Lock) -> None:
        self.tp = tp
        self.done = False
        self.error: Exception | None = None
        self.base_offset = UNKNOWN_OFFSET
        self.log_append_time_ms = NO_TIMESTAMP
        self._lock = lock
        self._waiters: list[Callable[[], object]] = []
        #: After a split: how many records the first half has, and both halves.
        self._halves: tuple[int, Outcome, Outcome] | None = None

    def split(self, first_count: int, first: "Outcome", second: "Outcome") -> None:
        """The batch goes on as two; its fate is known when both are settled, and an error when one of them is."""
        self._halves = (first_count, first, second)

        def settled() -> None:
            if first.done and second.done:
                self.settle(first.base_offset, first.log_append_time_ms, first.error or second.error)

        first.when_done(settled)
        second.when_done(settled)

    def of(self, index: int) -> tuple["Outcome", int]:
        """The outcome that decides about the record at `index`, and the record's place in it."""
        outcome = self
        while index > WHOLE_BATCH and outcome._halves is not None:
            first_count, first, second = outcome._halves
            outcome, index = (first, index) if index < first_count else (second, index - first_count)
        return outcome, max(index, 0)

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

    @property
    def index(self) -> int:
        """The record's place in the batch it was put into; WHOLE_BATCH for all of it."""
        return self._index

    def done(self) -> bool:
        """Whether the fate is known."""
        return self._outcome.of(self._index)[0].done

    def exception(self) -> Exception | None:
        """Why the record was not delivered; None when it was. IllegalStateError while that is open."""
        outcome, _ = self._outcome.of(self._index)
        if not outcome.done:
            raise IllegalStateError("the record is still on its way: wait for it, or ask done() first")
        return outcome.error

    def result(self, timeout_s: float | None = None) -> RecordMetadata:
        """Wait, in blocking code, and say where the record is. Raises why it was not delivered, RequestTimeoutError."""
        if not self._outcome.of(self._index)[0].wait_in_thread(timeout_s):
            raise RequestTimeoutError(f"the record was not acknowledged within {timeout_s} s")
        return self._metadata()

    def __await__(self) -> Generator[object, None, RecordMetadata]:
        yield from self._outcome.of(self._index)[0].wait().__await__()
        return self._metadata()

    def _metadata(self) -> RecordMetadata:
        outcome, index = self._outcome.of(self._index)
        if outcome.error is not None:
            raise outcome.error
        offset = outcome.base_offset + index if outcome.base_offset >= 0 else UNKNOWN_OFFSET
        stamped = outcome.log_append_time_ms
        timestamp_ms = self._timestamp_ms if stamped == NO_TIMESTAMP else stamped
        return RecordMetadata(outcome.tp.topic, outcome.tp.partition, offset, timestamp_ms)
