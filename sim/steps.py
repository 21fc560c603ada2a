"""The death of a process at a call that changes its directory: before it, in the middle of a write, or behind it.

    disk.fuse = Fuse(steps, place, part, about, die)

The process comes to its `steps`-th changing call of a file whose name has `about` in it, and `die` is called there. It
takes what the disk holds at this moment, and raises ProcessDied: no code of the process may run behind that, also none
that answers.
"""

from collections.abc import Callable
from enum import Enum
from typing import Final, NoReturn

#: Calls of `Disk` and `Storage` that change what the next process finds; `open` only of a file that is not there.
CHANGES: Final = frozenset(
    {
        "open",
        "append",
        "truncate",
        "sync",
        "write",
        "delete",
        "rename",
        "mark",
        "unmark",
        "sync_names",
        "mkdir",
        "rmdir",
    }
)


class ProcessDied(BaseException):
    """The simulated process is dead. No `except Exception` of its code may see that."""


class Place(Enum):
    """Where in a call the process dies."""

    BEFORE = "before"
    #: In the middle of an append; other calls are done at once, and it dies behind them.
    WITHIN = "within"
    BEHIND = "behind"


class Fuse:
    """See the module. `part`, from 0 to 1, is how much of an append is written before the process dies within it."""

    def __init__(self, steps: int, place: Place, part: float, about: str, die: Callable[["Fuse"], NoReturn]) -> None:
        self.place = place
        self._steps = steps
        self._part = part
        self._about = about
        self._die = die
        #: The call at which it burns down, once it has come to it.
        self.call = ""

    def __str__(self) -> str:
        return f"{self.place.value} {self.call}"

    def comes_to(self, call: str, name: str) -> None:
        """The process is about to change something."""
        if self.call:
            self._die(self)  # behind the call before
        if self._about in name:
            self._steps -= 1
        if self._steps == 0:
            self.call = f"{call} {name}"
            if self.place is Place.BEFORE:
                self._die(self)

    def written(self, size_bytes: int) -> int:
        """How much of an append the device gets before the process dies."""
        return size_bytes if self.place is Place.BEHIND else int(size_bytes * self._part)

    def is_behind(self) -> None:
        """A call is done."""
        if self.call:
            self._die(self)
