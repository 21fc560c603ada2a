"""A clock on which everything takes as long: tests count in turns of the loop what may not keep it."""

import asyncio
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from ottla.base.clock import ManualClock


class TickingClock(ManualClock):
    """Each look at the monotonic reading takes a millisecond, so that a slice of `TURN_MS` has so many steps."""

    def monotonic_ms(self) -> int:
        now_ms = super().monotonic_ms()
        self.advance(1)
        return now_ms


async def turns(answer: "asyncio.Task[Any]", look: Callable[[], int]) -> list[int]:
    """What `look` says, turn by turn of the loop, until the answer is there."""
    seen = [look()]
    while not answer.done():
        await asyncio.sleep(0)
        seen.append(look())
    return seen


async def some_turns_until(holds: Callable[[], bool]) -> None:
    """As many turns of the loop as that takes; AssertionError where it takes very many."""
    for _ in range(100_000):
        if holds():
            return
        await asyncio.sleep(0)
    raise AssertionError("it does not come")


def steps(seen: list[int]) -> list[int]:
    """By how much it has changed from turn to turn."""
    return [abs(after - before) for before, after in pairwise(seen)]
