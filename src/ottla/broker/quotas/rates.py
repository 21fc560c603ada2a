"""What somebody has used of a quota, and how long he has to wait: with the numbers that Apache Kafka computes.

A rate is measured over windows: `quota.window.num` of them, the last of which is being filled. Where there is less
history, what came before counts as windows in which nothing happened, so that a burst of ten seconds' worth is free.
Whoever is above his quota waits until the rate, without anything new, would have come down to it (KIP-13). Changes of
topics have a bucket of tokens instead (KIP-599): it may go below zero, and fills with the quota.
"""

import math
from typing import Final, NamedTuple

#: `throttle_time_ms` is an int32. It is 25 days.
_MOST_MS: Final = 2**31 - 1


class Windows(NamedTuple):
    """How a rate is measured: the number of windows, and the milliseconds of each."""

    number: int
    size_ms: int

    @property
    def burst_s(self) -> float:
        """Seconds' worth of the quota in a full bucket."""
        return self.number * self.size_ms / 1000


class _Window:
    __slots__ = ("last_ms", "start_ms", "value")

    def __init__(self, now_ms: int) -> None:
        self.begin(now_ms)

    def begin(self, now_ms: int) -> None:
        """Empty it, and have it begin now."""
        self.start_ms = self.last_ms = now_ms
        self.value = 0.0


class Rate:
    """An amount a second, over windows."""

    __slots__ = ("_current", "_ring", "_windows")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        #: One more than there are windows: the oldest may lie partly in the time that counts.
        self._ring: list[_Window] = []
        self._current = 0

    def record(self, amount: float, now_ms: int) -> None:
        """Use so much; a negative amount takes something back."""
        if not self._ring:
            self._ring.append(_Window(now_ms))
        window = self._ring[self._current]
        if now_ms - window.start_ms >= self._windows.size_ms:
            self._current = (self._current + 1) % (self._windows.number + 1)
            if self._current == len(self._ring):
                self._ring.append(_Window(now_ms))
            window = self._ring[self._current]
            window.begin(now_ms)
        window.value += amount
        window.last_ms = now_ms

    def throttle_ms(self, quota: float, now_ms: int) -> int:
        """How long to wait for the rate to come down to `quota`, an amount a second; 0 where it is not above it."""
        span_ms = self._span_ms(now_ms)
        rate = sum(window.value for window in self._ring) / (span_ms / 1000)
        return _rounded((rate - quota) / quota * span_ms) if rate > quota else 0

    def is_over(self, now_ms: int) -> bool:
        """Whether nothing of it counts any more: it is as a new one."""
        return all(now_ms - window.last_ms >= self._counts_ms for window in self._ring)

    @property
    def _counts_ms(self) -> int:
        return self._windows.number * self._windows.size_ms

    def _span_ms(self, now_ms: int) -> int:
        """The time that the windows stand for, which is at least all of them but one."""
        for window in self._ring:
            if now_ms - window.last_ms >= self._counts_ms:
                window.begin(now_ms)
        elapsed_ms = now_ms - min((window.start_ms for window in self._ring), default=now_ms)
        missing = self._windows.number - 1 - elapsed_ms // self._windows.size_ms
        return max(elapsed_ms + max(missing, 0) * self._windows.size_ms, 1)


class TokenBucket:
    """Tokens for changes of topics, one for each partition."""

    __slots__ = ("_at_ms", "_tokens", "_windows")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        #: None: full.
        self._tokens: float | None = None
        self._at_ms = 0

    def take(self, amount: float, quota: float, now_ms: int) -> None:
        """Take tokens, also where too few are left."""
        self._tokens = min(self._fill(quota, now_ms) - amount, self._windows.burst_s * quota)

    def throttle_ms(self, quota: float, now_ms: int) -> int:
        """How long until there are tokens again; 0 where there are no fewer than none."""
        tokens = self._fill(quota, now_ms)
        return _rounded(-tokens / quota * 1000) if tokens < 0 else 0

    def is_full(self, quota: float, now_ms: int) -> bool:
        """Whether it is as a new one."""
        return self._fill(quota, now_ms) >= self._windows.burst_s * quota

    def _fill(self, quota: float, now_ms: int) -> float:
        burst = self._windows.burst_s * quota
        tokens = burst if self._tokens is None else self._tokens
        self._tokens = min(tokens + quota * (now_ms - self._at_ms) / 1000, burst)
        self._at_ms = now_ms
        return self._tokens


def _rounded(value: float) -> int:
    """As Java's Math.round, but no more than an answer can tell."""
    return math.floor(min(value + 0.5, _MOST_MS))
