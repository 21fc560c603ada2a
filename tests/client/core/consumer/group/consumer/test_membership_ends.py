"""SPEC G20: how a membership of the consumer protocol ends, what is refused, and whose commits count."""

import pytest

from ottla.client.core.consumer.group.consumer.states import State
from ottla.client.core.offsets import ConsumerGroupMetadata
from ottla.client.errors import (
    ClientError,
    CommitFailedError,
    DisconnectedError,
    FencedInstanceIdError,
    GroupMaxSizeReachedError,
    InvalidRegularExpressionError,
    KafkaError,
    UnreleasedInstanceIdError,
    UnsupportedAssignorError,
    UnsupportedVersionError,
)
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from tests.client.core.consumer.group.consumer.members import (
    BEAT,
    GROUP,
    A,
    B,
    commit_answer,
    joining,
    member,
    new_target,
    reconcile,
)
from tests.client.core.consumer.rig import Rig

# --- the end of a membership ---


@pytest.mark.parametrize(
    "code", [ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND]
)
def test_g12_who_is_expelled_has_lost_what_it_had_and_joins_again_with_epoch_0(code: ErrorCode) -> None:
    rig, heard = member(A)
    rig.wait(1.0)
    rig.beat(0, code=code, target=False)
    assert not rig.raised(), "the user hears that its partitions are lost"
    assert rig.core.state is State.OUT
    assert rig.core.holds_back
    assert rig.core.member.last == ConsumerGroupMetadata("g", 1, "me"), "its offsets are refused"
    assert rig.core.member.metadata == ConsumerGroupMetadata("g")
    rig.poll()
    assert not rig.asked(BEAT), "not before the user knows"
    rig.run_callback()
    assert heard.said == [("lost", [A])]
    rig.wait(0.2)
    said = rig.message(BEAT)
    assert (said.member_id, said.member_epoch, said.topic_partitions) == ("me", 0, ())


@pytest.mark.parametrize("taking", [False, True])
def test_g12_who_is_expelled_while_the_user_is_told_joins_again_when_the_user_knows(taking: bool) -> None:
    rig, heard = member(A)
    new_target(rig, 2, B)
    rig.poll()
    if taking:
        rig.run_callback()
        rig.poll()
    rig.wait(1.0)
    rig.beat(0, code=ErrorCode.UNKNOWN_MEMBER_ID, target=False)
    rig.run_callback()
    assert (rig.core.state, rig.core.member.in_generation) == (State.OUT, False)
    reconcile(rig)
    assert heard.said == [("revoked", [A])] + [("assigned", [B]), ("lost", [B])] * taking
    assert rig.core.state is State.JOINING


def test_g20_a_coordinator_that_has_this_member_in_a_later_epoch_is_told_that_it_leaves() -> None:
    """The answer that named the epoch was lost. The coordinator would refuse epoch 0 until the session is over."""
    rig, _ = joining()
    rig.beat(0, code=ErrorCode.FENCED_MEMBER_EPOCH, target=False)
    said = rig.message(BEAT)
    assert said.member_epoch == -1
    rig.wait(0.2)
    leaving, again = rig.asked(BEAT)
    assert isinstance(again.message, tuple)
    assert (again.message[2], rig.core.state) == (0, State.JOINING)
    rig.do(rig.core.answered, leaving.ticket, None)
    assert rig.core.state is State.JOINING


def test_g9_a_poll_that_comes_too_late_leaves_the_group_and_the_next_one_joins_again() -> None:
    rig, heard = member(A, config={"max.poll.interval.ms": 2_500})
    for _ in range(2):
        rig.wait(1.0)
        rig.beat(1, target=False)
    rig.wait(0.5)
    assert rig.message(BEAT).member_epoch == -1
    assert rig.core.state is State.LEAVING
    rig.answer(BEAT, None)
    rig.core.polled(rig.now_s)
    reconcile(rig)
    assert heard.said == [("lost", [A])]
    assert rig.message(BEAT).member_epoch == 0


@pytest.mark.parametrize(("instance", "epoch"), [(None, -1), ("i", -2)])
def test_g10_g15_who_closes_says_so_and_a_static_member_says_that_it_will_be_back(
    instance: str | None, epoch: int
) -> None:
    rig, heard = member(A, config={"group.instance.id": instance} if instance else {})
    rig.do(rig.core.close, "call", True)
    rig.run_callback()
    assert heard.said == [("revoked", [A])]
    said = rig.message(BEAT)
    assert (said.member_epoch, said.instance_id, said.topic_partitions) == (epoch, instance, None)
    rig.answer(BEAT, None)
    assert "call" in rig.finished


@pytest.mark.parametrize(("instance", "epochs"), [(None, []), ("i", [-2])])
def test_kip1092_who_stays_in_the_group_says_nothing_unless_it_is_static(
    instance: str | None, epochs: list[int]
) -> None:
    rig, _ = member(A, config={"group.instance.id": instance} if instance else {})
    rig.do(rig.core.close, "call", False)
    rig.run_callback()
    assert [ask.message[2] for ask in rig.asked(BEAT) if isinstance(ask.message, tuple)] == epochs
    rig.wait(5.0)
    assert "call" in rig.finished


def test_g10_a_coordinator_that_does_not_answer_does_not_hold_up_the_end() -> None:
    rig, _ = member(A)
    rig.do(rig.core.unsubscribe, "call")
    rig.run_callback()
    rig.wait(5.0)
    assert "call" in rig.finished


def test_who_leaves_takes_nothing_more() -> None:
    rig, heard = member(A)
    rig.do(rig.core.unsubscribe, "call")
    rig.wait(1.0)
    rig.beat(2, A, B)
    rig.run_callback()
    assert heard.said == [("revoked", [A])]
    assert rig.message(BEAT).member_epoch == -1


def test_an_answer_of_the_membership_before_changes_nothing() -> None:
    rig, _ = member(A)
    rig.wait(1.0)
    late = rig.take(BEAT)
    rig.do(rig.core.depart, "call")
    before = rig.core.state, rig.core.member.metadata
    rig.do(rig.core.failed, late.ticket, DisconnectedError("late"))
    assert (rig.core.state, rig.core.member.metadata) == before
    assert late.ticket in rig.given_up, "a late heartbeat with epoch 0 would bring back who has left"


# --- what is refused for good ---


def test_g21_a_classic_group_that_may_not_change_its_protocol_is_told_to_who_joins() -> None:
    """A member that is told so was expelled, and others have made the group anew: it joins, and then it knows."""
    rig, _ = joining()
    rig.beat(0, code=ErrorCode.GROUP_ID_NOT_FOUND, target=False)
    [error] = rig.raised()
    assert "group.consumer.migration.policy" in str(error)
    assert "choose another group.id" in str(error), "its members may be no consumers at all"


@pytest.mark.parametrize(
    ("code", "kind", "advice"),
    [
        (ErrorCode.UNRELEASED_INSTANCE_ID, UnreleasedInstanceIdError, "close it, or wait"),
        (ErrorCode.UNSUPPORTED_ASSIGNOR, UnsupportedAssignorError, "group.remote.assignor"),
        (ErrorCode.GROUP_MAX_SIZE_REACHED, GroupMaxSizeReachedError, "group.consumer.max.size"),
        (ErrorCode.INVALID_REQUEST, KafkaError, "does not accept"),
        (ErrorCode.INVALID_REGULAR_EXPRESSION, InvalidRegularExpressionError, "RE2"),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, KafkaError, "READ"),
        (ErrorCode.UNSUPPORTED_VERSION, UnsupportedVersionError, "group.protocol=classic"),
        (ErrorCode.UNKNOWN_SERVER_ERROR, KafkaError, "group g"),
    ],
)
def test_g20_what_is_refused_for_good_is_raised_with_what_to_do_and_the_next_poll_tries_again(
    code: ErrorCode, kind: type[ClientError], advice: str
) -> None:
    rig, heard = member(A)
    rig.wait(1.0)
    rig.beat(0, code=code, target=False)
    [error] = rig.raised()
    assert isinstance(error, kind)
    assert advice in str(error)
    assert rig.core.state is State.OUT
    reconcile(rig)
    assert heard.said == [("lost", [A])]
    assert rig.message(BEAT).member_epoch == 0


def test_g15_who_is_fenced_does_not_join_again() -> None:
    rig, heard = member(A, config={"group.instance.id": "i"})
    rig.wait(1.0)
    rig.beat(0, code=ErrorCode.FENCED_INSTANCE_ID, target=False)
    reconcile(rig)
    assert {type(error) for error in rig.raised()} == {FencedInstanceIdError}
    assert (heard.said, rig.core.state) == ([("lost", [A])], State.FENCED)
    rig.wait(10.0)
    rig.poll()
    assert not rig.asked(BEAT)
    assert [type(error) for error in rig.raised()] == [FencedInstanceIdError]


def test_g20_a_topic_that_must_not_be_seen_is_raised_and_the_member_stays() -> None:
    rig, heard = member(A)
    rig.wait(1.0)
    rig.beat(0, code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, target=False)
    assert len(rig.raised()) == 1
    rig.wait(0.2)
    rig.beat(1, target=False)
    assert (heard.said, rig.core.state) == ([], State.STABLE)


def test_g20_a_broker_without_the_protocol_is_said() -> None:
    rig, _ = joining()
    rig.fail(BEAT, UnsupportedVersionError("no version in common"))
    [error] = rig.raised()
    assert isinstance(error, UnsupportedVersionError)
    assert "group.protocol=classic" in str(error)


# --- commits ---


def test_g12_a_commit_of_the_epoch_before_is_sent_again_with_the_new_one() -> None:
    rig, _ = member(A)
    rig.state(A).seek(7)
    rig.do(rig.core.commit, "call", None, 5_000)
    new_target(rig, 2, A)
    rig.answer(ApiKey.OFFSET_COMMIT, commit_answer(ErrorCode.STALE_MEMBER_EPOCH))
    rig.wait(0.2)
    assert rig.message(ApiKey.OFFSET_COMMIT)[1] == 2
    rig.answer(ApiKey.OFFSET_COMMIT, commit_answer(ErrorCode.NONE))
    assert rig.finished["call"].error is None


def test_g12_a_commit_that_the_coordinator_calls_stale_first_makes_the_member_learn_its_epoch() -> None:
    rig, _ = member(A)
    rig.state(A).seek(7)
    rig.do(rig.core.commit, "call", None, 5_000)
    rig.answer(ApiKey.OFFSET_COMMIT, commit_answer(ErrorCode.STALE_MEMBER_EPOCH))
    rig.beat(2, target=False)
    rig.wait(0.2)
    assert rig.message(ApiKey.OFFSET_COMMIT)[1] == 2


def test_g12_a_single_attempt_of_the_epoch_before_fails() -> None:
    rig, _ = member(A)
    rig.state(A).seek(7)
    heard: list[Exception | None] = []
    rig.do(rig.core.commit_async, None, lambda offsets, error: heard.append(error))
    rig.answer(ApiKey.OFFSET_COMMIT, commit_answer(ErrorCode.STALE_MEMBER_EPOCH))
    rig.run_all_callbacks()
    assert [type(error) for error in heard] == [CommitFailedError]


def test_g12_a_commit_that_says_who_is_unknown_expels() -> None:
    rig, _ = member(A)
    rig.state(A).seek(7)
    rig.do(rig.core.commit, "call", None, 5_000)
    rig.answer(ApiKey.OFFSET_COMMIT, commit_answer(ErrorCode.UNKNOWN_MEMBER_ID))
    assert rig.core.state is State.OUT
    assert isinstance(rig.finished["call"].error, CommitFailedError)


def test_g20_committed_offsets_are_looked_up_as_the_member_that_it_is() -> None:
    rig, _ = member(A)
    [group] = rig.message(ApiKey.OFFSET_FETCH).groups
    assert (group.member_id, group.member_epoch) == ("me", 1)


def test_partitions_by_hand_are_nobody_s() -> None:
    rig = Rig(GROUP)
    rig.assign(A)
    [group] = rig.message(ApiKey.OFFSET_FETCH).groups
    assert (group.member_id, group.member_epoch) == (None, -1)
    rig.state(A).seek(7)
    rig.do(rig.core.commit, "call", None, 5_000)
    assert rig.message(ApiKey.OFFSET_COMMIT)[1:3] == (-1, "")
    assert not rig.asked(BEAT)
