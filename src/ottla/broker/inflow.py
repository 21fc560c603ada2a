"""How much all connections receive in one turn of the loop.

Theory of operation. The loop tells of all sockets that are ready in one turn, asks each connection for room, and fills
it: there may be thousands with tens of kilobytes, and nobody is asked before. So what they receive is counted. When the
turn has had its bytes, the connections that follow give room for a small request only, and whoever fills that, or has
received more, is not read any more. They go on in later turns in the order in which they came: in each as many as have
room for one turn's bytes. Small receives are not counted, so that small requests cost nothing.
A turn is not told of when it begins, which would cost each large request a call. The count goes on over the turns, and
begins anew in the turn behind the one in which half of the bytes were received.
"""

import asyncio
from typing import Protocol

from ottla.base.limits import RECEIVED_LEAST_BYTES, RECEIVED_TURN_BYTES


class Receiving(Protocol):
    """A connection that has received much, and waits."""

    def receive_more(self) -> int:
        """Its turn has come. For how many bytes it has room; 0 if it is not read for another reason."""
        ...


class Inflow:
    """The bytes of one broker's connections in this turn of its loop."""

    def __init__(self, turn_bytes: int = RECEIVED_TURN_BYTES) -> None:
        self._turn_bytes = turn_bytes
        self._received_bytes = 0
        #: In the order in which they came.
        self._waiting: dict[Receiving, None] = {}
        #: Those that were told to go on in this turn, and in the one before, and have not received yet: the loop may
        #: look at their sockets in the next one only. With the bytes that are counted for each.
        self._going_on: dict[Receiving, int] = {}
        self._were_going_on: dict[Receiving, int] = {}
        #: Whether the next turn is told of already.
        self._is_due = False
        #: Whether this turn has had its bytes, or they belong to those that waited.
        self.is_over = False

    def has_turn(self, connection: Receiving) -> bool:
        """Whether it has waited, and may receive now."""
        return connection in self._going_on or connection in self._were_going_on

    def has_to_wait(self, connection: Receiving, nbytes: int) -> bool:
        """It has received so much. Whether it has to wait before it receives more."""
        counted_bytes = self._going_on.pop(connection, 0) or self._were_going_on.pop(connection, 0)
        self._received_bytes += max(nbytes, RECEIVED_LEAST_BYTES) - counted_bytes
        if self._received_bytes >= self._turn_bytes:
            self.is_over = True
        if self._received_bytes >= self._turn_bytes // 2:
            self._tell()
        return self.is_over and nbytes >= counted_bytes  # one that had room for more has nothing more now

    def wait(self, connection: Receiving) -> None:
        """Call its `receive_more` in the next turn that has bytes for it."""
        self._waiting[connection] = None
        self._tell()

    def forget(self, connection: Receiving) -> None:
        """It is gone. No-op for one that does not wait."""
        self._waiting.pop(connection, None)
        self._going_on.pop(connection, None)
        self._were_going_on.pop(connection, None)

    def _tell(self) -> None:
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._begin)

    def _begin(self) -> None:
        self._is_due = False
        self._were_going_on, self._going_on = self._going_on, {}
        self._received_bytes = sum(self._were_going_on.values())
        called: list[Receiving] = []
        try:
            for connection in self._waiting:
                if self._received_bytes >= self._turn_bytes:
                    break
                called.append(connection)
                room_bytes = connection.receive_more()
                if room_bytes:
                    self._going_on[connection] = max(room_bytes, RECEIVED_LEAST_BYTES)
                    self._received_bytes += self._going_on[connection]
        finally:
            for connection in called:
                del self._waiting[connection]
            self.is_over = bool(self._waiting) or self._received_bytes >= self._turn_bytes
            if self.is_over or self._going_on or self._were_going_on:
                self._tell()
