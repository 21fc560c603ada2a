"""Calls into the user's code, made where the user polls.

The background tasks may not call a rebalance callback themselves: it belongs into the user's poll(). They put it here
and wait; poll takes it out, runs it (the blocking facade in the user's own thread), and says that it is done.
"""

import asyncio
import inspect
from collections import deque
from collections.abc import Callable
from typing import Any

from ottla.client.errors import ClientError


class CallbackDue:
    """One call that poll has to make. `finish` on the loop when it was made."""

    def __init__(self, function: Callable[..., object], arguments: tuple[Any, ...]) -> None:
        self.function = function
        self.arguments = arguments
        self._future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def interrupted(self) -> None:
        """It was broken off by Ctrl-C or a cancellation, which is not the background task's to hear of."""
        self.finish(ClientError(f"{self.function!r} was interrupted"))

    def finish(self, error: Exception | None = None) -> None:
        """It was called, and raised `error`."""
        if not self._future.done():
            if error is None:
                self._future.set_result(None)
            else:
                self._future.set_exception(error)

    async def make(self) -> None:
        """Make the call here, in a coroutine; the function may be one too."""
        try:
            result = self.function(*self.arguments)
            if inspect.isawaitable(result):
                await result
        except Exception as error:  # noqa: BLE001  it goes where the call came from
            self.finish(error)
        except BaseException:
            self.interrupted()
            raise
        else:
            self.finish()

    async def wait(self) -> None:
        """Wait until it was called; raises what it raised."""
        await self._future


class Callbacks:
    """The calls that wait for poll."""

    def __init__(self, news: Callable[[], None]) -> None:
        self._due: deque[CallbackDue] = deque()
        self._news = news

    def __bool__(self) -> bool:
        return bool(self._due)

    async def call(self, function: Callable[..., object] | None, *arguments: Any) -> None:
        """Have `function` called by poll, and wait for it. Nothing happens when it is None."""
        if function is None:
            return
        due = CallbackDue(function, arguments)
        self._due.append(due)
        self._news()
        await due.wait()

    def post(self, function: Callable[..., object], *arguments: Any) -> None:
        """Have `function` called by the next poll, without waiting for it."""
        self._due.append(CallbackDue(function, arguments))
        self._news()

    def next(self) -> CallbackDue | None:
        """The oldest call that waits."""
        return self._due.popleft() if self._due else None
