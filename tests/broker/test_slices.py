"""Long work in slices: what one turn of the loop may take, and what a fault or a stop does to it."""

import asyncio
import logging
from collections.abc import Iterator

import pytest

from ottla.base.errors import OttlaError, StorageError
from ottla.broker.runtime.slices import TURN_MS, Slices
from tests.broker.ticking import TickingClock, some_turns_until


def _steps(count: int, done: list[str], name: str = "") -> Iterator[None]:
    for _ in range(count):
        done.append(name)
        yield


async def _turns(task: "asyncio.Task[None]", done: list[str]) -> list[list[str]]:
    """What is done in each turn of the loop until the task has ended."""
    turns = []
    while not task.done():
        before = len(done)
        await asyncio.sleep(0)
        turns.append(done[before:])
    return [turn for turn in turns if turn]


async def test_a_slice_ends_when_its_time_is_over() -> None:
    done: list[str] = []
    slices = Slices(TickingClock())
    turns = await _turns(asyncio.create_task(slices.run(_steps(3 * TURN_MS + 1, done))), done)
    assert list(map(len, turns)) == [TURN_MS, TURN_MS, TURN_MS, 1]


async def test_two_pieces_of_work_share_the_turns() -> None:
    done: list[str] = []
    slices = Slices(TickingClock())
    first = asyncio.create_task(slices.run(_steps(4 * TURN_MS, done, "a")))
    second = asyncio.create_task(slices.run(_steps(2 * TURN_MS, done, "b")))
    turns = await _turns(asyncio.gather(first, second), done)  # type: ignore[arg-type]
    assert max(map(len, turns)) == TURN_MS
    assert [turn[0] for turn in turns] == ["a", "b", "a", "b", "a", "a"]


async def test_what_an_iterator_makes_is_collected_some_in_a_turn() -> None:
    done: list[str] = []
    slices = Slices(TickingClock())
    made = (done.append(str(number)) or number for number in range(2 * TURN_MS + 1))  # type: ignore[func-returns-value]
    collecting = asyncio.create_task(slices.collect(made))
    turns = await _turns(collecting, done)  # type: ignore[arg-type]
    assert list(map(len, turns)) == [TURN_MS, TURN_MS, 1]
    assert await collecting == list(range(2 * TURN_MS + 1))


async def test_a_fault_of_a_step_comes_through_and_the_next_work_goes_on() -> None:
    def broken() -> Iterator[None]:
        yield
        raise ValueError("broken")

    slices = Slices(TickingClock())
    with pytest.raises(ValueError, match="broken"):
        await slices.run(broken())
    done: list[str] = []
    await slices.run(_steps(2, done))
    assert len(done) == 2


async def test_closing_ends_what_runs_and_waits_for_it() -> None:
    ended: list[str] = []

    async def work() -> None:
        try:
            await slices.run(_steps(10**9, []))
        finally:
            await asyncio.sleep(0)
            ended.append("ended")

    slices = Slices(TickingClock())
    task = slices.start(work(), "counting")
    await asyncio.sleep(0)
    await slices.close()
    assert ended == ["ended"]
    assert task.cancelled()


@pytest.mark.parametrize(
    ("fault", "level"), [(ValueError("broken"), logging.CRITICAL), (StorageError("full"), logging.ERROR)]
)
async def test_work_that_fails_unseen_is_logged(caplog: pytest.LogCaptureFixture, fault: Exception, level: int) -> None:
    """A fault that may be is a line without a traceback."""

    async def work() -> None:
        raise fault

    slices = Slices(TickingClock())
    task = slices.start(work(), "the count")
    await asyncio.gather(task, return_exceptions=True)
    await asyncio.sleep(0)
    (line,) = caplog.records
    assert "the count has failed" in line.getMessage()
    assert line.levelno == level
    assert (line.exc_info is None) == isinstance(fault, OttlaError)


async def test_work_that_is_given_up_is_ended_though_its_task_is_kept() -> None:
    """A fetch session had counted the partitions of a request whose client had gone, until its task was freed."""
    done: list[str] = []

    def steps() -> Iterator[None]:
        try:
            yield from _steps(10 * TURN_MS, done)
        finally:
            done.append("ended")

    task = asyncio.create_task(Slices(TickingClock()).run(steps()))
    await some_turns_until(lambda: bool(done))
    task.cancel()
    with pytest.raises(asyncio.CancelledError) as given_up:
        await task
    assert done[-1] == "ended", given_up
