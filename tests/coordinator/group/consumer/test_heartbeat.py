"""ConsumerGroupHeartbeat: joining, moving partitions, leaving, and every refusal (SPEC G19)."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.assign.server import RangeServerAssignor, UniformAssignor
from ottla.base.limits import INLINE_COST_OF_MEMBER, MAX_INLINE_ASSIGNMENT, MAX_SUBSCRIBED_NAMES
from ottla.base.steps import result_of
from ottla.coordinator.group.config import GroupConfig
from ottla.coordinator.group.consumer.states import GroupState, MemberState
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from ottla.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from tests.coordinator.group.consumer.rig import GROUP, Metadata, Rig, join_request, settle


def test_g19_the_first_member_gets_everything_at_once() -> None:
    rig = Rig()
    answer = rig.join("m1")
    assert (answer.error_code, answer.member_id, answer.member_epoch) == (0, "m1", 2)
    assert answer.heartbeat_interval_ms == 5_000
    assert answer.assignment is not None
    assert answer.assignment.topic_partitions == (TopicPartitions(rig.metadata.id_of("words"), (0, 1, 2, 3)),)
    assert rig.state() is GroupState.STABLE


def test_g19_a_second_member_waits_until_the_first_has_given_up() -> None:
    rig = Rig()
    first = rig.joined("m1")
    second = rig.joined("m2")
    assert second.partitions == []
    assert rig.group.members["m2"].state is MemberState.UNRELEASED_PARTITIONS
    told = first.beat()
    assert (told.member_epoch, len(first.partitions)) == (2, 2)  # it is told, and stays in its epoch
    assert rig.group.members["m1"].state is MemberState.UNREVOKED_PARTITIONS
    assert second.beat().assignment is None
    assert first.beat().member_epoch == 3
    second.beat()
    assert sorted(first.partitions + second.partitions) == [0, 1, 2, 3]
    assert rig.state() is GroupState.STABLE


def test_a_member_that_leaves_gives_its_part_to_the_others() -> None:
    rig = Rig()
    first, second = rig.joined("m1"), rig.joined("m2")
    settle(first, second)
    assert second.leave().member_epoch == -1
    assert rig.state() is GroupState.ASSIGNING
    settle(first)
    assert first.partitions == [0, 1, 2, 3]
    first.leave()
    assert rig.state() is GroupState.EMPTY


def test_a_silent_member_is_expelled_after_the_session_timeout() -> None:
    rig = Rig()
    first, second = rig.joined("m1"), rig.joined("m2")
    settle(first, second)
    rig.advance(44_999)
    first.beat()
    rig.advance(1)
    assert list(rig.group.members) == ["m1"]
    assert second.beat().error_code == ErrorCode.UNKNOWN_MEMBER_ID
    settle(first)
    assert first.partitions == [0, 1, 2, 3]


def test_a_member_that_does_not_let_go_is_expelled_after_its_rebalance_timeout() -> None:
    rig = Rig()
    first = rig.joined("m1", rebalance_timeout_ms=10_000)
    had = first.said()
    second = rig.joined("m2")
    first.beat()
    for _ in range(3):
        rig.advance(3_000)
        first.beat(topic_partitions=had)
        second.beat()
    assert "m1" in rig.group.members
    rig.advance(1_000)
    assert "m1" not in rig.group.members
    settle(second)
    assert second.partitions == [0, 1, 2, 3]


def test_a_members_own_settings_come_from_its_group() -> None:
    own = {"consumer.session.timeout.ms": 50_000, "consumer.heartbeat.interval.ms": 7_000}
    rig = Rig(own=own)
    assert rig.join("m1").heartbeat_interval_ms == 7_000
    rig.advance(49_999)
    assert rig.group.members
    rig.advance(1)
    assert not rig.group.members


def test_the_answer_has_an_assignment_only_when_it_is_news() -> None:
    rig = Rig()
    member = rig.joined("m1")
    assert member.beat(topic_partitions=None).assignment is None
    full = member.beat(rebalance_timeout_ms=60_000, subscribed_topic_names=("words",))
    assert full.assignment is not None


def test_a_lost_answer_is_made_good() -> None:
    rig = Rig()
    first, _ = rig.joined("m1"), rig.joined("m2")
    epoch, had = first.epoch, first.said()
    first.beat()
    first.beat()
    assert first.epoch == epoch + 1
    first.epoch = epoch  # it never heard of the new one
    assert first.beat().error_code == ErrorCode.NONE
    first.epoch = epoch
    # It says the epoch before, and that it has more than it should.
    assert first.beat(topic_partitions=had).error_code == ErrorCode.FENCED_MEMBER_EPOCH


@pytest.mark.parametrize("epoch", [1, 3, 99])
def test_g19_a_wrong_epoch_is_fenced(epoch: int) -> None:
    rig = Rig()
    member = rig.joined("m1")
    member.epoch = epoch
    answer = member.beat()
    size = "smaller" if epoch < 2 else "greater"
    assert answer.error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert answer.error_message == (
        f"The consumer group member has a {size} member epoch ({epoch}) than the one known by the group coordinator "
        "(2). The member must abandon all its partitions and rejoin."
    )
    assert rig.join("m1").error_code == ErrorCode.NONE


def test_a_changed_subscription_takes_the_old_topics_away_at_once() -> None:
    rig = Rig(Metadata(words=2, lines=3))
    member = rig.joined("m1")
    lines = rig.metadata.id_of("lines")
    member.beat(subscribed_topic_names=("lines",))
    assert member.owned == {}
    member.beat()
    assert member.owned == {lines: (0, 1, 2)}


def test_topics_that_change_raise_the_groups_epoch_at_the_next_heartbeat() -> None:
    rig = Rig(Metadata(words=2))
    member = rig.joined("m1", "words", "lines")
    assert (member.epoch, member.partitions) == (2, [0, 1])
    rig.metadata.make("words", 4)
    member.beat()
    assert (member.epoch, member.partitions) == (3, [0, 1, 2, 3])
    lines = rig.metadata.make("lines", 1)
    member.beat()
    assert (member.epoch, lines in member.owned) == (4, True)
    rig.metadata.make("others", 1)  # nobody reads it
    member.beat()
    assert member.epoch == 4
    rig.metadata.delete("lines")
    member.beat()
    settle(member)
    assert (member.epoch, lines in member.owned) == (5, False)


def test_the_assignment_interval_keeps_the_target_for_a_while() -> None:
    rig = Rig(config=GroupConfig())
    first = rig.joined("m1")
    second = rig.joined("m2")
    assert (rig.group.epoch, rig.group.target_epoch) == (3, 2)
    assert (second.epoch, second.partitions) == (2, [])
    rig.advance(999)
    first.beat()
    assert rig.group.target_epoch == 2
    rig.advance(1)
    first.beat()
    assert rig.group.target_epoch == 3
    settle(first, second)
    assert len(second.partitions) == 2


def test_version_0_leaves_the_member_id_to_the_broker() -> None:
    rig = Rig()
    assert rig.heartbeat(join_request(""), version=0, unique="u").member_id == "u"
    assert rig.heartbeat(join_request("")).error_code == ErrorCode.INVALID_REQUEST


def _request(**more: Any) -> ConsumerGroupHeartbeatRequest:
    return join_request(**{"member_id": "m1", **more})


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (_request(member_id=" "), "MemberId can't be empty."),
        (_request()._replace(group_id=""), "GroupId can't be empty."),
        (_request(instance_id=""), "InstanceId can't be empty."),
        (_request(rack_id=""), "RackId can't be empty."),
        (_request(rebalance_timeout_ms=-1), "RebalanceTimeoutMs must be provided in first request."),
        (_request(topic_partitions=None), "TopicPartitions must be empty when (re-)joining."),
        (_request(topic_partitions=(TopicPartitions(),)), "TopicPartitions must be empty when (re-)joining."),
        (
            _request(subscribed_topic_names=None),
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
        ),
        (_request()._replace(member_epoch=-2), "InstanceId can't be null."),
        (_request()._replace(member_epoch=-3), "MemberEpoch is invalid."),
    ],
)
def test_requests_that_make_no_sense(request_: ConsumerGroupHeartbeatRequest, message: str) -> None:
    answer = Rig().heartbeat(request_)
    assert (answer.error_code, answer.error_message) == (ErrorCode.INVALID_REQUEST, message)


def test_names_of_topics_are_bounded_and_nothing_is_done_for_more() -> None:
    """29,000 of them, which are hashed, sorted, written and read, had taken 60 to 70 ms of one turn."""
    rig = Rig()
    names = [f"t{number}" for number in range(MAX_SUBSCRIBED_NAMES + 1)]
    answer = rig.join("m1", *names)
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert (
        answer.error_message == "SubscribedTopicNames has more than 10000 names; a SubscribedTopicRegex can mean more."
    )
    assert not rig.join("m1", *names[1:]).error_code


def test_an_assignor_that_the_broker_does_not_have() -> None:
    answer = Rig().join("m1", server_assignor="mine")
    assert answer.error_code == ErrorCode.UNSUPPORTED_ASSIGNOR
    assert answer.error_message == "ServerAssignor mine is not supported. Supported assignors: uniform, range."


def test_most_members_choose_the_assignor() -> None:
    rig = Rig()
    for number, assignor in enumerate(["range", "uniform", "range"]):
        assert not rig.join(f"m{number}", server_assignor=assignor).error_code
    assert result_of(rig.shard.describe_consumer_group(GROUP)).assignor_name == "range"


def test_a_full_group_refuses_newcomers_alone() -> None:
    rig = Rig(config=GroupConfig(consumer_max_size=1))
    member = rig.joined("m1")
    answer = rig.join("m2")
    assert answer.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert answer.error_message == "The consumer group has reached its maximum capacity of 1 members."
    assert not member.beat().error_code


def test_groups_and_members_that_are_not_there() -> None:
    rig = Rig()
    missing = rig.heartbeat(ConsumerGroupHeartbeatRequest(GROUP, "m1", 1, topic_partitions=None))
    assert (missing.error_code, missing.error_message) == (
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"Consumer group {GROUP} not found.",
    )
    rig.join("m1")
    for epoch in (-1, 5):
        unknown = rig.heartbeat(ConsumerGroupHeartbeatRequest(GROUP, "m2", epoch, topic_partitions=None))
        assert (unknown.error_code, unknown.error_message) == (
            ErrorCode.UNKNOWN_MEMBER_ID,
            f"Member m2 is not a member of group {GROUP}.",
        )


def test_an_append_that_fails_changes_nothing() -> None:
    rig = Rig()
    member = rig.joined("m1")
    rig.fail_with = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert rig.join("m2").error_code == ErrorCode.NOT_COORDINATOR
    assert list(rig.group.members) == ["m1"]
    assert member.beat().member_epoch == 2
    assert not rig.join("m2").error_code


def test_a_large_group_is_divided_beside_the_loop() -> None:
    rig = Rig(Metadata(words=MAX_INLINE_ASSIGNMENT))
    member = rig.joined("m1")
    (job,) = rig.jobs
    assert (member.epoch, member.partitions, rig.state()) == (1, [], GroupState.ASSIGNING)
    member.beat()
    assert len(rig.jobs) == 1  # one at a time
    second = rig.joined("m2")
    rig.run(rig.shard.assigned(job, job.assignor.assign(job.spec), rig.now_ms))
    assert (rig.group.target_epoch, rig.group.epoch) == (2, 3)
    member.beat()  # has its part of the target before, and asks for the next one
    assert (member.epoch, len(member.partitions)) == (2, MAX_INLINE_ASSIGNMENT)
    rig.run(rig.shard.assigned(rig.jobs[1], rig.jobs[1].assignor.assign(rig.jobs[1].spec), rig.now_ms))
    settle(member, second)
    assert len(member.partitions) == len(second.partitions) == MAX_INLINE_ASSIGNMENT // 2


@pytest.mark.parametrize(
    ("assignor", "alike", "inline"),
    [(UniformAssignor(), True, 4), (UniformAssignor(), False, 3), (RangeServerAssignor(), True, 3)],
)
def test_so_is_one_whose_members_want_many_topics_each(
    assignor: UniformAssignor | RangeServerAssignor, alike: bool, inline: int
) -> None:
    """`range` looks at every topic of every member, and so does `uniform` where they want different ones."""
    names = [f"t{number}" for number in range(MAX_INLINE_ASSIGNMENT // 4 - INLINE_COST_OF_MEMBER)]
    rig = Rig(Metadata(**dict.fromkeys(names, 1)), assignors={assignor.name: assignor})
    for number in range(4):
        rig.join(f"m{number}", *names[0 if alike else number :])
    assert (len(rig.group.target), bool(rig.jobs)) == (inline, inline < 4)


def test_and_so_is_one_of_many_members() -> None:
    rig = Rig(Metadata(words=1), GroupConfig(consumer_assignment_interval_ms=1_000_000))
    members = MAX_INLINE_ASSIGNMENT // INLINE_COST_OF_MEMBER
    for number in range(members - 1):
        assert not rig.join(f"m{number}").error_code
    rig.now_ms += 1_000_000
    rig.join("a")
    assert (len(rig.jobs), rig.group.target_epoch) == (1, 2)


def test_members_with_the_same_names_share_them() -> None:
    rig = Rig()
    for member_id, names in (("m1", "ab"), ("m2", "ba"), ("m3", "abc")):
        rig.joined(member_id, *names)
    first, second, third = rig.group.members.values()
    assert first.topic_names is second.topic_names is not third.topic_names
    rig.joined("m3", *"ab")
    assert all(member.topic_names is first.topic_names for member in rig.group.members.values())
    assert list(rig.group._same_names) == [first.topic_names]
    for member_id in list(rig.group.members):
        rig.heartbeat(ConsumerGroupHeartbeatRequest(GROUP, member_id, -1, topic_partitions=None))
    assert rig.group._same_names == rig.group._by_names == {}


def test_a_target_that_comes_too_late_counts_for_nobody_who_is_gone() -> None:
    rig = Rig(Metadata(words=MAX_INLINE_ASSIGNMENT))
    member = rig.joined("m1")
    (job,) = rig.jobs
    computed = job.assignor.assign(job.spec)
    member.leave()
    rig.run(rig.shard.assigned(job, computed, rig.now_ms))
    assert (rig.group.target, rig.state()) == ({}, GroupState.EMPTY)
    rig.crash()
    assert not rig.shard.assigned(job, computed, rig.now_ms).records


def _txn(rig: Rig, member_id: str, epoch: int, partition: int = 0, topic: str = "words") -> ErrorCode:
    token = rig.token()
    one = TxnOffsetCommitRequestPartition(partition, 5, 0, "")
    topics = (TxnOffsetCommitRequestTopic(topic, (one,)),)
    request = TxnOffsetCommitRequest("tx", GROUP, 7, 0, epoch, member_id, None, topics)
    decision = rig.shard.commit_transactional_offsets(token, request, rig.now_ms)
    if decision.records:
        rig.run(rig.shard.append_failed(decision, ErrorCode.NONE))  # whether it is accepted is all that is asked
    else:
        rig.run(decision)
    answer: TxnOffsetCommitResponse = rig.answers[token]
    return ErrorCode(answer.topics[0].partitions[0].error_code)


def test_t11_offsets_in_a_transaction_carry_the_members_epoch() -> None:
    rig = Rig()
    first, second = rig.joined("m1"), rig.joined("m2")
    settle(first, second)
    assert _txn(rig, "", -1) is ErrorCode.NONE  # a producer before KIP-447 says nothing of a member
    assert _txn(rig, "m1", 3) is ErrorCode.NONE
    assert _txn(rig, "m1", 2) is ErrorCode.NONE  # it has the partition since epoch 2
    assert _txn(rig, "m1", 2, partition=2) is ErrorCode.ILLEGAL_GENERATION  # which is the other's
    assert _txn(rig, "m2", 2, partition=2) is ErrorCode.ILLEGAL_GENERATION  # it has it since epoch 3
    assert _txn(rig, "m1", 4) is ErrorCode.ILLEGAL_GENERATION
    assert _txn(rig, "m9", 3) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_whose_place_another_takes_is_not_waited_for() -> None:
    rig = Rig()
    settle(static := rig.joined("s", instance_id="I"))
    joining = rig.shard.consumer_groups.room.soft(GROUP).joining
    joining.add("s")
    assert not static.leave(-2).error_code
    assert not rig.join("t", instance_id="I").error_code
    assert joining == set()
