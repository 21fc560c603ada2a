"""Memory of the frames that are being received, and of large ones until they are answered, over all connections.

The limit is `queued.max.request.bytes`. As in Kafka, a frame is begun while anything is left, so that the largest can
always be received: at most one frame goes beyond the limit. A connection whose frame finds nothing left waits, and its
socket is not read; they go on in the order in which they came, so many in a turn of the loop.
"""

import asyncio
from typing import Protocol

from ottla.base.limits import FRAMES_GRANTED_AT_ONCE


class Waiter(Protocol):
    """A connection whose frame waits for memory."""

    def granted(self) -> None:
        """The frame may be received now. May not ask for more before it has returned."""
        ...


class FrameMemory:
    """Who holds how much is each connection's to know; this counts."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._used_bytes = 0
        #: Who waits for how many bytes, in order.
        self._waiting: dict[Waiter, int] = {}
        #: Whether more of them go on in the next turn of the loop.
        self._is_granting = False

    @property
    def is_short(self) -> bool:
        """Whether a frame waits."""
        return bool(self._waiting)

    def take(self, waiter: Waiter, size_bytes: int) -> bool:
        """Take room for a frame. Where there is none: False, and `granted` is called when there is."""
        if self._waiting or self._used_bytes >= self._limit_bytes:
            self._waiting[waiter] = size_bytes
            return False
        self._used_bytes += size_bytes
        return True

    def give_back(self, size_bytes: int) -> None:
        """A frame is whole (a large one: used by nobody any more), or its connection gone. Those that wait go on."""
        self._used_bytes -= size_bytes
        if not self._is_granting:
            self._grant()

    def _grant(self) -> None:
        self._is_granting = False
        granted = 0
        while self._waiting and self._used_bytes < self._limit_bytes:
            if granted == FRAMES_GRANTED_AT_ONCE:
                self._is_granting = True
                asyncio.get_running_loop().call_soon(self._grant)
                return
            granted += 1
            waiter = next(iter(self._waiting))
            self._used_bytes += self._waiting.pop(waiter)
            waiter.granted()

    def forget(self, waiter: Waiter) -> None:
        """It waits no more. No-op for one that does not wait."""
        self._waiting.pop(waiter, None)
