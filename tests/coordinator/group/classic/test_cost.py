"""What an input costs in a group of many members, counted and not timed.

A rebalance of n members ends with n answers, so its end may cost n steps. What one member asks may cost a copy of the
table of members, which is a fast one, but no step for each of them.
"""

from collections.abc import Callable
from typing import NamedTuple

import pytest

from ottla.coordinator.group.classic.members import Members
from ottla.coordinator.group.config import GroupConfig
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.leave_group import MemberIdentity
from tests.coordinator.cost import steps
from tests.coordinator.group.rig import REBALANCE_MS, SESSION_MS, Rig, protocols

_FEW, _MANY = 40, 80


class Cost(NamedTuple):
    """Lines of the coordinator that were run, and entries of the tables of members that were made."""

    steps: int
    copied: int


def _cost(act: Callable[[], object]) -> Cost:
    count, tables = steps(act, Members)
    return Cost(count, sum(map(len, tables)))


def _joining(count: int, *, instances: bool = False) -> tuple[Rig, list[str], list[int]]:
    """A group of `count` members that all wait for the answer to their join; the first rebalance has ended."""
    rig = Rig(GroupConfig(group_initial_rebalance_delay_ms=3_000))
    tokens = [rig.join(instance=f"i{number}" if instances else None, two_steps=False) for number in range(count)]
    rig.advance(3_000)
    while any(rig.answer(token) is None for token in tokens):
        rig.advance(3_000)
    return rig, [rig.joined(token).member_id for token in tokens], tokens


def _stable(count: int, *, instances: bool = False) -> tuple[Rig, list[str]]:
    rig, members, _ = _joining(count, instances=instances)
    for number, member in enumerate(members):
        rig.sync(member, 1, instance=f"i{number}" if instances else None)
    rig.sync(members[0], 1, dict.fromkeys(members, b"x"), instance="i0" if instances else None)
    return rig, members


def _last_join(count: int) -> Cost:
    rig, members = _stable(count)
    rig.join(members[0])
    for member in members[1:-1]:
        rig.join(member)
    cost = _cost(lambda: rig.join(members[-1]))
    assert rig.group().generation == 2
    return cost


def _leaders_sync(count: int) -> Cost:
    rig, members, _ = _joining(count)
    for member in members[1:]:
        rig.sync(member, 1)
    assignments = dict.fromkeys(members, b"x")
    cost = _cost(lambda: rig.sync(members[0], 1, assignments))
    assert rig.group().members[members[-1]].assignment == b"x"
    return cost


def _failed_sync(count: int) -> Cost:
    rig, members, _ = _joining(count)
    for member in members[1:]:
        rig.sync(member, 1)
    rig.fail_with = ErrorCode.NOT_LEADER_OR_FOLLOWER
    return _cost(lambda: rig.sync(members[0], 1))


def _nobody_rejoins(count: int) -> Cost:
    rig, members = _stable(count)
    rig.join(members[0])
    for key in [key for key in rig.timers if key[0] == "heartbeat"]:
        del rig.timers[key]
    cost = _cost(lambda: rig.advance(REBALANCE_MS))
    assert len(rig.group().members) == 1
    return cost


def _nobody_syncs(count: int) -> Cost:
    rig, _, _ = _joining(count)
    for key in [key for key in rig.timers if key[0] == "heartbeat"]:
        del rig.timers[key]
    cost = _cost(lambda: rig.advance(REBALANCE_MS))
    assert not rig.group().members
    return cost


def _all_leave_at_once(count: int) -> Cost:
    rig, members = _stable(count)
    cost = _cost(lambda: rig.leave(*members))
    assert not rig.group().members
    return cost


def _all_are_removed_by_instance(count: int) -> Cost:
    rig, _ = _stable(count, instances=True)
    cost = _cost(lambda: rig.leave(*(MemberIdentity("", f"i{number}") for number in range(count))))
    assert not rig.group().members
    return cost


def _a_shard_is_given_up(count: int) -> Cost:
    rig, members = _stable(count)
    for member in members[:-1]:
        rig.join(member)
    return _cost(lambda: rig.run(rig.shard.unloaded()))


@pytest.mark.parametrize(
    "act",
    [
        _last_join,
        _leaders_sync,
        _failed_sync,
        _nobody_rejoins,
        _nobody_syncs,
        _all_leave_at_once,
        _all_are_removed_by_instance,
        _a_shard_is_given_up,
    ],
)
def test_what_concerns_every_member_costs_so_much_a_member(act: Callable[[int], Cost]) -> None:
    few, many = act(_FEW), act(_MANY)
    assert many.steps <= 2.1 * few.steps
    assert many.copied <= 4 * _MANY


def _one_more_joins(count: int) -> Cost:
    rig, members = _stable(count)
    rig.join(members[0])
    return _cost(lambda: rig.join(two_steps=False))


def _one_rejoins(count: int) -> Cost:
    rig, members = _stable(count, instances=True)
    rig.join(members[0], instance="i0")
    return _cost(lambda: rig.join(members[1], instance="i1"))


def _one_joins_as_another_name(count: int) -> Cost:
    rig, members = _stable(count)
    rig.join(members[0])
    return _cost(lambda: rig.join(offered=protocols("unknown"), two_steps=False))


def _one_static_member_is_there(count: int) -> Cost:
    rig, members = _stable(count, instances=True)
    return _cost(lambda: rig.heartbeat(members[-1], 1, f"i{count - 1}"))


def _one_session_ends(count: int) -> Cost:
    rig, members = _stable(count)
    rig.join(members[0])
    for key in [key for key in rig.timers if key[0] == "heartbeat" and key[2] != members[-1]]:
        del rig.timers[key]
    cost = _cost(lambda: rig.advance(SESSION_MS))
    assert len(rig.group().members) == count - 1
    return cost


def _one_syncs(count: int) -> Cost:
    rig, members, _ = _joining(count)
    return _cost(lambda: rig.sync(members[-1], 1))


def _one_leaves(count: int) -> Cost:
    rig, members = _stable(count)
    rig.join(members[0])
    return _cost(lambda: rig.leave(members[-1]))


@pytest.mark.parametrize(
    "act",
    [
        _one_more_joins,
        _one_rejoins,
        _one_joins_as_another_name,
        _one_static_member_is_there,
        _one_session_ends,
        _one_syncs,
        _one_leaves,
    ],
)
def test_what_one_member_asks_costs_no_step_for_the_others(act: Callable[[int], Cost]) -> None:
    few, many = act(_FEW), act(_MANY)
    assert many.steps <= few.steps + 3
    assert many.copied <= 4 * _MANY
