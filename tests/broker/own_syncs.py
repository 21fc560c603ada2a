"""Sees each sync of a file or a directory that the thread of the loop makes itself."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def syncs_of_this_thread() -> Iterator[list[str]]:
    """Each sync of a file or a directory that the thread of the loop makes."""
    made: list[str] = []

    def note(_frame: FrameType, event: str, argument: object) -> None:
        name = getattr(argument, "__name__", "")
        if event == "c_call" and name in ("fsync", "fdatasync"):
            made.append(name)

    sys.setprofile(note)
    try:
        yield made
    finally:
        sys.setprofile(None)
