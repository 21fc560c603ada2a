"""What a frame of a client is answered with: bytes, bytes that come later, or the last ones before the end."""

import asyncio
from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from ottla.broker.outbox import Piece
from ottla.broker.session import Session

Frame: TypeAlias = bytes | bytearray | memoryview
#: An encoded answer: one piece or several, some of them slices of files; or None for no answer (acks=0).
Encoded: TypeAlias = bytes | list[Piece] | None


class Later:
    """An answer that is not ready yet: `future` gives a result that `encode` makes bytes of, or another Later. Where it
    gives an error, raised or as its result, the connection is closed. With the connection `future` is cancelled, unless
    it `outlives` that: a client with acks=0 waits for nothing, and is gone when it has sent all."""

    __slots__ = ("encode", "future", "outlives")

    def __init__(
        self, future: asyncio.Future[Any], encode: "Callable[[Any], Answer]", *, outlives: bool = False
    ) -> None:
        self.future = future
        self.encode = encode
        self.outlives = outlives


class Last(Later):
    """The last answer of a connection: sent after a delay; then it is closed. What comes meanwhile is not looked at."""

    __slots__ = ()

    def __init__(self, encoded: bytes, delay_ms: int) -> None:
        loop = asyncio.get_running_loop()
        super().__init__(loop.create_future(), lambda result: encoded)
        loop.call_later(delay_ms / 1000, _due, self.future)


class Throttled(Later):
    """An answer that is sent at once; after it nothing of the connection is served for a while (KIP-219)."""

    __slots__ = ("encoded",)

    def __init__(self, encoded: Encoded, throttle_ms: int) -> None:
        loop = asyncio.get_running_loop()
        super().__init__(loop.create_future(), lambda result: None)
        self.encoded = encoded
        due = loop.call_later(throttle_ms / 1000, _due, self.future)
        self.future.add_done_callback(lambda future: due.cancel())


def _due(future: asyncio.Future[Any]) -> None:
    """Its time has come; the connection may have been lost in the same turn."""
    if not future.done():
        future.set_result(None)


def forget(future: asyncio.Future[Any]) -> None:
    """Nobody waits any more for what this one gives, nor for what that gives in its turn."""
    if not future.cancelled() and future.exception() is None and isinstance(future.result(), Later):
        future.result().future.cancel()


Answer: TypeAlias = Encoded | Later


class Dispatch(Protocol):
    """Turns a request frame into an answer; raises CorruptDataError for a frame that makes no sense."""

    def __call__(self, frame: Frame, session: Session, /) -> Answer: ...
