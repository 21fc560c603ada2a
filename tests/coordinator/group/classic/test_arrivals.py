"""A group that was empty waits a little for clients that have asked for its coordinator (`arrivals`)."""

from __future__ import annotations

from ottla.base.limits import ARRIVAL_MS, ARRIVAL_PAUSE_MS, ARRIVAL_TOTAL_MS, MAX_AWAITED_GROUPS
from ottla.coordinator.group.classic.arrivals import Arrivals
from ottla.coordinator.group.classic.state import GroupState
from ottla.coordinator.group.config import GroupConfig
from tests.coordinator.group.rig import GROUP, START_MS, Rig


def _asked(rig: Rig, times: int, group_id: str = GROUP) -> None:
    for _ in range(times):
        rig.run(rig.shard.coordinator_asked(group_id, rig.now_ms))


def _generations(rig: Rig, *tokens: int) -> list[int]:
    return [rig.joined(token).generation_id for token in tokens]


def test_one_who_asked_for_itself_does_not_wait() -> None:
    rig = Rig()
    _asked(rig, 1)
    token = rig.join_twice()
    rig.advance(0)
    assert _generations(rig, token) == [1]


def test_all_who_asked_are_in_the_first_generation() -> None:
    rig = Rig()
    _asked(rig, 3)
    first, second = rig.join_twice(), rig.join_twice()
    rig.advance(50)
    assert rig.answer(first) is None
    third = rig.join_twice()
    assert _generations(rig, first, second, third) == [1, 1, 1]


def test_who_asks_while_the_group_waits_is_waited_for() -> None:
    rig = Rig()
    _asked(rig, 2)
    first = rig.join_twice()
    _asked(rig, 1)
    second = rig.join_twice()
    assert rig.answer(second) is None
    third = rig.join_twice()
    assert _generations(rig, first, second, third) == [1, 1, 1]


def test_one_who_only_looked_is_waited_for_once() -> None:
    rig = Rig()
    _asked(rig, 2)
    token = rig.join_twice()
    rig.advance(ARRIVAL_PAUSE_MS - 1)
    assert rig.answer(token) is None
    rig.advance(1)
    assert _generations(rig, token) == [1]


def test_the_wait_ends_even_if_members_go_on_to_come() -> None:
    rig = Rig()
    _asked(rig, 100)
    first = rig.join_twice()
    for _ in range(ARRIVAL_TOTAL_MS // 50 - 1):
        rig.advance(50)
        rig.join_twice()
        assert rig.answer(first) is None
    rig.advance(50)
    assert _generations(rig, first) == [1]


def test_who_does_not_come_within_a_second_is_forgotten() -> None:
    rig = Rig()
    _asked(rig, 5)
    rig.advance(ARRIVAL_MS)
    token = rig.join_twice()
    rig.advance(0)
    assert _generations(rig, token) == [1]


def test_a_stable_group_waits_for_nobody() -> None:
    rig = Rig()
    rig.stable(1)
    _asked(rig, 5)
    assert rig.state() is GroupState.STABLE
    rig.leave("c-1")
    token = rig.join_twice()
    rig.advance(0)
    assert rig.joined(token).error_code == 0


def test_the_delay_of_the_configuration_holds_as_it_is() -> None:
    rig = Rig(GroupConfig(group_initial_rebalance_delay_ms=3_000))
    _asked(rig, 2)
    first, second = rig.join_twice(), rig.join_twice()
    rig.advance(5_999)
    assert rig.answer(first) is None
    rig.advance(1)
    assert _generations(rig, first, second) == [1, 1]


def test_what_is_remembered_is_bounded_in_number_and_time() -> None:
    arrivals = Arrivals()
    for number in range(MAX_AWAITED_GROUPS + 10):
        arrivals.asked(f"g{number}", START_MS)
    assert len(arrivals) == MAX_AWAITED_GROUPS
    assert arrivals.on_their_way("g0", START_MS) == 0
    for number in range(10):
        arrivals.asked("later", START_MS + ARRIVAL_MS + number)
    assert len(arrivals) == MAX_AWAITED_GROUPS - 9
    assert arrivals.on_their_way("later", START_MS + ARRIVAL_MS + 10) == 10
