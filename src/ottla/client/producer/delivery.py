"""What becomes of a record that was sent: a `Delivery`, which is its batch's outcome and its place in the batch.

A batch is settled once, for all its records; a Delivery costs one small object and holds no lock of its own. It can be
awaited in asyncio, and waited for in a thread.
"""

import asyncio
import threading
from collections.abc import Generator
from contextlib import suppress
from typing import NamedTuple

from ottla.client.core.producer.outcome import NO_TIMESTAMP, UNKNOWN_OFFSET, Outcome
from ottla.client.errors import IllegalStateError, RequestTimeoutError


class RecordMetadata(NamedTuple):
    """Where a record is: `offset` is -1 when the broker did not say (acks=0); `timestamp_ms` is the log's."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


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
        if not wait_in_thread(self._outcome.of(self._index)[0], timeout_s):
            raise RequestTimeoutError(f"the record was not acknowledged within {timeout_s} s")
        return self._metadata()

    def __await__(self) -> Generator[object, None, RecordMetadata]:
        yield from wait(self._outcome.of(self._index)[0]).__await__()
        return self._metadata()

    def _metadata(self) -> RecordMetadata:
        outcome, index = self._outcome.of(self._index)
        if outcome.error is not None:
            raise outcome.error.with_traceback(None)  # every record of the batch raises it: it would grow
        offset = outcome.base_offset + index if outcome.base_offset >= 0 else UNKNOWN_OFFSET
        stamped = outcome.log_append_time_ms
        timestamp_ms = self._timestamp_ms if stamped == NO_TIMESTAMP else stamped
        return RecordMetadata(outcome.tp.topic, outcome.tp.partition, offset, timestamp_ms)


async def wait(outcome: Outcome) -> None:
    """Wait in the running loop until the fate is known: `delivery.timeout.ms` at most."""
    if outcome.done:
        return
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()

    def wake() -> None:
        if not future.done():
            future.set_result(None)

    def wake_in_loop() -> None:
        with suppress(RuntimeError):  # that loop has ended, and nobody waits in it any more
            loop.call_soon_threadsafe(wake)

    outcome.when_done(wake_in_loop)
    await future


def wait_in_thread(outcome: Outcome, timeout_s: float | None) -> bool:
    """Wait in a thread of the user's; False when `timeout_s` passes first."""
    if outcome.done:
        return True
    event = threading.Event()
    outcome.when_done(event.set)
    return event.wait(timeout_s)
