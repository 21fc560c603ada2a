"""Work beside the event loop: one piece at a time, in order of need, and nobody waits for what hangs."""

import asyncio
import threading

import pytest

from ottla.client.core import intents
from ottla.client.errors import AssignorError
from ottla.client.shell.beside import Beside
from tests.client.conftest import Watchdog
from tests.client.shell.small import shell

_PATIENCE_S = 60.0


def test_one_piece_at_a_time_and_none_that_nobody_waits_for() -> None:
    beside, begun, go_on = Beside(), threading.Event(), threading.Event()
    done: list[str] = []

    def first() -> str:
        begun.set()
        go_on.wait(_PATIENCE_S)
        done.append("first")
        return "first"

    one = beside.submit(first)
    assert begun.wait(_PATIENCE_S)
    two = beside.submit(done.append, "two")
    three = beside.submit(done.append, "three")
    assert two.cancel()
    go_on.set()
    assert one.result(_PATIENCE_S) == "first"
    assert three.result(_PATIENCE_S) is None
    assert done == ["first", "three"]


def test_whatever_the_work_raises_goes_to_whoever_waits() -> None:
    def leave() -> None:
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        Beside().submit(leave).result(_PATIENCE_S)


async def test_the_loop_goes_on_while_work_is_done(watchdog: Watchdog) -> None:
    async with watchdog(), shell() as it:
        go_on = threading.Event()
        it.do(intents.Work("slow", lambda: go_on.wait(_PATIENCE_S)))
        it.do(intents.Say(10, "meanwhile"))
        assert "answered" not in it.core.names()
        go_on.set()
        assert await it.core.saw("answered") == ("answered", "slow", True)


async def test_work_that_fails_gives_its_ticket_back(watchdog: Watchdog) -> None:
    def fail() -> None:
        raise AssignorError("no")

    async with watchdog(), shell() as it:
        it.do(intents.Work("bad", fail))
        name, ticket, error = await it.core.saw("failed")
        assert (name, ticket, str(error)) == ("failed", "bad", "no")


async def test_a_stopped_driver_hears_of_no_work(watchdog: Watchdog) -> None:
    async with watchdog(), shell() as it:
        begun, go_on, ended = threading.Event(), threading.Event(), threading.Event()

        def work() -> None:
            begun.set()
            go_on.wait(_PATIENCE_S)
            ended.set()

        it.do(intents.Work("late", work), intents.Work("later", work))
        await asyncio.to_thread(begun.wait, _PATIENCE_S)
        it.driver.stop()
        it.do(intents.Work("never", work))
        go_on.set()
        assert await asyncio.to_thread(ended.wait, _PATIENCE_S)
        assert it.core.names() == ["do", "do"]
