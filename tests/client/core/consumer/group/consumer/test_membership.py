"""SPEC G20: a member of a group of the consumer protocol (KIP-848), event by event, on the whole core."""

from collections.abc import Mapping

import pytest

from ottla.base.types import TopicPartition
from ottla.client.core.consumer.group.consumer.states import State
from ottla.client.core.consumer.subscription import SubscriptionPattern
from ottla.client.core.intents import LearnTopics
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
from ottla.wire.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from tests.client.core.consumer.heard import Heard
from tests.client.core.consumer.rig import Rig, snapshot, topic_id

A, B, C = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
_GROUP: dict[str, object] = {"group.id": "g", "group.protocol": "consumer", "enable.auto.commit": False}
_BEAT = ApiKey.CONSUMER_GROUP_HEARTBEAT


def joining(config: Mapping[str, object] | None = None) -> tuple[Rig, Heard]:
    """A consumer that has asked to join."""
    rig, heard = Rig({**_GROUP, **(config or {})}, known=snapshot(t=2, u=1)), Heard()
    heard.subscribe(rig, "t", "u")
    rig.poll()
    return rig, heard


def member(*tps: TopicPartition, config: Mapping[str, object] | None = None) -> tuple[Rig, Heard]:
    """A stable member with these partitions; nothing is on its way."""
    rig, heard = joining(config)
    rig.beat(1, *tps)
    reconcile(rig)
    rig.beat(1, target=False)
    assert rig.core.state is State.STABLE
    heard.said.clear()
    return rig, heard


def reconcile(rig: Rig) -> None:
    """The user polls until all callbacks have run."""
    rig.poll()
    while rig.calls:
        rig.run_callback()
        rig.poll()


def new_target(rig: Rig, epoch: int, *tps: TopicPartition) -> None:
    """The next heartbeat brings it."""
    rig.wait(1.0)
    rig.beat(epoch, *tps)


# --- joining ---


def test_g20_the_first_heartbeat_says_everything() -> None:
    rig, _ = joining({"client.rack": "r", "group.remote.assignor": "range", "max.poll.interval.ms": 7_000})
    [ask] = rig.asked(_BEAT)
    said = rig.message(_BEAT)
    assert said.group_id == "g"
    assert (said.member_id, said.member_epoch, said.instance_id) == ("me", 0, None)
    assert (said.rack_id, said.server_assignor, said.rebalance_timeout_ms) == ("r", "range", 7_000)
    assert (said.subscribed_topic_names, said.subscribed_topic_regex) == (("t", "u"), None)
    assert said.topic_partitions == ()
    assert ask.least is None


def test_g20_what_the_coordinator_gives_is_taken_in_poll_and_acknowledged() -> None:
    rig, heard = joining()
    rig.beat(3, A, C)
    assert rig.core.positions.assignment == frozenset(), "it changes in poll alone"
    assert (rig.core.state, rig.core.holds_back) == (State.YIELDING, True)
    rig.poll()
    rig.run_callback()
    assert heard.said == [("assigned", [A, C])]
    assert (rig.core.state, rig.core.holds_back) == (State.ACKNOWLEDGING, False)
    said = rig.beat(3, target=False)
    assert said.member_epoch == 3
    assert [(each.topic_id, each.partitions) for each in said.topic_partitions] == [
        (topic_id("t"), (0,)),
        (topic_id("u"), (0,)),
    ]
    assert (said.subscribed_topic_names, said.rebalance_timeout_ms) == (None, -1), "only what has changed"
    assert rig.core.state is State.STABLE


def test_g20_heartbeats_follow_in_the_pauses_that_the_coordinator_names_and_say_nothing_new() -> None:
    rig, _ = member(A)
    rig.wait(0.9)
    assert not rig.asked(_BEAT)
    rig.wait(0.1)
    said = rig.beat(1, target=False)
    assert (said.subscribed_topic_names, said.topic_partitions, said.rack_id) == (None, None, None)


def test_g20_a_member_without_partitions_is_told_so_and_is_stable() -> None:
    rig, heard = joining()
    rig.beat(1)
    reconcile(rig)
    rig.beat(1, target=False)
    assert heard.said == [("assigned", [])]
    assert rig.core.state is State.STABLE


def test_g20_a_member_that_has_no_epoch_yet_asks_again_with_everything() -> None:
    rig, _ = joining()
    rig.beat(0, target=False)
    assert rig.core.state is State.JOINING
    rig.wait(5.0)
    assert rig.message(_BEAT).subscribed_topic_names == ("t", "u")


@pytest.mark.parametrize(
    "code",
    [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE],
)
def test_g1_a_coordinator_that_is_not_there_is_asked_again_after_a_pause_with_everything(code: ErrorCode) -> None:
    rig, _ = member(A)
    rig.wait(1.0)
    rig.beat(0, code=code, target=False)
    assert not rig.asked(_BEAT)
    rig.wait(0.2)
    said = rig.message(_BEAT)
    assert (said.member_epoch, said.subscribed_topic_names, len(said.topic_partitions)) == (1, ("t", "u"), 1)
    assert rig.core.positions.assignment == {A}


def test_g20_a_heartbeat_without_an_answer_is_sent_again_with_everything() -> None:
    rig, heard = member(A)
    rig.wait(1.0)
    rig.fail(_BEAT, DisconnectedError("gone"))
    rig.wait(0.2)
    said = rig.beat(2, target=False)
    assert (said.member_epoch, said.subscribed_topic_names) == (1, ("t", "u"))
    assert heard.said == []


# --- reconciling ---


def test_g20_what_goes_is_revoked_before_what_comes_is_assigned() -> None:
    rig, heard = member(A)
    new_target(rig, 2, B)
    assert rig.core.holds_back, "what goes must not be read on"
    rig.poll()
    assert rig.core.positions.assignment == {A}, "until the user knows"
    rig.run_callback()
    rig.poll()
    assert heard.said == [("revoked", [A])]
    rig.run_callback()
    assert heard.said == [("revoked", [A]), ("assigned", [B])]
    assert [each.partitions for each in rig.beat(2, target=False).topic_partitions] == [(1,)]
    assert rig.core.state is State.STABLE


def test_g20_positions_are_committed_before_partitions_go() -> None:
    rig, heard = member(A, config={"enable.auto.commit": True})
    rig.state(A).seek(7)
    new_target(rig, 2)
    rig.poll()
    [commit] = rig.asked(ApiKey.OFFSET_COMMIT)
    assert isinstance(commit.message, tuple)
    assert commit.message[1:3] == (2, "me")
    assert not rig.calls
    rig.answer(ApiKey.OFFSET_COMMIT, _commit_answer(ErrorCode.NONE))
    reconcile(rig)
    assert heard.said == [("revoked", [A]), ("assigned", [])]


def test_g20_what_stays_keeps_its_position() -> None:
    rig, _ = member(A)
    rig.state(A).seek(7)
    new_target(rig, 2, A, B)
    reconcile(rig)
    assert rig.state(A).position == 7
    assert rig.core.positions.assignment == {A, B}


def test_g20_the_same_target_again_changes_nothing() -> None:
    rig, heard = member(A)
    new_target(rig, 2, A)
    reconcile(rig)
    assert (heard.said, rig.core.state) == ([], State.STABLE)
    assert rig.core.member.generation_id == 2


def test_g20_a_newer_target_waits_until_the_user_knows_of_the_one_before() -> None:
    rig, heard = member(A)
    new_target(rig, 2, B)
    rig.poll()
    assert rig.calls, "on_revoked runs, and takes its time"
    new_target(rig, 3, A, B)
    rig.run_callback()
    reconcile(rig)
    assert heard.said == [("revoked", [A]), ("assigned", [B])]
    assert [each.partitions for each in rig.beat(3, target=False).topic_partitions] == [(1,)], "acknowledged first"
    reconcile(rig)
    assert heard.said[2:] == [("assigned", [A])]


def test_g20_a_target_that_is_outdated_before_it_has_begun_is_passed_over() -> None:
    rig, heard = member(A)
    new_target(rig, 2, B)
    new_target(rig, 3, A, B)
    reconcile(rig)
    assert heard.said == [("assigned", [B])]


def test_g20_a_topic_whose_name_is_not_known_yet_waits_for_metadata_and_the_rest_does_not() -> None:
    rig, heard = Rig(_GROUP, known=snapshot(t=2)), Heard()
    heard.subscribe(rig, "t", "u")
    rig.poll()
    rig.beat(1, A, C)
    reconcile(rig)
    assert heard.said == [("assigned", [A])]
    assert LearnTopics(frozenset({topic_id("u")})) in rig.intended
    rig.beat(1, target=False)
    assert rig.core.state is State.RESOLVING
    assert not rig.core.holds_back
    rig.intended.clear()
    rig.wait(0.5)
    assert LearnTopics(frozenset({topic_id("u")})) in rig.intended, "again: a broker may hear of a topic late"
    rig.learn(snapshot(t=2, u=1))
    reconcile(rig)
    assert heard.said[1:] == [("assigned", [C])]


def test_g20_a_target_of_unknown_topics_alone_is_waited_for() -> None:
    rig, heard = Rig(_GROUP, known=snapshot(t=2)), Heard()
    heard.subscribe(rig, "u")
    rig.poll()
    rig.beat(1, C)
    assert rig.core.state is State.RESOLVING
    reconcile(rig)
    assert heard.said == []
    rig.wait(1.0)
    rig.beat(2)  # the coordinator has thought better of it
    reconcile(rig)
    assert heard.said == [("assigned", [])]


def test_g20_a_topic_that_was_made_anew_has_other_partitions_of_the_same_name() -> None:
    rig, heard = member(A)
    rig.state(A).seek(7)
    known = snapshot(t=2)
    other = known.topics["t"]._replace(topic_id=b"2" * 16)
    rig.learn(known._replace(topics={"t": other}, names_by_id={b"2" * 16: "t", topic_id("u"): "t"}))
    rig.wait(1.0)
    rig.beat(2, TopicPartition("u", 0))  # an id that metadata now calls "t"
    reconcile(rig)
    assert heard.said == [("revoked", [A]), ("assigned", [A])]
    assert rig.state(A).position != 7, "what was read of the topic before says nothing about this one"


def test_a_callback_that_raises_is_raised_by_poll_and_the_member_goes_on() -> None:
    rig, _ = member(A)
    new_target(rig, 2, B)
    rig.poll()
    rig.run_callback(ValueError("mine"))
    assert [str(error) for error in rig.raised()] == ["mine"]
    reconcile(rig)
    assert rig.core.positions.assignment == {B}


# --- what the user wants ---


def test_g20_another_subscription_is_said_at_once() -> None:
    rig, _ = member(A)
    rig.subscribe("u")
    said = rig.message(_BEAT)
    assert (said.subscribed_topic_names, said.topic_partitions) == (("u",), None)
    assert rig.core.positions.assignment == {A}, "the coordinator decides when it goes"


def test_g20_what_changes_while_a_heartbeat_is_on_its_way_is_said_by_the_next_one() -> None:
    rig, _ = member(A)
    rig.wait(1.0)
    rig.subscribe("u")
    assert len(rig.asked(_BEAT)) == 1
    assert rig.beat(1, target=False).subscribed_topic_names is None
    assert rig.beat(1, target=False).subscribed_topic_names == ("u",)
    assert not rig.asked(_BEAT)


def test_g20_the_broker_matches_a_subscription_pattern() -> None:
    rig = Rig(_GROUP, known=snapshot())
    rig.core.subscription.subscribe(SubscriptionPattern("t.*"))
    rig.do(rig.core.subscribed)
    rig.poll()
    [ask] = rig.asked(_BEAT)
    said = rig.beat(1, A)
    assert (said.subscribed_topic_names, said.subscribed_topic_regex, ask.least) == ((), "t.*", 1)
    assert LearnTopics(frozenset({topic_id("t")})) in rig.intended, "the client has no metadata of all topics"
    rig.learn(snapshot(t=2))
    reconcile(rig)
    assert rig.core.positions.assignment == {A}
    rig.beat(1, target=False)
    rig.subscribe("u")
    said = rig.message(_BEAT)
    assert (said.subscribed_topic_names, said.subscribed_topic_regex) == (("u",), "")


# --- the end of a membership ---


@pytest.mark.parametrize("code", [ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID])
def test_g12_who_is_expelled_has_lost_what_it_had_and_joins_again_with_epoch_0(code: ErrorCode) -> None:
    rig, heard = member(A)
    rig.wait(1.0)
    rig.beat(0, code=code, target=False)
    assert rig.core.state is State.OUT
    assert rig.core.holds_back
    assert rig.core.member.last == ConsumerGroupMetadata("g", 1, "me"), "its offsets are refused"
    assert rig.core.member.metadata == ConsumerGroupMetadata("g")
    rig.poll()
    assert not rig.asked(_BEAT), "not before the user knows"
    rig.run_callback()
    assert heard.said == [("lost", [A])]
    rig.wait(0.2)
    said = rig.message(_BEAT)
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
    said = rig.message(_BEAT)
    assert said.member_epoch == -1
    rig.wait(0.2)
    leaving, again = rig.asked(_BEAT)
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
    assert rig.message(_BEAT).member_epoch == -1
    assert rig.core.state is State.LEAVING
    rig.answer(_BEAT, None)
    rig.core.polled(rig.now_s)
    reconcile(rig)
    assert heard.said == [("lost", [A])]
    assert rig.message(_BEAT).member_epoch == 0


@pytest.mark.parametrize(("instance", "epoch"), [(None, -1), ("i", -2)])
def test_g10_g15_who_closes_says_so_and_a_static_member_says_that_it_will_be_back(
    instance: str | None, epoch: int
) -> None:
    rig, heard = member(A, config={"group.instance.id": instance} if instance else {})
    rig.do(rig.core.close, "call", True)
    rig.run_callback()
    assert heard.said == [("revoked", [A])]
    said = rig.message(_BEAT)
    assert (said.member_epoch, said.instance_id, said.topic_partitions) == (epoch, instance, None)
    rig.answer(_BEAT, None)
    assert "call" in rig.finished


@pytest.mark.parametrize(("instance", "epochs"), [(None, []), ("i", [-2])])
def test_kip1092_who_stays_in_the_group_says_nothing_unless_it_is_static(
    instance: str | None, epochs: list[int]
) -> None:
    rig, _ = member(A, config={"group.instance.id": instance} if instance else {})
    rig.do(rig.core.close, "call", False)
    rig.run_callback()
    assert [ask.message[2] for ask in rig.asked(_BEAT) if isinstance(ask.message, tuple)] == epochs
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
    assert rig.message(_BEAT).member_epoch == -1


def test_an_answer_of_the_membership_before_changes_nothing() -> None:
    rig, _ = member(A)
    rig.wait(1.0)
    late = rig.take(_BEAT)
    rig.do(rig.core.depart, "call")
    before = rig.core.state, rig.core.member.metadata
    rig.do(rig.core.failed, late.ticket, DisconnectedError("late"))
    assert (rig.core.state, rig.core.member.metadata) == before
    assert late.ticket in rig.given_up, "a late heartbeat with epoch 0 would bring back who has left"


# --- what is refused for good ---


@pytest.mark.parametrize(
    ("code", "kind", "advice"),
    [
        (ErrorCode.UNRELEASED_INSTANCE_ID, UnreleasedInstanceIdError, "close it, or wait"),
        (ErrorCode.UNSUPPORTED_ASSIGNOR, UnsupportedAssignorError, "group.remote.assignor"),
        (ErrorCode.GROUP_MAX_SIZE_REACHED, GroupMaxSizeReachedError, "group.consumer.max.size"),
        (ErrorCode.INVALID_REQUEST, KafkaError, "does not accept"),
        (ErrorCode.INVALID_REGULAR_EXPRESSION, InvalidRegularExpressionError, "RE2"),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, KafkaError, "READ"),
        (ErrorCode.GROUP_ID_NOT_FOUND, KafkaError, "group.consumer.migration.policy"),
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
    assert rig.message(_BEAT).member_epoch == 0


def test_g15_who_is_fenced_does_not_join_again() -> None:
    rig, heard = member(A, config={"group.instance.id": "i"})
    rig.wait(1.0)
    rig.beat(0, code=ErrorCode.FENCED_INSTANCE_ID, target=False)
    reconcile(rig)
    assert {type(error) for error in rig.raised()} == {FencedInstanceIdError}
    assert (heard.said, rig.core.state) == ([("lost", [A])], State.FENCED)
    rig.wait(10.0)
    rig.poll()
    assert not rig.asked(_BEAT)
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
    rig.fail(_BEAT, UnsupportedVersionError("no version in common"))
    [error] = rig.raised()
    assert isinstance(error, UnsupportedVersionError)
    assert "group.protocol=classic" in str(error)


# --- commits ---


def _commit_answer(code: ErrorCode) -> OffsetCommitResponse:
    part = OffsetCommitResponsePartition(0, code)
    return OffsetCommitResponse(topics=(OffsetCommitResponseTopic(name="t", partitions=(part,)),))


def test_g12_a_commit_of_the_epoch_before_is_sent_again_with_the_new_one() -> None:
    rig, _ = member(A)
    rig.state(A).seek(7)
    rig.do(rig.core.commit, "call", None, 5_000)
    new_target(rig, 2, A)
    rig.answer(ApiKey.OFFSET_COMMIT, _commit_answer(ErrorCode.STALE_MEMBER_EPOCH))
    rig.wait(0.2)
    assert rig.message(ApiKey.OFFSET_COMMIT)[1] == 2
    rig.answer(ApiKey.OFFSET_COMMIT, _commit_answer(ErrorCode.NONE))
    assert rig.finished["call"].error is None


def test_g12_a_commit_that_the_coordinator_calls_stale_first_makes_the_member_learn_its_epoch() -> None:
    rig, _ = member(A)
    rig.state(A).seek(7)
    rig.do(rig.core.commit, "call", None, 5_000)
    rig.answer(ApiKey.OFFSET_COMMIT, _commit_answer(ErrorCode.STALE_MEMBER_EPOCH))
    rig.beat(2, target=False)
    rig.wait(0.2)
    assert rig.message(ApiKey.OFFSET_COMMIT)[1] == 2


def test_g12_a_single_attempt_of_the_epoch_before_fails() -> None:
    rig, _ = member(A)
    rig.state(A).seek(7)
    heard: list[Exception | None] = []
    rig.do(rig.core.commit_async, None, lambda offsets, error: heard.append(error))
    rig.answer(ApiKey.OFFSET_COMMIT, _commit_answer(ErrorCode.STALE_MEMBER_EPOCH))
    rig.run_all_callbacks()
    assert [type(error) for error in heard] == [CommitFailedError]


def test_g12_a_commit_that_says_who_is_unknown_expels() -> None:
    rig, _ = member(A)
    rig.state(A).seek(7)
    rig.do(rig.core.commit, "call", None, 5_000)
    rig.answer(ApiKey.OFFSET_COMMIT, _commit_answer(ErrorCode.UNKNOWN_MEMBER_ID))
    assert rig.core.state is State.OUT
    assert isinstance(rig.finished["call"].error, CommitFailedError)


def test_g20_committed_offsets_are_looked_up_as_the_member_that_it_is() -> None:
    rig, _ = member(A)
    [group] = rig.message(ApiKey.OFFSET_FETCH).groups
    assert (group.member_id, group.member_epoch) == ("me", 1)


def test_partitions_by_hand_are_nobody_s() -> None:
    rig = Rig(_GROUP)
    rig.assign(A)
    [group] = rig.message(ApiKey.OFFSET_FETCH).groups
    assert (group.member_id, group.member_epoch) == (None, -1)
    rig.state(A).seek(7)
    rig.do(rig.core.commit, "call", None, 5_000)
    assert rig.message(ApiKey.OFFSET_COMMIT)[1:3] == (-1, "")
    assert not rig.asked(_BEAT)
