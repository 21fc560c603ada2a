"""SyncGroup, Heartbeat, LeaveGroup, and members that are silent."""

from __future__ import annotations

import pytest

from ottla.coordinator.group.classic.state import GroupState
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse
from ottla.wire.offsets_records import GroupMetadataValue, MemberMetadata, decode_group_metadata_value
from tests.coordinator.group.rig import GROUP, HOST, REBALANCE_MS, SESSION_MS, START_MS, Rig, protocols


def two_joined(rig: Rig) -> tuple[str, str]:
    """A generation whose two members have not synced yet: leader and follower."""
    tokens = [rig.join_twice(), rig.join_twice()]
    rig.advance(0)
    leader, follower = (rig.joined(token).member_id for token in tokens)
    return leader, follower


def test_g7_the_generation_is_in_the_log_before_anybody_is_answered() -> None:
    rig = Rig()
    leader, follower = two_joined(rig)
    rig.advance(100)
    waiting = rig.sync(follower, 1)
    assert rig.answer(waiting) is None
    assert len(rig.records) == 1  # that the group exists
    done = rig.sync(leader, 1, {leader: b"one", follower: b"two"})
    assert (rig.synced(done), rig.synced(waiting)) == (b"one", b"two")
    value = rig.records[-1].value
    assert value is not None
    subscription = protocols("range")[0].metadata
    assert decode_group_metadata_value(value) == GroupMetadataValue(
        protocol_type="consumer",
        generation=1,
        protocol="range",
        leader=leader,
        current_state_timestamp_ms=START_MS,
        members=(
            MemberMetadata(leader, None, "c", HOST, REBALANCE_MS, SESSION_MS, subscription, b"one"),
            MemberMetadata(follower, None, "c", HOST, REBALANCE_MS, SESSION_MS, subscription, b"two"),
        ),
    )
    assert rig.group().state_timestamp_ms == START_MS + 100


def test_g7_a_member_the_leader_left_out_has_an_empty_assignment() -> None:
    rig = Rig()
    leader, follower = two_joined(rig)
    rig.sync(leader, 1, {leader: b"all", "stranger": b"x"})
    assert rig.synced(rig.sync(follower, 1)) == b""


def test_g7_a_late_follower_gets_its_assignment_from_the_stable_group() -> None:
    rig = Rig()
    leader, follower = two_joined(rig)
    rig.sync(leader, 1, {follower: b"yours"})
    assert rig.state() is GroupState.STABLE
    assert rig.synced(rig.sync(follower, 1)) == b"yours"


def test_g12_sync_refusals() -> None:
    rig = Rig()
    leader, follower = two_joined(rig)
    assert rig.answer(rig.sync("stranger", 1)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert rig.answer(rig.sync(leader, 0)).error_code == ErrorCode.ILLEGAL_GENERATION
    other_type = rig.sync(leader, 1, protocol_type="connect")
    other_name = rig.sync(leader, 1, protocol_name="sticky")
    assert rig.answer(other_type).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert rig.answer(other_name).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    unsaid = rig.sync(leader, 1, {leader: b"x"}, protocol_type=None, protocol_name=None)
    assert rig.synced(unsaid) == b"x"
    rig.join(leader)
    assert rig.answer(rig.sync(follower, 1)).error_code == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_sync_asked_again_replaces_the_one_that_waits() -> None:
    rig = Rig()
    leader, follower = two_joined(rig)
    first, second = rig.sync(follower, 1), rig.sync(follower, 1)
    assert rig.answer(first).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    rig.sync(leader, 1, {follower: b"x"})
    assert rig.synced(second) == b"x"


def test_g7_members_that_never_sync_are_dropped_after_the_rebalance_timeout() -> None:
    rig = Rig()
    leader, follower = two_joined(rig)
    rig.sync(leader, 1, {})
    for _ in range(REBALANCE_MS // 5_000):
        assert rig.heartbeat(leader, 1) is ErrorCode.NONE
        assert rig.heartbeat(follower, 1) is ErrorCode.NONE
        rig.advance(5_000)
    assert rig.heartbeat(leader, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    assert rig.heartbeat(follower, 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_g8_a_silent_member_is_expelled_and_the_rest_rebalance() -> None:
    rig = Rig()
    leader, follower = rig.stable(2)
    rig.advance(SESSION_MS - 1)
    assert rig.heartbeat(leader, 1) is ErrorCode.NONE
    rig.advance(1)
    assert rig.heartbeat(leader, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    assert rig.heartbeat(follower, 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert rig.joined(rig.join(leader)).generation_id == 2


def test_g8_the_last_member_expelled_leaves_an_empty_group_in_the_log() -> None:
    rig = Rig()
    rig.stable(1)
    rig.advance(SESSION_MS)
    assert rig.state() is GroupState.EMPTY
    value = rig.records[-1].value
    assert value is not None
    assert decode_group_metadata_value(value) == GroupMetadataValue("consumer", 2, None, None, rig.now_ms, ())


def test_g8_who_waits_for_a_rebalance_need_not_heartbeat() -> None:
    rig = Rig()
    leader, follower = rig.stable(2)
    token = rig.join(leader)
    for _ in range(5):
        rig.advance(SESSION_MS - 1)
        assert rig.heartbeat(follower, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    rig.join(follower)
    assert rig.joined(token).generation_id == 2


def test_g8_who_waits_for_the_assignment_need_not_heartbeat() -> None:
    rig = Rig()
    leader, follower = two_joined(rig)
    token = rig.sync(follower, 1)
    for _ in range(3):
        rig.advance(SESSION_MS - 1)
        assert rig.heartbeat(leader, 1) is ErrorCode.NONE
    rig.sync(leader, 1, {follower: b"x"})
    assert rig.synced(token) == b"x"
    rig.advance(SESSION_MS - 1)
    assert follower in rig.group().members
    rig.advance(1)
    assert follower not in rig.group().members


def test_g12_an_old_generation_does_not_keep_its_session() -> None:
    rig = Rig()
    (member,) = rig.stable(1)
    assert rig.heartbeat(member, 0) is ErrorCode.ILLEGAL_GENERATION
    assert rig.heartbeat(member, 2) is ErrorCode.ILLEGAL_GENERATION
    assert rig.heartbeat("stranger", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    rig.advance(SESSION_MS)
    assert member not in rig.group().members


def test_heartbeat_of_a_group_that_does_not_exist() -> None:
    assert Rig().heartbeat("m", 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_g10_leaving_rebalances_at_once_and_the_first_of_those_left_leads() -> None:
    rig = Rig()
    leader, second, third = rig.stable(3)
    assert rig.leave(leader) == LeaveGroupResponse(members=(MemberResponse(leader, None, 0),))
    assert rig.state() is GroupState.PREPARING_REBALANCE
    tokens = [rig.join(third), rig.join(second)]
    assert {rig.joined(token).leader for token in tokens} == {second}


def test_g10_several_members_leave_with_one_rebalance() -> None:
    rig = Rig()
    leader, second, third = rig.stable(3)
    answer = rig.leave(second, "stranger", third)
    assert [m.error_code for m in answer.members] == [0, ErrorCode.UNKNOWN_MEMBER_ID, 0]
    assert rig.joined(rig.join(leader)).generation_id == 2


def test_g10_the_last_one_to_leave_empties_the_group() -> None:
    rig = Rig()
    members = rig.stable(2)
    rig.leave(*members)
    assert (rig.state(), rig.group().generation) == (GroupState.EMPTY, 2)
    assert set(rig.timers) == {("retention",)}


def test_g10_who_leaves_while_waiting_is_answered() -> None:
    rig = Rig()
    leader, follower = rig.stable(2)
    joining = rig.join(leader)
    rig.leave(leader)
    assert rig.answer(joining).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert rig.joined(rig.join(follower)).members[0].member_id == follower


def test_g10_who_leaves_while_waiting_for_an_assignment_is_answered() -> None:
    rig = Rig()
    _leader, follower = two_joined(rig)
    waiting = rig.sync(follower, 1)
    rig.leave(follower)
    assert rig.answer(waiting).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert rig.state() is GroupState.PREPARING_REBALANCE


def test_g10_a_member_id_that_was_handed_out_can_leave() -> None:
    rig = Rig()
    pending = rig.answer(rig.join()).member_id
    assert rig.leave(pending).members == (MemberResponse(pending, None, 0),)
    assert rig.group().pending_members == frozenset()


def test_g10_versions_0_to_2_have_one_member_and_one_error() -> None:
    rig = Rig()
    (member,) = rig.stable(1)
    answers = []
    for name in ("stranger", member):
        token = rig.token()
        rig.run(rig.shard.leave_group(token, LeaveGroupRequest(GROUP, (), name), rig.now_ms))
        answers.append(rig.answer(token))
    assert answers == [LeaveGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID), LeaveGroupResponse()]


@pytest.mark.parametrize("group_id", ["nowhere", ""])
def test_leaving_a_group_that_does_not_exist(group_id: str) -> None:
    rig = Rig()
    answer = rig.leave(MemberIdentity("m"), group_id=group_id)
    if group_id:
        assert answer.members == (MemberResponse("m", None, ErrorCode.UNKNOWN_MEMBER_ID),)
    else:
        assert answer.error_code == ErrorCode.INVALID_GROUP_ID
    assert rig.shard.group(group_id) is None
