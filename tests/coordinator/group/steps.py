"""Work in steps, all of them taken at once."""

from collections.abc import Generator
from typing import Any, TypeVar

T = TypeVar("T")


def result_of(steps: Generator[Any, None, T]) -> T:
    """Take all steps, and return what they end with."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: T = end.value
            return found
