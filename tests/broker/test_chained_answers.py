"""Futures that are chained (`runtime.answers`): results, and what becomes of them when nobody waits any more."""

import asyncio
import gc

from ottla.broker.runtime.answers import gather


async def test_who_gives_up_waiting_for_several_leaves_nothing_that_nobody_has_heard() -> None:
    """The simulator, broker-power 100: asyncio wrote "exception was never retrieved" for each client that had gone."""
    heard: list[object] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda loop, context: heard.append(context["message"]))
    waiting = [loop.create_future() for _ in range(2)]
    answer = gather(waiting, sum)
    answer.cancel()
    for _ in range(5):
        await asyncio.sleep(0)
    assert all(each.cancelled() for each in waiting)
    del answer
    gc.collect()
    assert heard == []
