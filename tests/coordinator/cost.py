"""Counts what the coordinator does for an input, where time would be a bad measure: lines that are run."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def steps(act: Callable[[], object], made: type | None = None) -> tuple[int, list[Any]]:
    """Lines of the coordinator that `act` runs, one for each element of a loop; and every object of type `made`."""
    count = 0
    objects: list[Any] = []

    def line(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal count
        count += event == "line"
        return line

    def returned(frame: FrameType, event: str, argument: object) -> Any:
        if event == "return":
            objects.append(frame.f_locals["self"])
        return returned

    def call(frame: FrameType, event: str, argument: object) -> Any:
        if made is not None and frame.f_code.co_name == "__init__" and isinstance(frame.f_locals.get("self"), made):
            return returned
        return line if "ottla/coordinator" in frame.f_code.co_filename else None

    before = sys.gettrace()
    sys.settrace(call)
    try:
        act()
    finally:
        sys.settrace(before)
    return count, objects
