"""Work in steps, so that others are served between two of them; here all of them are taken at once."""

from collections.abc import Generator, Iterator
from contextlib import closing
from typing import TypeVar

T = TypeVar("T")


def result_of(steps: Generator[object, None, T]) -> T:
    """Take all steps, and return what they end with."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: T = end.value
            return found


def behind(step: T, steps: Generator[T, None, None]) -> Iterator[T]:
    """The steps, with one in front of them that was taken from them. They are closed with it."""
    with closing(steps):
        yield step
        yield from steps


class Pace:
    """When a step of work with many pieces, little and much, has done enough: `if pace.is_over(cost): yield`."""

    def __init__(self, at_once: int) -> None:
        """`at_once`: what one step may cost. The piece that goes beyond it is finished."""
        self._at_once = at_once
        self._left = at_once

    def is_over(self, cost: int) -> bool:
        """A piece has cost so much. Whether the next one has a step of its own; it begins anew then."""
        self._left -= cost
        if self._left > 0:
            return False
        self._left = self._at_once
        return True
