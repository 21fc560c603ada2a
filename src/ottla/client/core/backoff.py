"""Exponential back-off with jitter (KIP-144, KIP-601, KIP-580)."""

from ottla.base.rng import Rng

_MULTIPLIER = 2
_JITTER = 0.2


class Backoff:
    """Pauses that double from `first_ms` to `max_ms`. Each is up to a fifth longer or shorter, by chance."""

    def __init__(self, first_ms: float, max_ms: float, rng: Rng) -> None:
        self.max_ms = max(first_ms, max_ms)
        #: How many pauses there were since the last success.
        self.failures = 0
        self._first_ms = first_ms
        self._rng = rng

    def next_ms(self) -> float:
        """The pause after one more failure, in milliseconds."""
        self.failures += 1
        return self.after_ms(self.failures - 1)

    def after_ms(self, failures: int) -> float:
        """The pause that follows `failures` earlier pauses, in milliseconds."""
        pause = min(self._first_ms * _MULTIPLIER ** min(failures, 30), self.max_ms)
        jittered: float = pause * self._rng.uniform(1 - _JITTER, 1 + _JITTER)
        return jittered

    def succeeded(self) -> None:
        """Start again from the shortest pause."""
        self.failures = 0


def short_backoff(rng: Rng) -> Backoff:
    """For errors that are over in milliseconds (CONCURRENT_TRANSACTIONS, while markers are written)."""
    return Backoff(5, 100, rng)
