"""Work in steps, so that others are served between two of them; here all of them are taken at once."""

from collections.abc import Generator
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
