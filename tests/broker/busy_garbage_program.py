"""A process of its own, whose clients are always busy and whose code leaves cycles: prints what becomes of them."""

from __future__ import annotations

import asyncio
import gc
import json
import random
import weakref

from ottla.broker.garbage import keep_out_of_the_way
from sim.clock import MachineClock
from sim.loop import SimLoop, run

#: Objects that come in ten milliseconds: what a topic of thousands of partitions is made with, and what is made of a
#: request of thousands in its turns of the loop.
_GROWTHS = (400, 5_000)
#: Fewer are looked at in one collection while they come: some 10 ms.
_LOOKED_AT = 25_000


class _Cycle:
    def __init__(self, size: int) -> None:
        self.me = self
        self.content = [[] for _ in range(size)]  # type: ignore[var-annotated]


async def _busy(clock: MachineClock) -> dict[str, list[bool]]:
    """Whether each of some cycles is still there twelve seconds after nobody has it: few objects, then many, twice.

    `kept`: whether a second has taken what grows and is no garbage out of all later collections.
    """
    keep_out_of_the_way(clock, clock.monotonic_ms)  # somebody has just been served, whenever it asks
    loop = asyncio.get_running_loop()  # of virtual time
    left: dict[str, list[bool]] = {"few": [], "many": []}
    for name, size in (("few", 10_000), ("many", 300_000), ("many", 300_000)):
        cycle = _Cycle(size)
        there = weakref.ref(cycle)
        gc.collect(1)  # all of it grows old, as what an answer of many parts holds
        del cycle
        passed = loop.create_future()
        loop.call_later(12, passed.set_result, None)
        await passed
        left[name].append(there() is not None)
    frozen = gc.get_freeze_count()
    kept = _Cycle(100_000)  # what stays, as the partitions of a large topic: no later collection looks at it
    gc.collect(1)
    passed = loop.create_future()
    loop.call_later(1, passed.set_result, None)
    await passed
    left["kept"] = [gc.get_freeze_count() - frozen >= len(kept.content)]
    left["short"] = [await _most_looked_at(loop, growth) < _LOOKED_AT for growth in _GROWTHS]
    return left


async def _most_looked_at(loop: asyncio.AbstractEventLoop, growth: int) -> int:
    """How many objects one full collection goes through, at most, while the broker grows for a second."""
    looks, grown = [0], list[object]()

    def look(phase: str, info: dict[str, int]) -> None:
        if phase == "start" and info["generation"] == 2:
            looks.append(len(gc.get_objects()))

    gc.callbacks.append(look)
    for _ in range(100):
        grown.append([[] for _ in range(growth)])
        passed = loop.create_future()
        loop.call_later(0.01, passed.set_result, None)
        await passed
    gc.callbacks.remove(look)
    assert len(looks) > 1
    return max(looks)


if __name__ == "__main__":
    loop = SimLoop(random.Random(1))
    print(json.dumps(run(_busy(MachineClock(loop)), loop)))
