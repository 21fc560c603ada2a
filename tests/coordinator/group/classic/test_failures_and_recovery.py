"""What a failed append leaves behind, and what a crash does."""

from __future__ import annotations

import pytest

from ottla.base.require import InvariantError
from ottla.coordinator.decision import LogRecord
from ottla.coordinator.group.classic.state import GroupState
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.delete_groups import DeletableGroupResult
from ottla.wire.messages.leave_group import LeaveGroupResponse
from tests.coordinator.group.rig import GROUP, REBALANCE_MS, SESSION_MS, Rig


def test_g17_members_go_on_without_a_rebalance_after_a_crash() -> None:
    rig = Rig()
    leader, follower = rig.stable(2)
    rig.commit(42, member_id=leader, generation=1)
    rig.crash()
    assert rig.state() is GroupState.STABLE
    assert rig.heartbeat(leader, 1) is ErrorCode.NONE
    assert rig.synced(rig.sync(follower, 1)) == follower.encode()
    assert rig.commit(43, member_id=follower, generation=1) is ErrorCode.NONE
    assert rig.fetch().committed_offset == 43
    assert rig.group().generation == 1


def test_g17_sessions_count_from_the_load() -> None:
    rig = Rig()
    leader, follower = rig.stable(2)
    rig.advance(SESSION_MS - 1)
    rig.crash()
    rig.advance(SESSION_MS - 1)
    assert rig.heartbeat(leader, 1) is ErrorCode.NONE
    rig.advance(1)
    assert rig.heartbeat(leader, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    assert follower not in rig.group().members


def test_g17_a_crash_before_the_assignment_is_written_brings_back_the_generation_before() -> None:
    rig = Rig()
    leader, follower = rig.stable(2)
    rig.join(leader)
    rig.join(follower)
    assert rig.group().generation == 2
    rig.crash()
    assert (rig.state(), rig.group().generation) == (GroupState.STABLE, 1)
    assert rig.heartbeat(leader, 2) is ErrorCode.ILLEGAL_GENERATION


def test_g17_the_next_generation_after_a_crash_is_newer() -> None:
    rig = Rig()
    (leader,) = rig.stable(1)
    rig.crash()
    assert rig.joined(rig.join(leader)).generation_id == 2


def test_g17_an_empty_group_stays_empty() -> None:
    rig = Rig()
    (member,) = rig.stable(1)
    rig.leave(member)
    before = rig.group()
    rig.crash()
    assert rig.group() == before


def test_a_compacted_log_loads_the_same() -> None:
    rig = Rig()
    leader, follower = rig.stable(2)
    for offset in range(5):
        rig.commit(offset, member_id=leader, generation=1)
    rig.leave(follower)
    rig.complete([rig.joined(rig.join(leader))])
    last = {entry.record.key: entry for entry in rig.log if entry.record is not None}
    rig.log = [entry for entry in rig.log if entry.record is not None and last[entry.record.key] is entry]
    before = rig.group()
    rig.crash()
    assert rig.group().members[leader].assignment == before.members[leader].assignment
    assert (rig.group().generation, rig.fetch().committed_offset) == (before.generation, 4)


def test_records_of_later_kinds_are_passed_over() -> None:
    rig = Rig()
    share_group_metadata = LogRecord(b"\x00\x0b\x00\x01g", b"\x00\x00\x00\x00\x00\x01\x00")
    rig.shard.apply(share_group_metadata, rig.now_ms)
    assert list(rig.shard.list_groups()) == []


@pytest.mark.parametrize(
    ("error", "means"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_EPOCH),
    ],
)
def test_a_commit_that_cannot_be_written_says_why_and_counts_for_nothing(error: ErrorCode, means: ErrorCode) -> None:
    rig = Rig()
    rig.commit(1)
    rig.fail_with = error
    assert rig.commit(2) is means
    rig.fail_with = error
    assert rig.commit_in_transaction(3) is means
    assert rig.fetch().committed_offset == 1
    assert rig.fetch(require_stable=True).error_code == ErrorCode.NONE


def test_a_group_that_cannot_be_written_does_not_exist() -> None:
    rig = Rig()
    rig.fail_with = ErrorCode.NOT_ENOUGH_REPLICAS
    assert rig.answer(rig.join()).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert rig.shard.group(GROUP) is None
    rig.stable(1)


def test_g7_an_assignment_that_cannot_be_written_sends_everybody_back() -> None:
    rig = Rig()
    tokens = [rig.join_twice(), rig.join_twice()]
    rig.advance(0)
    leader, follower = (rig.joined(token).member_id for token in tokens)
    waiting = rig.sync(follower, 1)
    rig.fail_with = ErrorCode.NOT_ENOUGH_REPLICAS
    done = rig.sync(leader, 1, {leader: b"x", follower: b"y"})
    for token in (waiting, done):
        assert rig.answer(token).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert rig.state() is GroupState.PREPARING_REBALANCE
    again = [rig.join(leader), rig.join(follower)]
    rig.complete([rig.joined(token) for token in again])
    assert rig.group().generation == 2


def test_a_leave_that_cannot_be_written_can_be_tried_again() -> None:
    rig = Rig()
    (member,) = rig.stable(1)
    rig.fail_with = ErrorCode.NOT_ENOUGH_REPLICAS
    assert rig.leave(member) == LeaveGroupResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert rig.heartbeat(member, 1) is ErrorCode.NONE
    assert rig.leave(member).members[0].error_code == ErrorCode.NONE
    assert rig.state() is GroupState.EMPTY


def test_an_expulsion_that_cannot_be_written_is_tried_again() -> None:
    rig = Rig()
    rig.stable(1)
    rig.fail_with = ErrorCode.NOT_ENOUGH_REPLICAS
    rig.advance(SESSION_MS)
    assert rig.state() is GroupState.STABLE
    rig.advance(rig.config.append_retry_ms)
    assert rig.state() is GroupState.EMPTY


def test_a_rebalance_that_ends_empty_and_cannot_be_written_is_tried_again() -> None:
    rig = Rig()
    leader, follower = rig.stable(2, session_ms=2 * REBALANCE_MS)
    rig.leave(leader)
    rig.fail_with = ErrorCode.NOT_ENOUGH_REPLICAS
    rig.advance(REBALANCE_MS)
    assert (rig.state(), set(rig.group().members)) == (GroupState.PREPARING_REBALANCE, {follower})
    rig.advance(rig.config.append_retry_ms)
    assert rig.state() is GroupState.EMPTY


def test_deleting_and_expiring_that_cannot_be_written() -> None:
    rig = Rig()
    rig.commit(1)
    rig.fail_with = ErrorCode.NOT_ENOUGH_REPLICAS
    token = rig.token()
    rig.run(rig.shard.delete_group(token, GROUP))
    assert rig.answer(token) == DeletableGroupResult(GROUP, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    rig.fail_with = ErrorCode.NOT_ENOUGH_REPLICAS
    rig.advance(rig.config.offsets_retention_ms)
    rig.fail_with = None
    rig.advance(rig.config.append_retry_ms + rig.config.offsets_retention_check_interval_ms)
    assert rig.shard.group(GROUP) is None


def test_the_next_input_must_wait_until_a_decision_is_carried_out() -> None:
    rig = Rig()
    rig.stable(1)
    decision = rig.shard.delete_group(1, "nowhere")
    assert not decision.records
    rig.commit(1, group_id="simple")
    rig.shard.delete_group(2, "simple")
    with pytest.raises(InvariantError):
        rig.shard.delete_group(3, "simple")


def test_only_what_was_decided_can_be_applied() -> None:
    rig = Rig()
    rig.commit(1)
    decision = rig.shard.delete_group(1, GROUP)
    with pytest.raises(InvariantError):
        rig.shard.apply(decision.records[1], rig.now_ms)
    with pytest.raises(InvariantError):
        rig.shard.append_failed(decision._replace(replies=()), ErrorCode.NOT_ENOUGH_REPLICAS)


def test_a_coordinator_that_moves_away_answers_all_who_wait() -> None:
    rig = Rig()
    leader, _ = rig.stable(2)
    joining = rig.join(leader)
    rig.run(rig.shard.unloaded())
    assert rig.answer(joining).error_code == ErrorCode.NOT_COORDINATOR
    other = Rig()
    tokens = [other.join_twice(), other.join_twice()]
    other.advance(0)
    waiting = other.sync(other.joined(tokens[1]).member_id, 1)
    other.run(other.shard.unloaded())
    assert other.answer(waiting).error_code == ErrorCode.NOT_COORDINATOR
