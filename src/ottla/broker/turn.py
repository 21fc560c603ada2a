"""How long the requests of all connections may keep the event loop in one turn of it.

Hundreds of connections may send in the same turn, and each request is far below every limit. So the time is looked at
that they take: when it is over, the other connections wait, and go on in the next turn in the order in which they came.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from ottla.base.limits import REQUESTS_TURN_MS


class Turn:
    """The time of one broker's requests in this turn of its loop."""

    def __init__(self) -> None:
        self._spent_ms = 0
        self._waiting: deque[Callable[[], None]] = deque()
        #: Whether the next turn is told of already.
        self._is_due = False
        #: Whether a request has to wait for the next turn, behind those that wait already.
        self.is_over = False

    def spend(self, taken_ms: int) -> None:
        """A request, or an answer, has taken so long: on a clock of whole milliseconds most take none, and some one."""
        self._spent_ms += taken_ms
        self.is_over = self.is_over or self._spent_ms >= REQUESTS_TURN_MS
        self._tell()

    def wait(self, work: Callable[[], None]) -> None:
        """Call `work` in the next turn that has time for it."""
        self.is_over = True
        self._waiting.append(work)
        self._tell()

    def _tell(self) -> None:
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._begin)

    def _begin(self) -> None:
        self._is_due, self._spent_ms, self.is_over = False, 0, False
        try:
            while self._waiting and not self.is_over:
                self._waiting.popleft()()
        finally:
            if self._waiting:
                self.is_over = True
                self._tell()
