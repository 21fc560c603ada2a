"""How much work something is, without a clock: the calls of Python and C that it makes."""

import sys
from collections.abc import Callable
from types import CodeType, FrameType


def calls(work: Callable[[], object], *codes: CodeType) -> int:
    """How many calls it makes in this thread; only those of these functions, if some are named."""
    made = 0

    def note(frame: FrameType, event: str, _argument: object) -> None:
        nonlocal made
        made += event == "call" and frame.f_code in codes if codes else event in ("call", "c_call")

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return made
