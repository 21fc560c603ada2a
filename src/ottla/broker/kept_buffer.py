"""What the buffer of one connection has more than at first, counted for all connections."""

from ottla.broker.connections import Connections
from ottla.wire.frames import FrameBuffer


class KeptBuffer:
    """The memory of `frames` between two frames."""

    __slots__ = ("_connections", "_counted_bytes", "_frames")

    def __init__(self, frames: FrameBuffer, connections: Connections) -> None:
        self._frames = frames
        self._connections = connections
        self._counted_bytes = 0

    def count(self) -> None:
        """Count it. Where all connections keep very much, it is what is in the buffer, and no more."""
        if not (self._frames.kept_bytes or self._counted_bytes or self._frames.is_filled):
            return
        self._count()
        if self._connections.keeps_much:
            self._frames.shrink()
            self._count()

    def grown(self) -> None:
        """It may have grown: room was asked for what may not come. Somebody writes to it, so it stays as it is."""
        if self._frames.kept_bytes != self._counted_bytes:
            self._count()

    def forget(self) -> None:
        """The connection is gone."""
        self._connections.kept_bytes -= self._counted_bytes
        self._counted_bytes = 0

    def _count(self) -> None:
        self._connections.kept_bytes += self._frames.kept_bytes - self._counted_bytes
        self._counted_bytes = self._frames.kept_bytes
