"""The states of a classic group: the table, and every (state, input) pair with its answer and the state after it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from ottla.base.require import InvariantError
from ottla.coordinator.group.classic.heartbeat import ANSWERS
from ottla.coordinator.group.classic.state import TRANSITIONS, Group, GroupState
from ottla.coordinator.group.config import GroupConfig
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.leave_group import MemberIdentity
from tests.coordinator.group.rig import GROUP, SESSION_MS, Rig, protocols

EMPTY, PREPARING, COMPLETING = GroupState.EMPTY, GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE
STABLE = GroupState.STABLE
WAITS = None

_LEGAL = {
    (EMPTY, PREPARING),
    (PREPARING, COMPLETING),
    (PREPARING, EMPTY),
    (COMPLETING, STABLE),
    (COMPLETING, PREPARING),
    (STABLE, PREPARING),
}


class Scene(NamedTuple):
    """A group in some state; both members are dynamic, and `static` is a third one."""

    rig: Rig
    leader: str
    follower: str
    generation: int


def scene(state: GroupState) -> Scene:
    rig = Rig(GroupConfig(group_initial_rebalance_delay_ms=0))
    tokens = [rig.join_twice(), rig.join_twice(), rig.join(instance="i")]
    rig.advance(0)
    answers = [rig.joined(token) for token in tokens]
    leader, follower, static = (answer.member_id for answer in answers)
    if state is COMPLETING:
        return Scene(rig, leader, follower, 1)
    rig.complete(answers)
    if state is PREPARING:
        rig.join(leader)
    elif state is EMPTY:
        rig.leave(leader, follower, static)
    return Scene(rig, leader, follower, rig.group().generation)


def error_of(rig: Rig, token: int) -> ErrorCode | None:
    answer: Any = rig.answer(token)
    return WAITS if answer is None else ErrorCode(answer.error_code)


def timer(s: Scene, *key: str) -> ErrorCode | None:
    s.rig.run(s.rig.shard.timer(key, s.rig.now_ms))
    return WAITS


def delete_group(s: Scene) -> ErrorCode | None:
    token = s.rig.token()
    s.rig.run(s.rig.shard.delete_group(token, GROUP))
    return error_of(s.rig, token)


def leave(s: Scene, member: MemberIdentity) -> ErrorCode | None:
    answer = s.rig.leave(member)
    return ErrorCode(answer.members[0].error_code if answer.members else answer.error_code)


#: Every kind of input, as a function of the scene to the error answered (None: the request waits, or nobody asked).
INPUTS: dict[str, Callable[[Scene], ErrorCode | None]] = {
    "join new dynamic": lambda s: error_of(s.rig, s.rig.join()),
    "join new, one step": lambda s: error_of(s.rig, s.rig.join(two_steps=False)),
    "join new static": lambda s: error_of(s.rig, s.rig.join(instance="j")),
    "join restarted static": lambda s: error_of(s.rig, s.rig.join(instance="i")),
    "rejoin leader": lambda s: error_of(s.rig, s.rig.join(s.leader)),
    "rejoin follower": lambda s: error_of(s.rig, s.rig.join(s.follower)),
    "rejoin follower changed": lambda s: error_of(
        s.rig, s.rig.join(s.follower, offered=protocols("range", topics=("x",)))
    ),
    "sync leader": lambda s: error_of(s.rig, s.rig.sync(s.leader, s.generation, {})),
    "sync follower": lambda s: error_of(s.rig, s.rig.sync(s.follower, s.generation)),
    "heartbeat": lambda s: s.rig.heartbeat(s.follower, s.generation),
    "leave": lambda s: leave(s, MemberIdentity(s.follower)),
    "commit": lambda s: s.rig.commit(1, member_id=s.follower, generation=s.generation),
    "commit without group": lambda s: s.rig.commit(1),
    "commit in transaction": lambda s: s.rig.commit_in_transaction(1, member_id=s.follower, generation=s.generation),
    "delete group": delete_group,
    "heartbeat timer": lambda s: timer(s, "heartbeat", GROUP, s.follower),
    "join timer": lambda s: timer(s, "join", GROUP),
    "sync timer": lambda s: timer(s, "sync", GROUP),
    "retention timer": lambda s: timer(s, "retention"),
}

OK, UNKNOWN, AGAIN = ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.REBALANCE_IN_PROGRESS
MOVED, ID, FULL = ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.NON_EMPTY_GROUP

#: state -> input -> (error answered, state after). What is not listed here for a state does not exist.
TABLE: dict[GroupState, dict[str, tuple[ErrorCode | None, GroupState | None]]] = {
    EMPTY: {
        "join new dynamic": (ID, EMPTY),
        "join new, one step": (WAITS, PREPARING),
        "join new static": (WAITS, PREPARING),
        "join restarted static": (WAITS, PREPARING),
        "rejoin leader": (UNKNOWN, EMPTY),
        "rejoin follower": (UNKNOWN, EMPTY),
        "rejoin follower changed": (UNKNOWN, EMPTY),
        "sync leader": (UNKNOWN, EMPTY),
        "sync follower": (UNKNOWN, EMPTY),
        "heartbeat": (UNKNOWN, EMPTY),
        "leave": (UNKNOWN, EMPTY),
        "commit": (UNKNOWN, EMPTY),
        "commit without group": (OK, EMPTY),
        "commit in transaction": (UNKNOWN, EMPTY),
        "delete group": (OK, None),
        "heartbeat timer": (WAITS, EMPTY),
        "join timer": (WAITS, EMPTY),
        "sync timer": (WAITS, EMPTY),
        "retention timer": (WAITS, None),
    },
    PREPARING: {
        "join new dynamic": (ID, PREPARING),
        "join new, one step": (WAITS, PREPARING),
        "join new static": (WAITS, PREPARING),
        "join restarted static": (WAITS, PREPARING),
        "rejoin leader": (WAITS, PREPARING),
        "rejoin follower": (WAITS, PREPARING),
        "rejoin follower changed": (WAITS, PREPARING),
        "sync leader": (AGAIN, PREPARING),
        "sync follower": (AGAIN, PREPARING),
        "heartbeat": (AGAIN, PREPARING),
        "leave": (OK, PREPARING),
        "commit": (OK, PREPARING),
        "commit without group": (UNKNOWN, PREPARING),
        "commit in transaction": (OK, PREPARING),
        "delete group": (FULL, PREPARING),
        "heartbeat timer": (WAITS, PREPARING),
        "join timer": (WAITS, COMPLETING),
        "sync timer": (WAITS, PREPARING),
        "retention timer": (WAITS, PREPARING),
    },
    COMPLETING: {
        "join new dynamic": (ID, COMPLETING),
        "join new, one step": (WAITS, PREPARING),
        "join new static": (WAITS, PREPARING),
        "join restarted static": (WAITS, PREPARING),
        "rejoin leader": (OK, COMPLETING),
        "rejoin follower": (OK, COMPLETING),
        "rejoin follower changed": (WAITS, PREPARING),
        "sync leader": (OK, STABLE),
        "sync follower": (WAITS, COMPLETING),
        "heartbeat": (OK, COMPLETING),
        "leave": (OK, PREPARING),
        "commit": (AGAIN, COMPLETING),
        "commit without group": (UNKNOWN, COMPLETING),
        "commit in transaction": (OK, COMPLETING),
        "delete group": (FULL, COMPLETING),
        "heartbeat timer": (WAITS, PREPARING),
        "join timer": (WAITS, COMPLETING),
        "sync timer": (WAITS, EMPTY),
        "retention timer": (WAITS, COMPLETING),
    },
    STABLE: {
        "join new dynamic": (ID, STABLE),
        "join new, one step": (WAITS, PREPARING),
        "join new static": (WAITS, PREPARING),
        "join restarted static": (OK, STABLE),
        "rejoin leader": (WAITS, PREPARING),
        "rejoin follower": (OK, STABLE),
        "rejoin follower changed": (WAITS, PREPARING),
        "sync leader": (OK, STABLE),
        "sync follower": (OK, STABLE),
        "heartbeat": (OK, STABLE),
        "leave": (OK, PREPARING),
        "commit": (OK, STABLE),
        "commit without group": (UNKNOWN, STABLE),
        "commit in transaction": (OK, STABLE),
        "delete group": (FULL, STABLE),
        "heartbeat timer": (WAITS, PREPARING),
        "join timer": (WAITS, STABLE),
        "sync timer": (WAITS, STABLE),
        "retention timer": (WAITS, STABLE),
    },
}


@pytest.mark.parametrize("name", INPUTS)
@pytest.mark.parametrize("state", GroupState)
def test_every_state_and_input(state: GroupState, name: str) -> None:
    s = scene(state)
    assert s.rig.state() is state
    answered = INPUTS[name](s)
    after = s.rig.shard.group(GROUP)
    assert (answered, after and after.state) == TABLE[state][name]


@pytest.mark.parametrize("before", GroupState)
@pytest.mark.parametrize("after", GroupState)
def test_every_pair_of_states(before: GroupState, after: GroupState) -> None:
    group = Group(GROUP, state=before)
    if (before, after) in _LEGAL:
        assert group.with_state(after, 5).state_timestamp_ms == 5
    else:
        with pytest.raises(InvariantError):
            group.with_state(after, 5)


def test_the_tables_cover_every_state() -> None:
    assert set(TRANSITIONS) == set(ANSWERS) == set(TABLE) == set(GroupState)
    assert all(set(row) == set(INPUTS) for row in TABLE.values())


def test_a_silent_scene_ends_empty() -> None:
    for state in (PREPARING, COMPLETING, STABLE):
        s = scene(state)
        s.rig.advance(10 * SESSION_MS)
        assert s.rig.state() is EMPTY


def test_two_new_groups_share_nothing() -> None:
    first, second = Group("a").members.copy(), Group("b").members.copy()
    assert first is not second
    assert first.subscriptions is not second.subscriptions
    assert first._encoded is not second._encoded


def test_why_a_group_has_rebalanced_is_no_part_of_what_it_is() -> None:
    group, other = Group("a", rebalance_reason="left"), Group("a")
    assert group == other
    assert not group != other  # noqa: SIM202 - the other operator
    assert group != Group("b", rebalance_reason="left")
    assert group != group[:]
