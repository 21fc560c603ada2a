"""Memory of answers that their clients do not read, over all connections.

A connection has one such answer at most: it works on nothing else until that is taken. Slices of files take no memory,
so readers of records may be as slow as they like. Beyond the limit the connection is closed that has waited longest.
"""

from collections.abc import Callable
from typing import Protocol

from ottla.broker.session import Session


class Holder(Protocol):
    """A connection whose client does not read."""

    session: Session

    def close(self) -> None:
        """Close it now."""
        ...


class UnreadAnswers:
    """Who holds how much."""

    def __init__(self, limit_bytes: int, tell_closed: Callable[[str, object], None]) -> None:
        """`tell_closed` hears of an address whose connection is closed, and why."""
        self._limit_bytes = limit_bytes
        self._tell_closed = tell_closed
        #: In the order in which they began to wait.
        self._held: dict[Holder, int] = {}
        self.held_bytes = 0

    def waits(self, holder: Holder, size_bytes: int) -> None:
        """Its client does not take so much of an answer."""
        self.taken(holder)
        self._held[holder] = size_bytes
        self.held_bytes += size_bytes
        while self.held_bytes > self._limit_bytes:
            oldest = next(iter(self._held))
            self.taken(oldest)
            self._tell_closed(oldest.session.client_host, "it does not read its answers")
            oldest.close()

    def taken(self, holder: Holder) -> None:
        """Its client has taken it, or has gone. No-op for one that does not wait."""
        self.held_bytes -= self._held.pop(holder, 0)
