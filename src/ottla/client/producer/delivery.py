"""A `Delivery` tells what became of a record. It holds the outcome of the record's batch, and its place in the batch.

A batch is settled once for all its records. So a Delivery is one small object without a lock. Asyncio code awaits it; a
thread calls `result`.
"""

import asyncio
import threading
from collections.abc import Generator
from contextlib import suppress
from typing import NamedTuple

from ottla.client.core.producer.outcome import NO_TIMESTAMP, UNKNOWN_OFFSET, Outcome
from ottla.client.errors import IllegalStateError, RequestTimeoutError


class RecordMetadata(NamedTuple):
    """Where a record is. `offset` is -1 if the broker did not say it; `timestamp_ms` is the one in the log."""

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
        """The record's place in its batch; WHOLE_BATCH for a Delivery of all records of a batch."""
        return self._index

    def done(self) -> bool:
        """Whether the record's fate is known."""
        return self._outcome.of(self._index)[0].done

    def exception(self) -> Exception | None:
        """Why the record was not delivered; None if it was. Raises IllegalStateError while its fate is not known."""
        outcome, _ = self._outcome.of(self._index)
        if not outcome.done:
            raise IllegalStateError("the record's fate is not known yet: wait for it, or call done() first")
        return outcome.error

    def result(self, timeout_s: float | None = None) -> RecordMetadata:
        """Wait in blocking code. Returns where the record is, or raises why it was not delivered.

        Raises RequestTimeoutError after `timeout_s`; the record may still be delivered then.
        """
        if not wait_in_thread(self._outcome.of(self._index)[0], timeout_s):
            raise RequestTimeoutError(f"the record was not acknowledged within {timeout_s} s")
        return self._metadata()

    def __await__(self) -> Generator[object, None, RecordMetadata]:
        yield from wait(self._outcome.of(self._index)[0]).__await__()
        return self._metadata()

    def _metadata(self) -> RecordMetadata:
        outcome, index = self._outcome.of(self._index)
        if outcome.error is not None:
            raise outcome.error.with_traceback(None)  # all records of the batch raise it: else its traceback grows
        offset = outcome.base_offset + index if outcome.base_offset >= 0 else UNKNOWN_OFFSET
        stamped = outcome.log_append_time_ms
        timestamp_ms = self._timestamp_ms if stamped == NO_TIMESTAMP else stamped
        return RecordMetadata(outcome.tp.topic, outcome.tp.partition, offset, timestamp_ms)


def delivery_of(outcome: Outcome, index: int, timestamp_ms: int) -> Delivery:
    """`Delivery(outcome, index, timestamp_ms)` for compiled code, which thus makes no Python numbers."""
    made: Delivery = Delivery.__new__(Delivery)
    made._outcome = outcome
    made._index = index
    made._timestamp_ms = timestamp_ms
    return made


async def wait(outcome: Outcome) -> None:
    """Wait in the running loop until the outcome is known, which takes `delivery.timeout.ms` at most."""
    if outcome.done:
        return
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()

    def wake() -> None:
        if not future.done():
            future.set_result(None)

    def wake_in_loop() -> None:
        with suppress(RuntimeError):  # that loop has ended: nobody waits in it any more
            loop.call_soon_threadsafe(wake)

    outcome.when_done(wake_in_loop)
    await future


def wait_in_thread(outcome: Outcome, timeout_s: float | None) -> bool:
    """Wait in the calling thread. Returns False if `timeout_s` passes first."""
    if outcome.done:
        return True
    event = threading.Event()
    outcome.when_done(event.set)
    return event.wait(timeout_s)
