"""Calls into the user's code, made where the user polls.

The core may not call a rebalance callback itself: it belongs into the user's poll(). It asks for the call; poll takes
it out of here, makes it (the blocking facade in the user's own thread), and says that it is done.
"""

import inspect
from collections import deque
from collections.abc import Callable
from typing import Any

from ottla.client.errors import ClientError


class CallbackDue:
    """One call that poll has to make. `begin` before it is made, `finish` on the loop when it was.

    Until it has begun it waits: who was about to make it may be interrupted (Ctrl-C), and the next poll makes it.
    """

    def __init__(
        self,
        function: Callable[..., object],
        arguments: tuple[Any, ...],
        made: Callable[[Exception | None], object],
    ) -> None:
        """`made` is called once, with what the function raised."""
        self.function = function
        self.arguments = arguments
        self.has_begun = False
        self._made: Callable[[Exception | None], object] | None = made

    def begin(self) -> None:
        """From now on it is no other poll's to make."""
        self.has_begun = True

    def interrupted(self) -> None:
        """It was broken off by Ctrl-C or a cancellation, which is not the core's to hear of."""
        if self.has_begun:
            self.finish(ClientError(f"{self.function!r} was interrupted"))

    def finish(self, error: Exception | None = None) -> None:
        """It was called, and raised `error`."""
        made, self._made = self._made, None
        if made is not None:
            made(error)

    async def make(self) -> None:
        """Make the call here, in a coroutine; the function may be one too."""
        try:
            self.begin()
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


class Callbacks:
    """The calls that wait for poll."""

    def __init__(self) -> None:
        self._due: deque[CallbackDue] = deque()

    def __bool__(self) -> bool:
        return self.next() is not None

    def add(self, due: CallbackDue) -> None:
        """Have this call made."""
        self._due.append(due)

    def next(self) -> CallbackDue | None:
        """The oldest call that nobody makes yet. It waits until it has begun."""
        while self._due and self._due[0].has_begun:
            self._due.popleft()
        return self._due[0] if self._due else None
