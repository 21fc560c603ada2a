"""G15: members with a `group.instance.id` (KIP-345)."""

from __future__ import annotations

import pytest

from ottla.coordinator.group.classic.state import GroupState
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.leave_group import MemberIdentity
from ottla.wire.offsets_records import decode_group_metadata_value, encode_group_metadata_value
from tests.coordinator.group.rig import GROUP, SESSION_MS, Rig, protocols, recover


def static_group(rig: Rig, *instances: str) -> list[str]:
    """A stable group of static members, the leader first."""
    tokens = [rig.join(instance=instance) for instance in instances]
    rig.advance(0)
    answers = [rig.joined(token) for token in tokens]
    rig.complete(answers)
    return [answer.member_id for answer in answers]


def test_g15_a_static_member_joins_in_one_step_under_its_instance_id() -> None:
    assert static_group(Rig(), "i") == ["i-1"]


@pytest.mark.parametrize("skip_assignment", [True, False])
def test_g15_a_restart_takes_back_the_assignment_without_a_rebalance(skip_assignment: bool) -> None:
    rig = Rig()
    leader, follower = static_group(rig, "a", "b")
    answer = rig.joined(rig.join(instance="b", skip_assignment=skip_assignment))
    assert answer.member_id != follower
    assert (answer.generation_id, answer.leader, answer.skip_assignment) == (1, leader, False)
    assert rig.state() is GroupState.STABLE
    assert rig.synced(rig.sync(answer.member_id, 1, instance="b")) == follower.encode()
    assert rig.heartbeat(leader, 1, instance="a") is ErrorCode.NONE
    value = rig.records[-1].value
    assert value is not None
    assert [m.member_id for m in decode_group_metadata_value(value).members] == [leader, answer.member_id]


def test_g15_a_restart_with_another_subscription_is_known_live_as_after_a_replay() -> None:
    """Else the offsets of the new topic could be deleted, or expire, as if nobody read it."""
    rig = Rig()
    token = rig.join(instance="i", offered=protocols("range", topics=("words",)))
    rig.advance(0)
    rig.complete([rig.joined(token)])
    rig.joined(rig.join(instance="i", offered=protocols("range", topics=("more",))))
    assert rig.state() is GroupState.STABLE
    assert rig.group().subscribed_topics == frozenset({"more"})
    assert recover(rig.config, rig.log, rig.now_ms).group(GROUP) == rig.group()


def test_g15_a_leader_that_restarts_is_told_to_skip_the_assignment() -> None:
    rig = Rig()
    _, follower = static_group(rig, "a", "b")
    answer = rig.joined(rig.join(instance="a"))
    assert (answer.leader, answer.skip_assignment) == (answer.member_id, True)
    assert [m.member_id for m in answer.members] == [answer.member_id, follower]


def test_g15_an_old_client_that_leads_is_told_of_the_leader_before() -> None:
    rig = Rig()
    leader, _ = static_group(rig, "a", "b")
    answer = rig.joined(rig.join(instance="a", skip_assignment=False))
    assert (answer.leader, answer.members, answer.skip_assignment) == (leader, (), False)


def test_g15_the_one_before_is_fenced_everywhere() -> None:
    rig = Rig()
    old, _ = static_group(rig, "a", "b")
    new = rig.joined(rig.join(instance="a")).member_id
    assert rig.heartbeat(old, 1, instance="a") is ErrorCode.FENCED_INSTANCE_ID
    assert rig.commit(1, member_id=old, generation=1, instance="a") is ErrorCode.FENCED_INSTANCE_ID
    assert rig.commit_in_transaction(1, member_id=old, generation=1, instance="a") is ErrorCode.FENCED_INSTANCE_ID
    assert rig.answer(rig.sync(old, 1, instance="a")).error_code == ErrorCode.FENCED_INSTANCE_ID
    assert rig.answer(rig.join(old, instance="a")).error_code == ErrorCode.FENCED_INSTANCE_ID
    (left,) = rig.leave(MemberIdentity(old, "a")).members
    assert left.error_code == ErrorCode.FENCED_INSTANCE_ID
    assert rig.heartbeat(new, 1, instance="a") is ErrorCode.NONE


def test_g15_an_unknown_instance_is_an_unknown_member() -> None:
    rig = Rig()
    (member,) = static_group(rig, "a")
    assert rig.heartbeat(member, 1, instance="z") is ErrorCode.UNKNOWN_MEMBER_ID


def test_g15_a_second_one_that_joins_while_the_first_waits_fences_it() -> None:
    rig = Rig()
    first = rig.join(instance="a")
    second = rig.join(instance="a")
    assert rig.answer(first).error_code == ErrorCode.FENCED_INSTANCE_ID
    rig.advance(0)
    assert rig.joined(second).generation_id == 1
    assert len(rig.group().members) == 1


def test_g15_a_replacement_before_the_assignment_starts_the_rebalance_again() -> None:
    rig = Rig()
    tokens = [rig.join(instance="a"), rig.join(instance="b")]
    rig.advance(0)
    old = rig.joined(tokens[1]).member_id
    waiting = rig.sync(old, 1, instance="b")
    replaced = rig.join(instance="b")
    assert rig.answer(waiting).error_code == ErrorCode.FENCED_INSTANCE_ID
    assert rig.state() is GroupState.PREPARING_REBALANCE
    rig.join(rig.joined(tokens[0]).member_id, instance="a")
    assert rig.joined(replaced).generation_id == 2


def test_g15_a_restart_that_changes_the_vote_rebalances() -> None:
    rig = Rig()
    tokens = [rig.join(instance="a", offered=protocols("range", "roundrobin")) for _ in range(1)]
    tokens.append(rig.join(instance="b", offered=protocols("range", "roundrobin")))
    rig.advance(0)
    rig.complete([rig.joined(token) for token in tokens])
    rig.join(instance="b", offered=protocols("roundrobin"))
    assert rig.state() is GroupState.PREPARING_REBALANCE


def test_g15_a_static_member_that_does_not_rejoin_keeps_its_place_until_its_session_ends() -> None:
    rig = Rig()
    leader, absent = static_group(rig, "a", "b")
    token = rig.join(leader, instance="a", rebalance_ms=6_000)
    for _ in range(6):
        rig.advance(9_000)
        rig.heartbeat(absent, 1, instance="b")
    assert rig.answer(token) is None  # the rebalance timeout is the longest of all members'
    rig.advance(7_000)
    assert rig.heartbeat(absent, 2, instance="b") is ErrorCode.NONE
    assert [m.member_id for m in rig.joined(token).members] == [leader, absent]


def test_g15_when_nobody_rejoins_the_static_members_sessions_decide() -> None:
    rig = Rig()
    static_group(rig, "a", "b")
    token = rig.join(two_steps=False)
    rig.leave(next(iter(set(rig.group().members) - {"a-1", "b-2"})))
    assert rig.answer(token).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert rig.state() is GroupState.PREPARING_REBALANCE
    rig.advance(SESSION_MS)
    assert rig.state() is GroupState.EMPTY


def test_g18_an_administrator_removes_a_static_member_by_its_instance_id() -> None:
    rig = Rig()
    leader, _ = static_group(rig, "a", "b")
    answer = rig.leave(MemberIdentity("", "b"), MemberIdentity("", "z"), MemberIdentity("", None))
    assert [m.error_code for m in answer.members] == [0, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.UNKNOWN_MEMBER_ID]
    assert set(rig.group().members) == {leader}


def test_g15_a_member_id_handed_out_to_a_dynamic_member_is_not_for_a_static_one() -> None:
    rig = Rig()
    pending = rig.answer(rig.join()).member_id
    assert rig.answer(rig.join(pending, instance="a")).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_g15_a_replacement_that_cannot_be_written_changes_nothing() -> None:
    rig = Rig()
    old, _ = static_group(rig, "a", "b")
    before = rig.group()
    rig.fail_with = ErrorCode.NOT_ENOUGH_REPLICAS
    refused = rig.answer(rig.join(instance="a"))
    assert refused.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert rig.group() == before
    assert rig.heartbeat(old, 1, instance="a") is ErrorCode.NONE


def test_g15_a_replacement_survives_a_crash() -> None:
    rig = Rig()
    old, _ = static_group(rig, "a", "b")
    new = rig.joined(rig.join(instance="a")).member_id
    rig.crash()
    assert rig.heartbeat(new, 1, instance="a") is ErrorCode.NONE
    assert rig.heartbeat(old, 1, instance="a") is ErrorCode.FENCED_INSTANCE_ID
    assert rig.group().leader == new


def test_g15_a_replacement_is_still_expected_to_sync() -> None:
    rig = Rig()
    tokens = [rig.join(instance="a"), rig.join(instance="b")]
    rig.advance(0)
    leader, follower = (rig.joined(token).member_id for token in tokens)
    rig.sync(leader, 1, {}, instance="a")
    new = rig.joined(rig.join(instance="b")).member_id
    assert rig.group().pending_sync == {new}
    rig.sync(new, 1, instance="b")
    assert ("sync", "readers") not in rig.timers
    assert follower not in rig.group().members


def test_who_is_named_twice_leaves_once() -> None:
    rig = Rig()
    rig.stable(1)
    token = rig.join(instance="a", two_steps=False)
    (leader,) = [name for name in rig.group().members if not name.startswith("a")]
    rig.join(leader)
    member = rig.joined(token).member_id
    answers = rig.leave(MemberIdentity("", "a"), member, MemberIdentity("", "a")).members
    assert [each.error_code for each in answers] == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]
    assert set(rig.group().members) == {leader}


def test_a_large_group_is_written_whole_each_time_a_static_member_comes_back() -> None:
    """Its members are kept encoded; in the record they must be as they are now."""
    rig = Rig()
    static_group(rig, *(f"i{number}" for number in range(60)))
    for number in (7, 0, 7, 31):
        rig.joined(rig.join(instance=f"i{number}", two_steps=False))
        _check_written(rig)
    rig.leave(MemberIdentity("", "i59"))
    tokens = [rig.join(each.member_id, instance=each.group_instance_id) for each in rig.group().members.values()]
    rig.complete([rig.joined(token) for token in tokens])
    for number in (7, 58):
        rig.joined(rig.join(instance=f"i{number}", two_steps=False))
        _check_written(rig)
    assert rig.group().generation == 2


def _check_written(rig: Rig) -> None:
    value = rig.records[-1].value
    assert value is not None
    read = decode_group_metadata_value(value)
    assert encode_group_metadata_value(read) == value
    group = rig.group()
    assert (read.generation, read.protocol, read.leader) == (group.generation, group.protocol, group.leader)
    assert [(each.member_id, each.group_instance_id, each.subscription, each.assignment) for each in read.members] == [
        (each.member_id, each.group_instance_id, each.metadata(group.protocol), each.assignment)
        for each in group.members.values()
    ]
