"""A fault that nobody expected reaches everybody who waits, with its cause; so does the end of the client."""

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from ottla.client.errors import DisconnectedError, IllegalStateError, InternalError
from ottla.client.net.supervisor import Supervisor
from tests.client.conftest import Watchdog

_FAULT = ZeroDivisionError("nobody expects this")


@pytest.fixture
async def supervisor() -> AsyncIterator[Supervisor]:
    made = Supervisor("the client")
    yield made
    await made.close()


async def fails() -> None:
    raise _FAULT


async def waits() -> None:
    await asyncio.Event().wait()


async def in_scope(supervisor: Supervisor, begun: asyncio.Event) -> None:
    async with supervisor.scope():
        begun.set()
        await waits()


async def a_future(supervisor: Supervisor) -> None:
    await supervisor.future()


async def a_scope(supervisor: Supervisor) -> None:
    async with supervisor.scope():
        await waits()


#: How a call may wait.
_WAITS: list[Callable[[Supervisor], Awaitable[None]]] = [a_future, a_scope]
#: How a fault may come.
_FAULTS: dict[str, Callable[[Supervisor], object]] = {
    "a task": lambda supervisor: supervisor.spawn(fails(), "fails"),
    "a callback": lambda supervisor: asyncio.get_running_loop().call_soon(supervisor.guarded(lambda: 1 // 0)),
    "somebody who says so": lambda supervisor: supervisor.crash(_FAULT),
}


@pytest.mark.parametrize("waiting", _WAITS)
@pytest.mark.parametrize("fault", _FAULTS.values(), ids=_FAULTS)
async def test_a_fault_fails_every_wait_with_its_cause_and_is_logged(
    watchdog: Watchdog,
    caplog: pytest.LogCaptureFixture,
    supervisor: Supervisor,
    waiting: Callable[[Supervisor], Awaitable[None]],
    fault: Callable[[Supervisor], object],
) -> None:
    async with watchdog():
        calls = [asyncio.ensure_future(waiting(supervisor)) for _ in range(2)]
        await asyncio.sleep(0)  # they wait
        fault(supervisor)
        await asyncio.wait(calls)
        calls.append(asyncio.ensure_future(waiting(supervisor)))  # who comes later hears it too
        await asyncio.wait(calls)
        for call in calls:
            error = call.exception()
            assert isinstance(error, InternalError)
            assert isinstance(error.__cause__, ZeroDivisionError)
        with pytest.raises(InternalError, match="the client has stopped because of a fault in its own code"):
            supervisor.check()
    said = [record for record in caplog.records if record.levelno == logging.CRITICAL]
    assert len(said) == 1
    assert said[0].exc_info is not None and isinstance(said[0].exc_info[1], ZeroDivisionError)


async def test_a_text_that_cannot_be_encoded_is_not_shown(
    supervisor: Supervisor, caplog: pytest.LogCaptureFixture
) -> None:
    supervisor.crash(UnicodeEncodeError("utf-8", "hunter2\udce9", 7, 8, "surrogates not allowed"))
    assert supervisor.failure is not None
    assert "UnicodeEncodeError" in str(supervisor.failure)
    assert "hunter2" not in f"{supervisor.failure}{supervisor.failure!r}{caplog.text}"


async def test_a_fault_ends_the_other_tasks(watchdog: Watchdog, supervisor: Supervisor) -> None:
    async with watchdog():
        other = supervisor.spawn(waits(), "waits")
        supervisor.spawn(fails(), "fails")
        await asyncio.wait({other})
        assert other.cancelled()


async def test_only_the_first_fault_counts_and_listeners_hear_it_once(supervisor: Supervisor) -> None:
    heard: list[InternalError] = []
    supervisor.on_crash(heard.append)
    forgotten = supervisor.on_crash(lambda failure: heard.append(failure))
    forgotten()
    forgotten()
    supervisor.crash(_FAULT)
    supervisor.crash(ValueError("the second"))
    assert [failure.__cause__ for failure in heard] == [_FAULT]
    assert supervisor.failure is heard[0]


async def test_a_listener_may_end_something_that_crashes_in_turn(supervisor: Supervisor) -> None:
    supervisor.on_crash(lambda failure: supervisor.crash(ValueError("in the crash")))
    supervisor.crash(_FAULT)
    assert supervisor.failure is not None and supervisor.failure.__cause__ is _FAULT


@pytest.mark.parametrize("crashed", [False, True])
async def test_nothing_begins_after_the_end(supervisor: Supervisor, crashed: bool) -> None:
    if crashed:
        supervisor.crash(_FAULT)
    else:
        await supervisor.close()
    failure = supervisor.failure
    assert isinstance(failure, InternalError if crashed else DisconnectedError)
    work = waits()
    with pytest.raises(type(failure)):
        supervisor.spawn(work, "too late")
    assert inspect.getcoroutinestate(work) == inspect.CORO_CLOSED  # so that Python does not call it forgotten
    with pytest.raises(type(failure)):
        await supervisor.future()
    with pytest.raises(type(failure)):
        async with supervisor.scope():
            raise AssertionError("it is entered")


@pytest.mark.parametrize("waiting", _WAITS)
async def test_close_ends_what_waits_with_its_reason(
    watchdog: Watchdog, supervisor: Supervisor, waiting: Callable[[Supervisor], Awaitable[None]]
) -> None:
    reason = IllegalStateError("the client is closed")
    async with watchdog():
        task = supervisor.spawn(waits(), "waits")
        call = asyncio.ensure_future(waiting(supervisor))
        await asyncio.sleep(0)
        await supervisor.close(reason)
        assert task.cancelled()
        await asyncio.wait({call})
        assert call.exception() is reason
        await supervisor.close()  # again
        assert supervisor.failure is reason


async def test_close_may_be_called_in_one_of_its_tasks(watchdog: Watchdog, supervisor: Supervisor) -> None:
    async def closes() -> None:
        await supervisor.close()
        ended.set()

    ended = asyncio.Event()
    async with watchdog():
        supervisor.spawn(closes(), "closes")
        await ended.wait()
    assert isinstance(supervisor.failure, DisconnectedError)


async def test_a_close_after_a_crash_keeps_the_crash(supervisor: Supervisor) -> None:
    supervisor.crash(_FAULT)
    await supervisor.close(IllegalStateError("the client is closed"))
    assert isinstance(supervisor.failure, InternalError)


async def test_a_future_that_somebody_sets_is_not_touched(supervisor: Supervisor) -> None:
    done, cancelled = supervisor.future(), supervisor.future()
    done.set_result(7)
    cancelled.cancel()
    supervisor.crash(_FAULT)
    assert await done == 7
    assert cancelled.cancelled()


async def test_a_scope_ends_as_its_block_does(watchdog: Watchdog, supervisor: Supervisor) -> None:
    async with watchdog():
        async with supervisor.scope():
            await asyncio.sleep(0)
        with pytest.raises(TimeoutError):
            async with supervisor.scope(), asyncio.timeout(0):
                await waits()
        begun = asyncio.Event()
        call = asyncio.ensure_future(in_scope(supervisor, begun))
        await begun.wait()
        call.cancel()
        await asyncio.wait({call})
        assert call.cancelled()
    supervisor.crash(_FAULT)  # scopes that are over hear nothing of it


async def test_a_caller_who_gives_up_as_the_client_ends_is_cancelled(
    watchdog: Watchdog, supervisor: Supervisor
) -> None:
    begun = asyncio.Event()
    async with watchdog():
        call = asyncio.ensure_future(in_scope(supervisor, begun))
        await begun.wait()
        supervisor.crash(_FAULT)
        call.cancel()
        await asyncio.wait({call})
        assert call.cancelled() or isinstance(call.exception(), InternalError)


async def test_what_a_task_raises_after_the_end_is_no_news(
    watchdog: Watchdog, caplog: pytest.LogCaptureFixture, supervisor: Supervisor
) -> None:
    async def fails_at_the_end() -> None:
        try:
            await waits()
        finally:
            raise ValueError("in the end")

    caplog.set_level(logging.DEBUG, "ottla.client")
    async with watchdog():
        task = supervisor.spawn(fails_at_the_end(), "fails at the end")
        await asyncio.sleep(0)
        supervisor.crash(_FAULT)
        await asyncio.wait({task})
        await asyncio.sleep(0)
    assert supervisor.failure is not None and supervisor.failure.__cause__ is _FAULT
    assert [record.levelno for record in caplog.records if "in the end" in record.getMessage()] == [logging.DEBUG]
