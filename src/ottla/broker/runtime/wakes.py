"""Fetches that are woken: a few in each turn of the event loop, in order.

One record may wake thousands, and each reads and is answered; one of many partitions may read all of them. While there
are few, all have the next turn.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from ottla.base.clock import Clock
from ottla.base.limits import FETCHES_AT_ONCE, TOLD_AT_ONCE, WAKES_TURN_MS


class Wakes:
    """Who has been woken and had no turn yet."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._woken: deque[Callable[[], object]] = deque()
        self._turn_is_due = False
        #: How many watchers were told of something in this turn of the loop.
        self._told = 0

    def add(self, wake: Callable[[], object]) -> None:
        """Call `wake`, which raises nothing, in the next turn of the loop, or when those before it have had theirs."""
        self._woken.append(wake)
        self._expect_turn()

    def may_tell(self, watchers: int) -> bool:
        """Whether so many watchers may be told of something in this turn of the loop."""
        if self._told and self._told + watchers > TOLD_AT_ONCE:
            return False
        if not self._told:
            asyncio.get_running_loop().call_soon(self._next_turn)
        self._told += watchers
        return True

    def _next_turn(self) -> None:
        self._told = 0

    def _expect_turn(self) -> None:
        if not self._turn_is_due:
            self._turn_is_due = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        self._turn_is_due = False
        end_ms, read = self._clock.monotonic_ms() + WAKES_TURN_MS, 0
        woken = len(self._woken)
        while read < min(woken, FETCHES_AT_ONCE) and (not read or self._clock.monotonic_ms() < end_ms):
            read += 1
            self._woken.popleft()()
        if self._woken:
            self._expect_turn()
