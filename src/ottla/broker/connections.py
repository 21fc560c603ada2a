"""All connections of a broker, whichever listener they came by: how many there are, and which are closed in time."""

import logging
from typing import Final, Protocol

from ottla.base.clock import Clock
from ottla.base.limits import MAX_RECEIVED_BYTES
from ottla.broker.frame_memory import FrameMemory
from ottla.broker.session import Session

_log: Final = logging.getLogger(__name__)


class Managed(Protocol):
    """A connection, as this module needs it."""

    session: Session
    active_ms: int

    def overdue(self, now_ms: int, max_idle_ms: int) -> str:
        """Why it is time to close it; empty if it is not."""
        ...

    def close(self) -> None:
        """Close it now."""
        ...


class Connections:
    """The connections of all listeners, and the memory that their frames share."""

    def __init__(self, clock: Clock, *, max_connections: int, max_idle_ms: int, max_queued_bytes: int = -1) -> None:
        """The limits are `max.connections`, `connections.max.idle.ms` and `queued.max.request.bytes`; where the last is
        -1, MAX_RECEIVED_BYTES."""
        self.memory = FrameMemory(max_queued_bytes if max_queued_bytes > 0 else MAX_RECEIVED_BYTES)
        self._clock = clock
        self._max_connections = max_connections
        self._max_idle_ms = max_idle_ms
        self._open: dict[Managed, None] = {}
        #: When one that is closed was active last.
        self._active_ms = clock.monotonic_ms()

    def opened(self, connection: Managed) -> None:
        """Take a new connection, or close it when there are too many."""
        self._open[connection] = None
        if len(self._open) > self._max_connections:
            _log.warning("max.connections reached: refusing %s", connection.session.client_host)
            connection.close()

    @property
    def is_full(self) -> bool:
        """Whether the next connection would be one too many."""
        return len(self._open) >= self._max_connections

    def closed(self, connection: Managed) -> None:
        """Forget a connection."""
        self._open.pop(connection, None)
        self._active_ms = max(self._active_ms, connection.active_ms)

    def close(self) -> None:
        """Close every connection."""
        for connection in list(self._open):
            connection.close()

    @property
    def active_ms(self) -> int:
        """When a client has said or heard something last, by the clock that never steps."""
        return max((each.active_ms for each in self._open), default=self._active_ms)

    def close_idle(self) -> None:
        """Close the connections that were silent for `connections.max.idle.ms`, or whose frame takes too long.

        Called by a timer.
        """
        now_ms = self._clock.monotonic_ms()
        for connection in list(self._open):
            why = connection.overdue(now_ms, self._max_idle_ms)
            if why:
                _log.info("closing the connection of %s: %s", connection.session.client_host, why)
                connection.close()
