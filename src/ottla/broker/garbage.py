"""Garbage collection in a broker's process: all objects are looked at only while no client waits, or when it must be.

Python's full collection stops everything, for longer the more topics, groups and transactional ids there are. The
broker hardly needs it: reference counts free what it makes (`tests/broker/test_garbage.py` holds that). So it comes
when the broker has been quiet for a moment. Young objects are collected as ever.

A broker whose clients poll is never quiet. While it grows (a topic of thousands of partitions is made, or a request of
as many is carried out), a collection of what has come since the last one takes its objects out of every later one. It
comes in the turn of the loop behind the one in which they have become many, so that it is short. If it finds
that something leaves cycles behind nevertheless, they must not fill the memory: then all that has come since is looked
at again, when it is twice as much.
"""

import asyncio
import gc
import logging
from collections.abc import Callable
from typing import Final

from ottla.base.clock import Clock
from ottla.broker.quiet import Quiet

#: How often it looks whether the broker is quiet (it asks every connection).
_LOOK_QUIET_S: Final = 1.0
_QUIET_MS: Final = 1_000
#: Objects more than at the last collection of the youngest, and such collections between two of the middle generation.
#: The middle one looks at four times as many, some 5 to 15 ms.
_YOUNG: Final = 2_000
_MIDDLE: Final = 2
#: So many collections of the middle generation never happen.
_NEVER: Final = 2**31 - 1
#: So many old objects are too few for a collection while a client waits: it takes 5 to 15 ms for them.
_FEW: Final = 12_000
#: Less garbage than this is not worth a line of the log: what is alive is there to stay.
_TOLD: Final = 1_000

_log = logging.getLogger(__name__)


def keep_out_of_the_way(clock: Clock, active_ms: Callable[[], int]) -> None:
    """From now on, in this process. `active_ms` says when a client has said or heard something last."""
    gc.freeze()  # what is alive now mostly stays; its reference counts free the rest
    gc.set_threshold(_YOUNG, _MIDDLE, _NEVER)
    gc.enable()
    loop = asyncio.get_running_loop()
    quiet = Quiet(clock)
    collected_ms = clock.monotonic_ms()
    most, due = _FEW, _due(_FEW)
    is_asked = False

    def look_quiet() -> None:
        nonlocal collected_ms, most, due
        now_ms, last_ms = clock.monotonic_ms(), active_ms()
        if collected_ms < last_ms <= now_ms - _QUIET_MS:
            gc.collect()
            gc.freeze()
            collected_ms, most, due = now_ms, _FEW, _due(_FEW)
        loop.call_later(_LOOK_QUIET_S, look_quiet)

    def collected(phase: str, info: dict[str, int]) -> None:
        nonlocal is_asked
        if phase == "stop" and info["generation"] == 1 and gc.get_count()[2] >= due and not is_asked:
            is_asked = not loop.is_closed()
            if is_asked:
                loop.call_soon_threadsafe(look)

    def look() -> None:
        nonlocal most, due, is_asked
        is_asked, old = False, _old()
        if old >= most:
            most, old = _FEW, 0
            if _tell(gc.collect(), quiet):
                old = _old()
                most = max(_FEW, 2 * old)  # not frozen: what is alive now may be such garbage soon
            else:
                gc.freeze()
        due = gc.get_count()[2] + _due(most - old)

    loop.call_later(_LOOK_QUIET_S, look_quiet)
    gc.callbacks.append(collected)


def _old() -> int:
    """How many objects have grown old since the last that was frozen."""
    return len(gc.get_objects(generation=2))


def _due(more: int) -> int:
    """After so many collections of the middle generation, each of which adds some, so many objects more may be old."""
    return -(-more // (_YOUNG * (_MIDDLE + 2)))


def _tell(found: int, quiet: Quiet) -> bool:
    """Whether so much garbage was found that it is worth a line."""
    if found < _TOLD:
        return False
    more = quiet.turn("garbage")
    if more is not None:
        what = "were garbage that only a full collection frees, while clients are served (a bug: please report it)"
        _log.warning("%d objects %s%s", found, what, more)
    return True
