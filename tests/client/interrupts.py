"""Ctrl-C at every moment: an interruption at the n-th line that Python comes to, for one n after the other."""

import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any


class UserInterrupt(BaseException):
    """As KeyboardInterrupt, but it does not end the test run."""


class _Interrupting:
    """Raises UserInterrupt at one of these events in the functions of some modules."""

    def __init__(self, at: int, modules: tuple[str, ...], events: tuple[str, ...]) -> None:
        self.left = at
        self._modules = modules
        self._events = events

    def __call__(self, frame: FrameType, event: str, argument: object) -> Any:
        if not frame.f_globals.get("__name__", "").startswith(self._modules):
            return None
        if event in self._events:
            self.left -= 1
            if self.left == 0:
                sys.settrace(None)
                raise UserInterrupt
        return self


def every_moment(
    run: Callable[[], object], *modules: str, events: tuple[str, ...] = ("line", "return")
) -> Iterator[int]:
    """Run `run` again and again, interrupted at the first moment in `modules`, at the second, … until it is not.

    Yields after each interruption. Neither `run` itself nor another thread is interrupted.
    """
    at = 0
    while True:
        at += 1
        interrupting = _Interrupting(at, modules, events)
        before = sys.gettrace()
        sys.settrace(interrupting)
        try:
            run()
        except UserInterrupt:
            sys.settrace(before)
            yield at
        else:
            sys.settrace(before)
            return
