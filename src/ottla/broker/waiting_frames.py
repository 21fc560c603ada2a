"""Whole frames of one connection that wait for their turn."""

from collections import deque
from collections.abc import Iterable

from ottla.base.limits import MAX_WAITING_BYTES, MAX_WAITING_FRAMES
from ottla.broker.answers import Frame
from ottla.broker.connections import Connections


class WaitingFrames(deque[Frame]):
    """In the order in which they came. Their bytes are counted for all connections when that is asked for."""

    __slots__ = ("_connections", "_counted_bytes", "_size_bytes")

    def __init__(self, connections: Connections) -> None:
        super().__init__()
        self._connections = connections
        self._size_bytes = self._counted_bytes = 0

    def add(self, frames: Iterable[Frame]) -> None:
        """These have come."""
        self.extend(frames)
        for frame in frames:
            self._size_bytes += len(frame)

    def take(self) -> Frame:
        """The next one."""
        frame = self.popleft()
        self._size_bytes -= len(frame)
        return frame

    def forget(self) -> None:
        """They will not be carried out, and count no more."""
        self.clear()
        self._connections.waiting_bytes -= self._counted_bytes
        self._size_bytes = self._counted_bytes = 0

    def are_too_many(self) -> bool:
        """Count them. Whether so many wait here, or so much of all connections, that the socket is not read."""
        is_crowded = len(self) > MAX_WAITING_FRAMES or self._size_bytes > MAX_WAITING_BYTES
        if self._size_bytes or self._counted_bytes:
            self._connections.waiting_bytes += self._size_bytes - self._counted_bytes
            self._counted_bytes = self._size_bytes
            is_crowded = is_crowded or (len(self) > 0 and self._connections.is_crowded)
        return is_crowded
