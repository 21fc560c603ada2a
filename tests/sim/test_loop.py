"""The loop in virtual time: what it does without a clock, and what it says when it cannot go on."""

from __future__ import annotations

import asyncio
import random
import time

import pytest

from sim.loop import HOST, START_S, DeadlockError, LivelockError, SimLoop, run


def _loop() -> SimLoop:
    return SimLoop(random.Random(1))


def test_time_jumps_to_the_next_timer() -> None:
    loop = _loop()
    seen: list[tuple[str, float]] = []

    async def nap(name: str, seconds: float) -> None:
        await asyncio.wait_for(asyncio.Event().wait(), seconds) if name == "late" else await _until(loop, seconds)
        seen.append((name, loop.time() - START_S))

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(nap("day", 86_400.0))
            group.create_task(nap("second", 1.0))

    begun = time.monotonic()
    run(main(), loop)
    assert seen == [("second", 1.0), ("day", 86_400.0)]
    assert time.monotonic() - begun < 60


async def _until(loop: SimLoop, seconds: float) -> None:
    future = loop.create_future()
    loop.call_later(seconds, future.set_result, None)
    await future


def test_a_deadlock_is_told_with_the_tasks_that_wait() -> None:
    loop = _loop()

    async def stuck() -> None:
        await loop.create_future()

    async def main() -> None:
        await asyncio.create_task(stuck(), name="the-one-that-waits")

    with pytest.raises(DeadlockError, match=r"the-one-that-waits at .*test_loop\.py:\d+ stuck"):
        run(main(), loop)


def test_a_circle_without_time_is_told() -> None:
    loop = _loop()

    def again() -> None:
        loop.call_soon(again)

    async def main() -> None:
        again()
        await _until(loop, 1.0)

    with pytest.raises(LivelockError, match=r"at 0\.000000 s"):
        loop.run_until_complete(main())


def test_time_outs_and_cancelled_timers_work() -> None:
    loop = _loop()

    async def main() -> float:
        for _ in range(1_000):
            loop.call_later(5.0, pytest.fail).cancel()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(2.5):
                await loop.create_future()
        await _until(loop, 10.0)
        return loop.time()

    assert run(main(), loop) == START_S + 12.5


def test_what_a_thread_would_call_runs_in_the_loop() -> None:
    loop = _loop()

    async def main() -> list[int]:
        done: asyncio.Future[int] = loop.create_future()
        loop.call_soon_threadsafe(done.set_result, 7)
        return [await done, await loop.run_in_executor(None, sum, [1, 2]), await asyncio.to_thread(lambda: 9)]

    assert run(main(), loop) == [7, 3, 9]


def test_an_exception_that_nobody_hears_is_kept() -> None:
    loop = _loop()

    async def dies() -> None:
        raise KeyError("unheard of")

    async def main() -> None:
        task = asyncio.create_task(dies())
        await _until(loop, 1.0)
        del task

    run(main(), loop)
    assert len(loop.unheard) == 1
    assert "KeyError: 'unheard of'" in loop.unheard[0]


def test_no_resolver_and_no_socket() -> None:
    loop = _loop()

    async def main() -> None:
        with pytest.raises(AssertionError, match="no resolver"):
            await loop.getaddrinfo("localhost", 80)
        with pytest.raises(OSError, match="no network"):
            await loop.create_connection(asyncio.Protocol, "localhost", 80)

    run(main(), loop)


def test_a_frozen_host_goes_on_later_and_a_killed_one_never() -> None:
    loop = _loop()
    ticks: dict[str, list[float]] = {"frozen": [], "killed": [], "free": []}

    async def tick(host: str) -> None:
        HOST.set(host)
        while True:
            ticks[host].append(loop.time() - START_S)
            await _until(loop, 1.0)

    async def main() -> None:
        for host in ticks:
            asyncio.create_task(tick(host))  # noqa: RUF006 - the loop ends them
        await _until(loop, 2.5)
        loop.freeze("frozen")
        loop.kill("killed")
        await _until(loop, 3.0)
        loop.thaw("frozen")
        await _until(loop, 2.0)

    run(main(), loop)
    assert ticks["free"] == pytest.approx([0, 1, 2, 3, 4, 5, 6, 7], abs=1e-3)
    assert ticks["frozen"] == pytest.approx([0, 1, 2, 5.5, 6.5], abs=1e-3)
    assert ticks["killed"] == pytest.approx([0, 1, 2], abs=1e-3)
