"""When to ask for metadata again: the pauses grow while the answers bring nothing new (KIP-580).

A partition may be without a leader for hours, and all clients that use it would ask ten times a second.
"""

from ottla.client.core.backoff import Backoff

#: The shortest pause, also where `retry.backoff.ms` is 0. Without a pause the loop would do nothing else while a
#: partition has no leader.
_LEAST_PAUSE_S = 0.01


class Refreshing:
    """The pauses between one core's requests for metadata."""

    def __init__(self, backoff: Backoff) -> None:
        self._backoff = backoff
        self._asked_s = self._not_before_s = float("-inf")

    @property
    def is_slow(self) -> bool:
        """Whether the pause is longer than the first one."""
        return self._backoff.failures > 1

    def due_s(self, now_s: float) -> float:
        """When to ask for metadata that somebody wants now."""
        if now_s > self._asked_s + 2 * self._backoff.max_ms / 1000:  # nobody has wanted any for a while
            self._backoff.succeeded()
        return max(now_s, self._not_before_s)

    def asked(self, now_s: float) -> None:
        """Metadata is asked for now."""
        self._asked_s = now_s
        self._pause()

    def news(self) -> None:
        """An answer has brought something new: the pause is the first one again."""
        self._backoff.succeeded()
        self._pause()

    def _pause(self) -> None:
        self._not_before_s = self._asked_s + max(self._backoff.next_ms() / 1000, _LEAST_PAUSE_S)
