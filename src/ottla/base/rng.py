"""Chance as an argument: pure rooms draw from what they get; shells give `random.Random()`, tests a seeded one."""

from collections.abc import Sequence
from typing import Protocol, TypeVar

T = TypeVar("T")


class Rng(Protocol):
    """The part of `random.Random` that is used."""

    def random(self) -> float:
        """A number from 0 up to, but not including, 1."""
        ...

    def uniform(self, a: float, b: float, /) -> float:
        """A number between `a` and `b`."""
        ...

    def choice(self, seq: Sequence[T], /) -> T:
        """One of `seq`, which is not empty."""
        ...
