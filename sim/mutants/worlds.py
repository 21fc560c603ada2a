"""Bugs of the simulation itself, that no world survives."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest.mock import patch

from sim import campaign, limits, running
from sim.world import Verdict, World


class _Worse(World):
    """A world that ends in a way that its seed says."""

    def run(self) -> Verdict:
        match self.seed:
            case 1:
                os._exit(7)
            case 2:
                raise RuntimeError("the checkers are broken")
            case 3:
                while True:
                    pass
        return super().run()


@contextmanager
def end_badly() -> Iterator[None]:
    """World 1 takes its process with it, world 2 raises, and world 3 never ends."""
    with patch.object(running, "World", _Worse), patch.object(limits, "LONGEST_S", 3.0):
        yield


def raises(world: World) -> Verdict:
    """A world that raises, and not as one of its users."""
    raise RuntimeError("the checkers are broken")


def never_ends(world: World) -> Verdict:
    """A world that does not end."""
    while True:
        pass


@contextmanager
def each(run: Callable[[World], Verdict]) -> Iterator[None]:
    """All worlds are like that."""
    with patch.object(World, "run", run), patch.object(limits, "LONGEST_S", 0.1):
        yield


def _stopped(*args: object) -> str:
    raise KeyboardInterrupt


@contextmanager
def stopped_while_it_shrinks() -> Iterator[None]:
    """Ctrl-C, when a campaign makes its failing worlds smaller."""
    with patch.object(campaign, "shrunk", _stopped):
        yield
