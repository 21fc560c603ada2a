"""What admin and the Spark link ask with: several questions at once, and the one answer to one question."""

import asyncio

import pytest

from ottla.client.errors import IncompleteAnswerError, KafkaError
from ottla.client.net.requests import only, together
from ottla.wire.errors import ErrorCode
from tests.client.conftest import Watchdog


async def test_results_come_in_the_order_of_the_calls(watchdog: Watchdog) -> None:
    async def later(value: int, turns: int) -> int:
        for _ in range(turns):
            await asyncio.sleep(0)
        return value

    async with watchdog():
        assert await together(later(value, 3 - value) for value in range(3)) == [0, 1, 2]
        assert await together(later(value, 0) for value in range(0)) == []


async def test_the_first_call_that_fails_ends_the_others_and_its_error_is_raised_as_it_is(watchdog: Watchdog) -> None:
    cause, ended = ValueError("why"), asyncio.Event()

    async def waits() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async def fails() -> None:
        await asyncio.sleep(0)
        raise KafkaError.of(ErrorCode.GROUP_AUTHORIZATION_FAILED) from cause

    async with watchdog():
        with pytest.raises(KafkaError) as caught:
            await together([waits(), fails()])
        assert caught.value.__cause__ is cause
        assert ended.is_set()


async def test_who_gives_up_ends_all_calls(watchdog: Watchdog) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def waits() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with watchdog():
        task = asyncio.ensure_future(together([waits()]))
        await begun.wait()
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled()
        assert ended.is_set()


def test_no_answer_is_an_error_that_may_pass() -> None:
    assert only((7,), "seven") == 7
    with pytest.raises(IncompleteAnswerError, match="the broker's answer says nothing about seven") as caught:
        only((), "seven")
    assert caught.value.retriable


async def test_a_failure_leaves_no_cancellation_on_the_callers_task() -> None:
    """A caller's time-out would be taken for a cancellation from outside."""

    async def fails() -> None:
        raise KafkaError.of(ErrorCode.GROUP_ID_NOT_FOUND)

    task = asyncio.current_task()
    assert task is not None
    for _ in range(3):
        with pytest.raises(KafkaError):
            await together([fails(), asyncio.Event().wait()])
    assert task.cancelling() == 0
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await asyncio.Event().wait()
