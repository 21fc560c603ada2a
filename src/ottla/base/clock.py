"""Time as an argument: pure rooms get `now_ms`; shells get a Clock."""

import time
from typing import Protocol


class Clock(Protocol):
    """Where a shell reads the time. Both clocks are in milliseconds."""

    def now_ms(self) -> int:
        """Wall clock, milliseconds since the epoch: what Kafka writes into records. People and NTP may set it."""
        ...

    def monotonic_ms(self) -> int:
        """A clock that nobody sets, for every time-out.

        On Linux and macOS it stands still while the machine is suspended. That is what a broker needs: after the
        resume a member has the rest of its session left, and can heartbeat. The wall clock has moved on meanwhile.
        """
        ...


class SystemClock:
    """The machine's own clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000


class ManualClock:
    """A clock a test moves by hand; it starts at `now_ms` and never moves by itself."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._monotonic_ms = 0

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic_ms(self) -> int:
        return self._monotonic_ms

    def advance(self, delta_ms: int) -> None:
        """Move both readings forward by `delta_ms` milliseconds."""
        if delta_ms < 0:
            raise ValueError(f"time does not run backwards: {delta_ms} ms")
        self._now_ms += delta_ms
        self._monotonic_ms += delta_ms

    def step(self, delta_ms: int) -> None:
        """Set the wall clock `delta_ms` forward, or back where it is negative. No time passes."""
        self._now_ms += delta_ms


def lasts(since_ms: int, for_ms: int, now_ms: int) -> bool:
    """Whether a time of `for_ms` milliseconds that began at `since_ms` is not over yet.

    It is over, too, if the clock was set back behind its beginning: what is due later must not wait for hours.
    """
    return since_ms <= now_ms < since_ms + for_ms
