"""The clock of `tests.steady_loop`: it does not count a stop of the process, and a limit still ends."""

import asyncio
import os
import selectors
from collections.abc import Coroutine
from typing import Any

import pytest

from tests.steady_loop import Looks, SteadyLoop

_HOUR_S = 3_600.0


class _Machine(asyncio.SelectorEventLoop):
    """A machine whose clock the test moves."""

    now_s = 1_000.0

    def time(self) -> float:
        return self.now_s


class _Loop(SteadyLoop, _Machine):
    """On that machine."""


class _Sockets(selectors.DefaultSelector):
    """Each look at them takes so long by that clock."""

    def __init__(self) -> None:
        super().__init__()
        self.takes_s = 0.0
        self.looks = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.looks += 1
        _Machine.now_s += self.takes_s
        return super().select(timeout)


class _Looks(Looks, _Sockets):
    """At these sockets."""

    def __init__(self, takes_s: float) -> None:
        super().__init__()
        self.takes_s = takes_s


def _run(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(work)


async def _some_turns(count: int) -> None:
    ours, theirs = os.pipe()
    loop = asyncio.get_running_loop()
    for _ in range(count):
        heard = loop.create_future()
        loop.add_reader(ours, heard.set_result, None)
        os.write(theirs, b"x")
        await heard
        loop.remove_reader(ours)
        os.read(ours, 1)
    os.close(ours)
    os.close(theirs)


def test_what_takes_some_turns_is_in_time_although_the_process_is_stopped_in_each() -> None:
    async def work() -> None:
        async with asyncio.timeout(0.05):
            await _some_turns(5)

    looks = _Looks(_HOUR_S)
    _run(_Loop(looks), work())
    assert looks.looks >= 10


def test_a_limit_ends_when_nothing_comes() -> None:
    async def work() -> None:
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await asyncio.Event().wait()
        assert 0.05 <= loop.time() - begun_s < 0.1

    _run(SteadyLoop(), work())
    _run(_Loop(_Looks(0.001)), work())


def test_it_is_never_ahead_of_the_machine() -> None:
    async def work() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, _Loop)
        for passed_s in (0.0, 0.001, 0.003, _HOUR_S, 0.002):
            before_s, _Machine.now_s = loop.time(), _Machine.now_s + passed_s
            assert before_s <= loop.time() <= _Machine.now_s
            assert loop.time() - before_s <= min(passed_s, 0.004) + 1e-9
            assert loop.count() == pytest.approx(loop.time())

    _run(_Loop(), work())
