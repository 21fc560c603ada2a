"""The user's callbacks, which are called where the user polls.

The core must not call a rebalance callback itself, because that has to happen inside the user's poll(). So it asks for
the call. poll takes it from here, makes it (the blocking facade does so in the user's thread), and reports its end.
"""

import inspect
from collections import deque
from collections.abc import Callable
from typing import Any

from ottla.client.errors import ClientError


class CallbackDue:
    """One call that poll has to make. poll calls `begin` before it, and `finish`, on the loop, after it.

    A call that has not begun still waits. So if Ctrl-C interrupts a poll just before the call, the next poll makes it.
    """

    def __init__(
        self,
        function: Callable[..., object],
        arguments: tuple[Any, ...],
        made: Callable[[Exception | None], object],
    ) -> None:
        """`made` is called once, with what the function raised, or None."""
        self.function = function
        self.arguments = arguments
        self.has_begun = False
        self._made: Callable[[Exception | None], object] | None = made

    def begin(self) -> None:
        """The call begins. From now on no other poll makes it."""
        self.has_begun = True

    def interrupted(self) -> None:
        """Ctrl-C or a cancellation has interrupted the call. The core gets a ClientError instead of that exception."""
        if self.has_begun:
            self.finish(ClientError(f"the callback {self.function!r} was interrupted"))

    def finish(self, error: Exception | None = None) -> None:
        """The call has ended. `error` is what it raised, or None."""
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
        except Exception as error:  # noqa: BLE001  the core decides who raises it
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
        """Let poll make this call."""
        self._due.append(due)

    def next(self) -> CallbackDue | None:
        """The oldest call that has not begun, or None. It stays here until it begins."""
        while self._due and self._due[0].has_begun:
            self._due.popleft()
        return self._due[0] if self._due else None
