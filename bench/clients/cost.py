"""What a record costs a client."""

from __future__ import annotations

import gc
import time
from typing import Any, NamedTuple


class Cost(NamedTuple):
    """Nanoseconds by record: of CPU of the process, of CPU of the user's thread, and of the clock."""

    process: float
    thread: float
    wall: float


class Meter:
    """Begins to count when it is made."""

    def __init__(self) -> None:
        gc.collect()
        self._began = time.process_time_ns(), time.thread_time_ns(), time.perf_counter_ns()

    def cost(self, records: int) -> Cost:
        """Of so many records since then."""
        ended = time.process_time_ns(), time.thread_time_ns(), time.perf_counter_ns()
        return Cost(*((end - begin) / records for begin, end in zip(self._began, ended, strict=True)))


def touch(value: object, offset: int) -> None:
    """What the cheapest user does with a record."""


def told(delivery: object) -> None:
    """What the cheapest user does with a delivery."""


def told_with_error(error: object, message: Any) -> None:
    """The same with confluent-kafka."""
