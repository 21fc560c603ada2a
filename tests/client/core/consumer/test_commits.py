"""SPEC O1, O4, G12: commits, in their order, in their generation, and in their time."""

import pytest

from ottla.base.types import TopicPartition
from ottla.client.core.offsets import OffsetAndMetadata
from ottla.client.errors import (
    CommitFailedError,
    DisconnectedError,
    KafkaError,
    RebalanceInProgressError,
    RequestTimeoutError,
)
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.heartbeat import HeartbeatResponse
from ottla.wire.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from tests.client.cooperative import CooperativeRoundRobin
from tests.client.core.consumer.rig import Rig, snapshot

A, B, C = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
_AT_5 = {A: OffsetAndMetadata(5)}


def answer(code: ErrorCode = ErrorCode.NONE) -> OffsetCommitResponse:
    parts = (OffsetCommitResponsePartition(0, code),)
    return OffsetCommitResponse(topics=(OffsetCommitResponseTopic(name="t", partitions=parts),))


def by_hand(**config: object) -> Rig:
    rig = Rig({"group.id": "g", "enable.auto.commit": False, **config})
    rig.assign(A)
    return rig


def member(*, cooperative: bool = False, auto: bool = False) -> Rig:
    """A stable member with partition A."""
    config = {"group.id": "g", "enable.auto.commit": auto}
    rig = Rig(config, strategy=[CooperativeRoundRobin()] if cooperative else None)
    rig.subscribe("t")
    rig.become_stable(A)
    return rig


def offsets(rig: Rig) -> dict[int, int]:
    """What the commit that waits says."""
    topics = rig.message(ApiKey.OFFSET_COMMIT).topics
    return {p.partition_index: p.committed_offset for topic in topics for p in topic.partitions}


def rejoined(rig: Rig, *tps: TopicPartition) -> None:
    rig.do(rig.core.subscribed)
    rig.become_stable(*tps, generation=2)


def test_o1_a_commit_ends_with_its_answer() -> None:
    rig = by_hand()
    rig.do(rig.core.commit, "call", _AT_5, 60_000)
    assert offsets(rig) == {0: 5}
    rig.answer(ApiKey.OFFSET_COMMIT, answer())
    assert rig.finished["call"].error is None


def test_o1_commits_go_one_after_the_other() -> None:
    rig = by_hand()
    rig.do(rig.core.commit_async, _AT_5, None)
    rig.do(rig.core.commit, "call", {A: OffsetAndMetadata(6)}, 60_000)
    assert offsets(rig) == {0: 5}
    rig.answer(ApiKey.OFFSET_COMMIT, answer())
    assert offsets(rig) == {0: 6}


@pytest.mark.parametrize("what", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "lost"])
def test_o1_a_commit_is_repeated_until_its_time_is_over(what: ErrorCode | str) -> None:
    rig = by_hand()
    rig.do(rig.core.commit, "call", _AT_5, 5_000)
    for _ in range(3):
        if isinstance(what, ErrorCode):
            rig.answer(ApiKey.OFFSET_COMMIT, answer(what))
        else:
            rig.fail(ApiKey.OFFSET_COMMIT, DisconnectedError(what))
        assert not rig.asked(ApiKey.OFFSET_COMMIT), "not at once"
        rig.wait(1.3)
    assert "call" not in rig.finished
    rig.wait(5)
    assert isinstance(rig.finished["call"].error, RequestTimeoutError)


def test_o1_a_commit_without_time_is_sent_and_not_waited_for() -> None:
    rig = by_hand()
    rig.do(rig.core.commit, "call", _AT_5, 0)
    assert isinstance(rig.finished["call"].error, RequestTimeoutError)
    assert offsets(rig) == {0: 5}


def test_o1_what_nobody_waits_for_any_more_is_not_repeated() -> None:
    rig = by_hand()
    rig.do(rig.core.commit, "call", _AT_5, 60_000)
    rig.do(rig.core.abandoned, "call")
    rig.fail(ApiKey.OFFSET_COMMIT, DisconnectedError("lost"))
    rig.wait(10)
    assert not rig.asked(ApiKey.OFFSET_COMMIT)


def test_o1_an_asynchronous_commit_is_tried_once_and_its_callback_hears_why_it_failed() -> None:
    rig = by_hand()
    heard: list[object] = []
    rig.do(rig.core.commit_async, _AT_5, lambda tps, error: heard.append(error))
    rig.answer(ApiKey.OFFSET_COMMIT, answer(ErrorCode.NOT_COORDINATOR))
    rig.run_callback()
    rig.wait(5)
    assert [type(error) for error in heard] == [KafkaError]
    assert not rig.asked(ApiKey.OFFSET_COMMIT)


def test_g12_a_commit_that_the_group_refuses_expels_the_member() -> None:
    rig = member()
    rig.do(rig.core.commit, "call", _AT_5, 60_000)
    rig.answer(ApiKey.OFFSET_COMMIT, answer(ErrorCode.ILLEGAL_GENERATION))
    assert isinstance(rig.finished["call"].error, CommitFailedError)
    assert rig.core.member.generation_id == -1


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION])
@pytest.mark.parametrize("in_background", [True, False])
def test_g12_a_commit_by_hand_into_a_group_that_has_members_is_told_so(code: ErrorCode, *, in_background: bool) -> None:
    rig = by_hand()
    heard: list[object] = []
    if in_background:
        rig.do(rig.core.commit_async, _AT_5, lambda tps, error: heard.append(error))
    else:
        rig.do(rig.core.commit, "call", _AT_5, 60_000)
    rig.answer(ApiKey.OFFSET_COMMIT, answer(code))
    if in_background:
        rig.run_callback()
    (error,) = heard if in_background else [rig.finished["call"].error]
    assert isinstance(error, CommitFailedError)
    assert "group g has members, and this consumer is none of them, because it does not subscribe()" in str(error)
    assert isinstance(error.__cause__, KafkaError)
    assert error.__cause__.code is code


def test_g13_a_commit_in_a_rebalance_is_told_so_and_the_member_rejoins() -> None:
    rig = member()
    rig.do(rig.core.commit, "call", _AT_5, 60_000)
    rig.answer(ApiKey.OFFSET_COMMIT, answer(ErrorCode.REBALANCE_IN_PROGRESS))
    assert isinstance(rig.finished["call"].error, RebalanceInProgressError)
    assert rig.core.rejoin_reason == "OffsetCommit was answered REBALANCE_IN_PROGRESS"


def test_g12_who_is_in_no_generation_commits_nothing() -> None:
    rig = member()
    rig.wait(3.1)
    rig.refuse(ApiKey.HEARTBEAT, ErrorCode.UNKNOWN_MEMBER_ID, HeartbeatResponse)
    rig.do(rig.core.commit, "call", _AT_5, 60_000)
    assert isinstance(rig.finished["call"].error, CommitFailedError)
    assert not rig.asked(ApiKey.OFFSET_COMMIT)


@pytest.mark.parametrize("code", [ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID])
@pytest.mark.parametrize("kept", [True, False])
def test_g12_a_refusal_of_the_generation_before_does_not_reset_the_new_one(kept: bool, code: ErrorCode) -> None:
    rig = member(cooperative=kept)
    rig.do(rig.core.commit_async, _AT_5, None)
    late = rig.take(ApiKey.OFFSET_COMMIT)
    if not kept:
        rig.do(rig.core.commit_async, {}, None)
    rig.do(rig.core.subscribed)
    rig.poll()
    if kept:
        rig.join(2)
        rig.sync(A)
        rig.poll()
    else:  # an eager member waits for the commit, for a third of its session
        rig.wait(16)
        rig.poll()
        rig.become_stable(A, generation=2)
    before = rig.core.member.metadata, rig.core.state
    rig.do(rig.core.answered, late.ticket, answer(code))
    assert (rig.core.member.metadata, rig.core.state) == before
    rig.wait(1)
    if kept:
        assert rig.message(ApiKey.OFFSET_COMMIT).generation_id_or_member_epoch == 2, "it is still this member's"
    else:
        assert not rig.asked(ApiKey.OFFSET_COMMIT)


def test_g12_a_commit_is_not_sent_in_a_generation_whose_partitions_it_was_not_made_for() -> None:
    rig = member(cooperative=True)
    rig.do(rig.core.commit_async, {A: OffsetAndMetadata(4)}, None)
    rig.do(rig.core.commit, "call", _AT_5, 60_000)
    late = rig.take(ApiKey.OFFSET_COMMIT)
    rejoined(rig, B)
    rig.wait(16)  # the commit before holds the rebalance up for a third of a session
    rig.poll()
    assert rig.core.positions.assignment == {B}
    rig.do(rig.core.answered, late.ticket, answer())
    assert isinstance(rig.finished["call"].error, CommitFailedError)


def test_o4_positions_are_committed_in_poll_when_it_is_time() -> None:
    rig = member(auto=True)
    rig.state(A).seek(7)
    rig.wait(6)
    assert not rig.asked(ApiKey.OFFSET_COMMIT), "the user may be taking records"
    rig.poll()
    assert offsets(rig) == {0: 7}


def test_o4_positions_are_committed_while_the_user_waits_in_poll() -> None:
    rig = member(auto=True)
    rig.state(A).seek(7)
    rig.core.watch.in_poll = True
    rig.do(rig.core.poll)
    rig.wait(6)
    assert offsets(rig) == {0: 7}


def test_o4_positions_are_committed_before_they_are_given_up_but_not_for_ever() -> None:
    rig = member(auto=True)
    revoked: list[object] = []
    rig.subscribe("t", on_revoked=revoked.append)
    rig.state(A).seek(7)
    rig.poll()
    assert offsets(rig) == {0: 7}
    assert not rig.calls
    rig.wait(16)
    rig.poll()
    rig.run_callback()
    assert revoked == [[A]]
    assert "positions were not committed before a rebalance" in "".join(rig.said)


def test_o4_positions_in_a_topic_that_was_deleted_keep_no_rebalance_waiting() -> None:
    rig = Rig({"group.id": "g"}, known=snapshot(t=1, u=1))
    rig.subscribe("t", "u")
    rig.become_stable(A, C)
    rig.state(A).seek(7)
    rig.state(C).seek(8)
    rig.learn(snapshot(t=1))
    rig.wait(3.1)
    rig.refuse(ApiKey.HEARTBEAT, ErrorCode.REBALANCE_IN_PROGRESS, HeartbeatResponse)
    rig.poll()
    (topic,) = rig.message(ApiKey.OFFSET_COMMIT).topics
    assert (topic.name, offsets(rig)) == ("t", {0: 7})


def test_o1_who_leaves_without_partitions_waits_for_what_was_begun_before() -> None:
    rig = Rig({"group.id": "g", "enable.auto.commit": False})
    rig.subscribe("t")
    rig.become_stable()
    heard: list[object] = []
    for at in (5, 6):
        rig.do(rig.core.commit_async, {A: OffsetAndMetadata(at)}, lambda tps, error: heard.append(error))
    rig.do(rig.core.close, "close", True)
    for at in (5, 6):
        assert offsets(rig) == {0: at}
        assert not rig.asked(ApiKey.LEAVE_GROUP)
        rig.answer(ApiKey.OFFSET_COMMIT, answer())
    assert rig.asked(ApiKey.LEAVE_GROUP)
    rig.run_all_callbacks()
    assert heard == [None, None]


@pytest.mark.parametrize("by_group", [True, False])
def test_o1_a_close_that_cannot_wait_longer_tells_who_waits_for_a_commit(by_group: bool) -> None:
    rig = member() if by_group else by_hand()
    heard: list[object] = []
    rig.do(rig.core.commit_async, _AT_5, lambda tps, error: heard.append(error))
    rig.do(rig.core.close, "close", True)
    rig.wait(30)
    rig.run_all_callbacks()
    assert [type(error) for error in heard] == [RequestTimeoutError]


def test_o1_what_nobody_waits_for_does_not_leave_behind_what_is_asked_after_it() -> None:
    rig = by_hand()
    rig.do(rig.core.commit, "first", _AT_5, 1_000)
    first = rig.asked(ApiKey.OFFSET_COMMIT)[0]
    rig.wait(1)
    assert isinstance(rig.finished["first"].error, RequestTimeoutError)
    assert not rig.given_up, "it may still be carried out"
    rig.do(rig.core.commit, "second", {A: OffsetAndMetadata(6)}, 60_000)
    assert rig.given_up == [first.ticket]
    assert offsets(rig) == {0: 6}
    rig.do(rig.core.failed, first.ticket, DisconnectedError("it was under way already"))
    rig.answer(ApiKey.OFFSET_COMMIT, answer())
    assert rig.finished["second"].error is None


def test_o1_a_commit_that_was_broken_off_does_not_keep_the_next_one_waiting() -> None:
    rig = by_hand()
    rig.do(rig.core.commit, "first", _AT_5, 60_000)
    rig.do(rig.core.abandoned, "first")
    rig.do(rig.core.commit, "second", {A: OffsetAndMetadata(6)}, 60_000)
    assert offsets(rig) == {0: 6}


def test_o1_an_asynchronous_commit_is_never_given_up() -> None:
    rig = by_hand()
    rig.do(rig.core.commit_async, _AT_5, None)
    rig.do(rig.core.commit, "call", {A: OffsetAndMetadata(6)}, 60_000)
    rig.wait(20)
    assert offsets(rig) == {0: 5}


def test_o4_automatic_commits_do_not_pile_up_while_the_coordinator_is_silent() -> None:
    rig = member(auto=True)
    rig.state(A).seek(1)
    for at in range(2, 20):
        rig.state(A).position = at
        rig.wait(6)
        rig.poll()
    assert offsets(rig) == {0: 2}
    rig.answer(ApiKey.OFFSET_COMMIT, answer())
    rig.wait(6)
    rig.poll()
    assert offsets(rig) == {0: 19}, "the next one says where the user is now"
