"""Connections whose clients are gone: a process may end that has thousands."""

import asyncio
from collections import deque
from typing import Protocol

from ottla.base.limits import ENDINGS_AT_ONCE


class _Ending(Protocol):
    def end(self) -> None: ...


class Endings:
    """A few end in each turn of the loop, in the order in which their clients have gone."""

    def __init__(self) -> None:
        self._waiting: deque[_Ending] = deque()
        #: How many have ended in this turn.
        self._ended = 0

    def may_end(self, connection: _Ending) -> bool:
        """Whether it may end now. If not, its `end` is called in a later turn."""
        if not self._ended and not self._waiting:
            asyncio.get_running_loop().call_soon(self._next_turn)
        if self._ended < ENDINGS_AT_ONCE and not self._waiting:
            self._ended += 1
            return True
        self._waiting.append(connection)
        return False

    def _next_turn(self) -> None:
        self._ended = 0
        try:
            while self._waiting and self._ended < ENDINGS_AT_ONCE:
                self._ended += 1
                self._waiting.popleft().end()
        finally:
            if self._ended:
                asyncio.get_running_loop().call_soon(self._next_turn)
