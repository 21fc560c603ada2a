"""How soon members are asked to come back: sooner while their group settles (`pace`)."""

from __future__ import annotations

import pytest

from ottla.base.limits import SETTLING_MS_PER_MEMBER
from ottla.coordinator.group.config import GroupConfig
from tests.coordinator.group.consumer.rig import FakeMember, Rig

_USUAL_MS, _PAUSE_MS, _SOON_MS = 5_000, 1_000, 250


def _rig(pause_ms: int = _PAUSE_MS) -> Rig:
    return Rig(config=GroupConfig(consumer_settling_heartbeat_ms=_SOON_MS, consumer_assignment_interval_ms=pause_ms))


def _next_ms(member: FakeMember) -> int:
    return member.beat().heartbeat_interval_ms


def test_a_member_comes_back_when_the_next_target_may_be_computed() -> None:
    rig = _rig()
    assert rig.join("m1").heartbeat_interval_ms == _PAUSE_MS
    rig.advance(300)
    assert rig.join("m2").heartbeat_interval_ms == _PAUSE_MS - 300
    rig.advance(600)
    assert rig.join("m3").heartbeat_interval_ms == _SOON_MS


def test_a_member_that_waits_for_partitions_comes_back_soon() -> None:
    rig = _rig(pause_ms=0)
    first, second = rig.joined("m1"), rig.joined("m2")
    assert _next_ms(second) == _SOON_MS
    first.beat()
    first.beat()
    assert _next_ms(second) == _USUAL_MS
    assert sorted(first.partitions + second.partitions) == [0, 1, 2, 3]


def test_a_settled_group_has_its_usual_pace() -> None:
    rig = _rig()
    member = rig.joined("m1")
    assert _next_ms(member) == _PAUSE_MS
    rig.advance(_PAUSE_MS)
    assert _next_ms(member) == _USUAL_MS


def test_who_does_not_let_go_is_not_waited_for_in_haste() -> None:
    rig = _rig(pause_ms=0)
    rig.joined("m1")
    second = rig.joined("m2")
    rig.advance(2 * _USUAL_MS - 1)
    assert _next_ms(second) == _SOON_MS
    rig.advance(1)
    assert _next_ms(second) == _USUAL_MS


def test_members_that_start_at_once_settle_in_little_more_than_one_pause() -> None:
    """Every member comes back as it is told, and the first one got everything."""
    rig = _rig()
    due = {rig.joined(f"m{n}"): rig.now_ms + _PAUSE_MS for n in range(4)}
    until_ms = rig.now_ms + _PAUSE_MS + 2 * _SOON_MS
    while any(len(member.partitions) != 1 for member in due):
        rig.advance(min(due.values()) - rig.now_ms)
        assert rig.now_ms <= until_ms
        for member in [each for each, at_ms in due.items() if at_ms <= rig.now_ms]:
            had, wait_ms = member.partitions, _next_ms(member)
            if set(had) - set(member.partitions):  # it says at once that it has given up
                wait_ms = _next_ms(member)
            due[member] = rig.now_ms + wait_ms


def test_a_large_group_is_not_asked_more_often_than_the_loop_can_bear() -> None:
    members = 400
    rig = _rig()
    for number in range(members):
        rig.join(f"m{number:03}")
    rig.advance(_PAUSE_MS - 1)
    assert rig.join("late").heartbeat_interval_ms == members * SETTLING_MS_PER_MEMBER


@pytest.mark.parametrize("own_ms", [100, 700])
def test_nobody_is_asked_less_often_than_the_group_says(own_ms: int) -> None:
    rig = Rig(
        config=GroupConfig(consumer_settling_heartbeat_ms=_SOON_MS), own={"consumer.heartbeat.interval.ms": own_ms}
    )
    assert rig.join("m1").heartbeat_interval_ms == own_ms


def test_without_the_setting_the_pace_is_apache_kafkas() -> None:
    rig = Rig(config=GroupConfig())
    assert rig.join("m1").heartbeat_interval_ms == _USUAL_MS
    assert rig.join("m2").heartbeat_interval_ms == _USUAL_MS
