"""Garbage collection in a broker's process: all objects are looked at only while no client waits.

Python's full collection stops everything, for longer the more topics, groups and transactional ids there are. The
broker hardly needs it: reference counts free what it makes (`tests/broker/test_garbage.py` holds that). So it comes
when the broker has been quiet for a moment, and never between two requests. Young objects are collected as ever.
"""

import asyncio
import gc
from collections.abc import Callable
from typing import Final

from ottla.base.clock import Clock

_LOOK_S: Final = 10.0
_QUIET_MS: Final = 1_000
#: Allocations between two collections of the youngest, and those between two of the middle generation.
_YOUNG: Final = 2_000
_MIDDLE: Final = 5
#: So many collections of the middle generation never happen.
_NEVER: Final = 2**31 - 1


def keep_out_of_the_way(clock: Clock, active_ms: Callable[[], int]) -> None:
    """From now on, in this process. `active_ms` says when a client has said or heard something last."""
    gc.freeze()  # what is alive now mostly stays; its reference counts free the rest
    gc.set_threshold(_YOUNG, _MIDDLE, _NEVER)
    loop = asyncio.get_running_loop()
    collected_ms = clock.monotonic_ms()

    def look() -> None:
        nonlocal collected_ms
        now_ms, last_ms = clock.monotonic_ms(), active_ms()
        if collected_ms < last_ms <= now_ms - _QUIET_MS:
            gc.collect()
            gc.freeze()
            collected_ms = now_ms
        loop.call_later(_LOOK_S, look)

    loop.call_later(_LOOK_S, look)
