"""Repeat what may succeed later, within a time limit."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from ottla.client.core.backoff import Backoff
from ottla.client.errors import ClientError, RequestTimeoutError

T = TypeVar("T")


class Deadline:
    """The moment, on the loop's clock, at which a call gives up."""

    def __init__(self, timeout_ms: float) -> None:
        self.timeout_ms = timeout_ms
        self._at = asyncio.get_running_loop().time() + timeout_ms / 1000

    @property
    def left_ms(self) -> float:
        """How many milliseconds are left; 0 when the deadline has passed."""
        return max(0.0, (self._at - asyncio.get_running_loop().time()) * 1000)

    @property
    def passed(self) -> bool:
        """Whether no time is left."""
        return self.left_ms <= 0


async def repeat(
    attempt: Callable[[], Awaitable[T]],
    *,
    what: str,
    deadline: Deadline,
    backoff: Backoff,
    failed: Callable[[ClientError], None] = lambda error: None,
) -> T:
    """Call `attempt` until it returns, with a pause after each retriable error. `failed` is called with each of these.

    Raises any other error at once. Raises RequestTimeoutError when `deadline` passes; the last error is its cause.
    """
    last: ClientError | None = None
    try:
        async with asyncio.timeout(deadline.left_ms / 1000):
            while True:
                try:
                    return await attempt()
                except ClientError as error:
                    if not error.retriable:
                        raise
                    last = error
                    failed(error)
                await asyncio.sleep(backoff.next_ms() / 1000)
    except TimeoutError as error:
        if isinstance(error, ClientError):
            raise
        why = f": {last}" if last is not None else ""
        raise RequestTimeoutError(f"{what} did not succeed within {deadline.timeout_ms:.0f} ms{why}") from last
