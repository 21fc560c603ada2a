"""Timers by key on a clock that the test holds."""

from collections.abc import Callable
from functools import partial

import pytest

from ottla.base.clock import ManualClock
from ottla.base.limits import TIMERS_AT_ONCE, TIMERS_TURN_MS
from ottla.broker.runtime.timers import Timers


class _Handle:
    def __init__(self) -> None:
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class _Scheduler:
    """Remembers what it was asked, and runs nothing by itself."""

    def __init__(self) -> None:
        self.delays_s: list[float] = []
        self.last: Callable[[], object] = lambda: None

    def call_later(self, delay: float, callback: Callable[[], object], /) -> _Handle:
        self.delays_s.append(delay)
        self.last = callback
        return _Handle()


def _timers() -> tuple[ManualClock, _Scheduler, Timers, list[str]]:
    clock, scheduler = ManualClock(), _Scheduler()
    return clock, scheduler, Timers(clock, scheduler), []


def test_fires_in_the_order_of_time_and_once() -> None:
    clock, _, timers, fired = _timers()
    timers.set("late", 20, lambda: fired.append("late"))
    timers.set("soon", 10, lambda: fired.append("soon"))
    clock.advance(15)
    timers.fire()
    assert fired == ["soon"]
    clock.advance(15)
    timers.fire()
    timers.fire()
    assert fired == ["soon", "late"]


def test_setting_a_key_again_replaces_its_timer() -> None:
    clock, _, timers, fired = _timers()
    timers.set("session", 10, lambda: fired.append("first"))
    timers.set("session", 30, lambda: fired.append("second"))
    clock.advance(20)
    timers.fire()
    assert fired == []
    clock.advance(20)
    timers.fire()
    assert fired == ["second"]


def test_cancelled_timers_never_fire() -> None:
    _, _, timers, fired = _timers()
    timers.set(("a", 1), 0, lambda: fired.append("a"))
    timers.set(("b", 1), 0, lambda: fired.append("b"))
    timers.set(("b", 2), 0, lambda: fired.append("b2"))
    timers.cancel(("a", 1))
    timers.cancel_all(lambda key: isinstance(key, tuple) and key[0] == "b")
    timers.fire()
    assert fired == []


def test_a_timer_may_set_itself_again() -> None:
    clock, _, timers, fired = _timers()

    def due() -> None:
        fired.append("due")
        timers.set("again", 10, due)

    timers.set("again", 10, due)
    for _ in range(3):
        clock.advance(10)
        timers.fire()
    assert fired == ["due"] * 3


def test_a_timer_that_fails_does_not_stop_the_others() -> None:
    _, _, timers, fired = _timers()

    def broken() -> None:
        raise RuntimeError("broken")

    timers.set("broken", 0, broken)
    timers.set("good", 0, lambda: fired.append("good"))
    timers.fire()
    assert fired == ["good"]


def test_sleeps_until_the_earliest() -> None:
    _, scheduler, timers, _ = _timers()
    timers.set("day", 86_400_000, lambda: None)
    timers.set("second", 1_000, lambda: None)
    assert scheduler.delays_s == [86_400.0, 1.0]


@pytest.mark.parametrize("step_ms", [86_400_000, -86_400_000])
def test_a_step_of_the_wall_clock_moves_no_timer(step_ms: int) -> None:
    clock, _, timers, fired = _timers()
    timers.set("before", 1_000, lambda: fired.append("before"))
    clock.step(step_ms)
    timers.set("after", 1_001, lambda: fired.append("after"))
    clock.advance(999)
    timers.fire()
    assert fired == []
    clock.advance(2)
    timers.fire()
    assert fired == ["before", "after"]


def test_replacing_again_and_again_does_not_grow_the_heap() -> None:
    clock, _, timers, fired = _timers()
    for number in range(10_000):
        timers.set("heartbeat", 1_000 + number, lambda: fired.append("expired"))
    assert len(timers._heap) < 200
    clock.advance(20_000)
    timers.fire()
    assert fired == ["expired"]


def test_after_a_stall_what_came_meanwhile_is_read_before_timers_fire() -> None:
    clock, scheduler, timers, fired = _timers()
    timers.set("silent", 1_000, lambda: fired.append("silent"))
    timers.set("heard", 1_000, lambda: fired.append("too early"))
    clock.advance(60_000)
    scheduler.last()
    assert fired == []
    timers.set("heard", 1_000, lambda: fired.append("heard"))
    clock.advance(50)
    scheduler.last()
    assert fired == ["silent"]
    clock.advance(950)
    scheduler.last()
    assert fired == ["silent", "heard"]


def test_a_turn_of_the_loop_fires_a_few_timers_in_order() -> None:
    """6,000 members whose sessions ended at one time stopped the loop for a quarter of a second."""
    clock, scheduler, timers, fired = _timers()
    for number in range(2 * TIMERS_AT_ONCE + 1):
        timers.set(number, number, partial(fired.append, str(number)))
    clock.advance(400)
    for turn in (1, 2):
        scheduler.last()
        assert fired == [str(number) for number in range(turn * TIMERS_AT_ONCE)]
        assert scheduler.delays_s[-1] == 0, "the rest is due at once, after the sockets were read"
    scheduler.last()
    assert len(fired) == 2 * TIMERS_AT_ONCE + 1


def test_who_moves_the_clock_by_hand_has_all_fired() -> None:
    clock, _, timers, fired = _timers()
    for number in range(2 * TIMERS_AT_ONCE + 1):
        timers.set(number, number, lambda: fired.append("due"))
    clock.advance(400)
    timers.fire()
    assert len(fired) == 2 * TIMERS_AT_ONCE + 1


def test_timers_that_take_long_have_turns_of_their_own() -> None:
    clock, scheduler, timers, fired = _timers()

    def slow() -> None:
        fired.append("slow")
        clock.advance(TIMERS_TURN_MS)

    for number in range(3):
        timers.set(number, 0, slow)
    scheduler.last()
    assert len(fired) == 1
    scheduler.last()
    assert len(fired) == 2
