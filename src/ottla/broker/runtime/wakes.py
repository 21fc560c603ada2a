"""Fetches that are woken: a few in each turn of the event loop, in order.

One record may wake thousands, and each reads and is answered. While there are few, all have the next turn.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from ottla.base.limits import FETCHES_AT_ONCE


class Wakes:
    """Who has been woken and had no turn yet."""

    def __init__(self) -> None:
        self._woken: deque[Callable[[], object]] = deque()

    def add(self, wake: Callable[[], object]) -> None:
        """Call `wake`, which raises nothing, in the next turn of the loop, or when those before it have had theirs."""
        self._woken.append(wake)
        if len(self._woken) == 1:
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        turn = [self._woken.popleft() for _ in range(min(len(self._woken), FETCHES_AT_ONCE))]
        if self._woken:
            asyncio.get_running_loop().call_soon(self._turn)
        for wake in turn:
            wake()
