"""SPEC G20: a member of a group of the consumer protocol (KIP-848), event by event, on the whole core."""

import pytest

from ottla.base.types import TopicPartition
from ottla.client.core.consumer.group.consumer.states import State
from ottla.client.core.consumer.subscription import SubscriptionPattern
from ottla.client.core.intents import LearnTopics
from ottla.client.errors import (
    DisconnectedError,
    UnsupportedVersionError,
)
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from tests.client.core.consumer.group.consumer.members import (
    BEAT,
    GROUP,
    A,
    B,
    C,
    commit_answer,
    joining,
    member,
    new_target,
    reconcile,
)
from tests.client.core.consumer.heard import Heard
from tests.client.core.consumer.rig import Rig, snapshot, topic_id

# --- joining ---


def test_g20_the_first_heartbeat_says_everything() -> None:
    rig, _ = joining({"client.rack": "r", "group.remote.assignor": "range", "max.poll.interval.ms": 7_000})
    [ask] = rig.asked(BEAT)
    said = rig.message(BEAT)
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
    assert not rig.asked(BEAT)
    rig.wait(0.1)
    said = rig.beat(1, target=False)
    assert (said.subscribed_topic_names, said.topic_partitions, said.rack_id) == (None, None, None)


def test_g20_a_short_pause_does_not_make_the_member_impatient() -> None:
    """A coordinator that names a fraction of a second may be busy: the answer is waited for as long as ever."""
    rig, _ = joining()
    assert rig.asked(BEAT)[0].timeout_ms == 15_000, "the usual pause, three times"
    rig.beat(1, A)
    reconcile(rig)
    assert rig.asked(BEAT)[0].timeout_ms == 5_000, "not three times one second"


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
    assert rig.message(BEAT).subscribed_topic_names == ("t", "u")


@pytest.mark.parametrize(
    "code",
    [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE],
)
def test_g1_a_coordinator_that_is_not_there_is_asked_again_after_a_pause_with_everything(code: ErrorCode) -> None:
    rig, _ = member(A)
    rig.wait(1.0)
    rig.beat(0, code=code, target=False)
    assert not rig.asked(BEAT)
    rig.wait(0.2)
    said = rig.message(BEAT)
    assert (said.member_epoch, said.subscribed_topic_names, len(said.topic_partitions)) == (1, ("t", "u"), 1)
    assert rig.core.positions.assignment == {A}


def test_g20_a_heartbeat_without_an_answer_is_sent_again_with_everything() -> None:
    rig, heard = member(A)
    rig.wait(1.0)
    rig.fail(BEAT, DisconnectedError("gone"))
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
    rig.answer(ApiKey.OFFSET_COMMIT, commit_answer(ErrorCode.NONE))
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


def test_g20_a_heartbeat_that_says_everything_names_what_the_user_may_take_over_before_it_arrives() -> None:
    rig, heard = member(A)
    new_target(rig, 2, A, B)
    rig.wait(1.0)
    rig.fail(BEAT, DisconnectedError("gone"))
    rig.wait(0.2)
    assert [each.partitions for each in rig.message(BEAT).topic_partitions] == [(0, 1)]
    reconcile(rig)
    assert heard.said == [("assigned", [B])], "while the coordinator could give B away, if that did not name it"


def test_g20_a_heartbeat_that_says_everything_names_what_the_user_takes_over_though_it_is_not_to_stay() -> None:
    rig, heard = member()
    new_target(rig, 2, B)
    rig.poll()
    assert rig.calls, "on_assigned runs, and takes its time"
    new_target(rig, 2, C)
    rig.wait(1.0)
    rig.fail(BEAT, DisconnectedError("gone"))
    rig.wait(0.2)
    said = {each.topic_id: each.partitions for each in rig.beat(2, C).topic_partitions}
    assert said == {topic_id("t"): (1,), topic_id("u"): (0,)}
    reconcile(rig)
    assert [each.partitions for each in rig.beat(2, target=False).topic_partitions] == [(1,)]
    reconcile(rig)
    assert heard.said == [("assigned", [B]), ("revoked", [B]), ("assigned", [C])]
    assert [each.topic_id for each in rig.beat(2, target=False).topic_partitions] == [topic_id("u")]


def test_g20_a_heartbeat_that_says_everything_names_topics_whose_names_are_not_known_yet() -> None:
    rig, heard = Rig(GROUP, known=snapshot(t=2)), Heard()
    heard.subscribe(rig, "t", "u")
    rig.poll()
    rig.beat(1, C)
    rig.wait(5.0)
    rig.fail(BEAT, DisconnectedError("gone"))
    rig.wait(0.2)
    assert [each.topic_id for each in rig.message(BEAT).topic_partitions] == [topic_id("u")]


def test_g20_who_joins_anew_names_nothing() -> None:
    rig, _ = member(A)
    new_target(rig, 2, A, B)
    rig.poll()
    rig.wait(1.0)
    rig.beat(0, code=ErrorCode.FENCED_MEMBER_EPOCH, target=False)
    reconcile(rig)
    rig.wait(1.0)
    said = rig.message(BEAT)
    assert (said.member_epoch, said.topic_partitions) == (0, ())


def test_g20_what_was_given_and_taken_back_before_the_user_polled_is_acknowledged() -> None:
    rig, _ = member(A)
    new_target(rig, 2, A, B)
    new_target(rig, 2, A)
    reconcile(rig)
    assert [each.partitions for each in rig.beat(2, target=False).topic_partitions] == [(0,)], "others wait for B"
    assert rig.core.state is State.STABLE


def test_g20_a_topic_that_is_taken_back_before_its_name_is_known_is_acknowledged() -> None:
    rig, heard = Rig(GROUP, known=snapshot(t=2)), Heard()
    heard.subscribe(rig, "t", "u")
    rig.poll()
    rig.beat(1, A, C)
    reconcile(rig)
    rig.beat(1, target=False)
    rig.wait(1.0)
    rig.beat(1, A)
    assert [each.topic_id for each in rig.beat(1, target=False).topic_partitions] == [topic_id("t")]
    assert rig.core.state is State.STABLE


def test_g20_a_topic_whose_name_is_not_known_yet_waits_for_metadata_and_the_rest_does_not() -> None:
    rig, heard = Rig(GROUP, known=snapshot(t=2)), Heard()
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
    rig, heard = Rig(GROUP, known=snapshot(t=2)), Heard()
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
    said = rig.message(BEAT)
    assert (said.subscribed_topic_names, said.topic_partitions) == (("u",), None)
    assert rig.core.positions.assignment == {A}, "the coordinator decides when it goes"


def test_g20_what_changes_while_a_heartbeat_is_on_its_way_is_said_by_the_next_one() -> None:
    rig, _ = member(A)
    rig.wait(1.0)
    rig.subscribe("u")
    assert len(rig.asked(BEAT)) == 1
    assert rig.beat(1, target=False).subscribed_topic_names is None
    assert rig.beat(1, target=False).subscribed_topic_names == ("u",)
    assert not rig.asked(BEAT)


def test_g20_the_broker_matches_a_subscription_pattern() -> None:
    rig = Rig(GROUP, known=snapshot())
    rig.core.subscription.subscribe(SubscriptionPattern("t.*"))
    rig.do(rig.core.subscribed)
    rig.poll()
    [ask] = rig.asked(BEAT)
    said = rig.beat(1, A)
    assert (said.subscribed_topic_names, said.subscribed_topic_regex, ask.least) == ((), "t.*", 1)
    assert LearnTopics(frozenset({topic_id("t")})) in rig.intended, "the client has no metadata of all topics"
    rig.learn(snapshot(t=2))
    reconcile(rig)
    assert rig.core.positions.assignment == {A}
    assert rig.core.topics == {"t"}
    rig.beat(1, target=False)
    rig.subscribe("u")
    said = rig.message(BEAT)
    assert (said.subscribed_topic_names, said.subscribed_topic_regex) == (("u",), "")


def test_a_static_member_says_that_it_has_no_pattern() -> None:
    """It may take the place of one that subscribed to a pattern, which the coordinator else keeps."""
    rig, _ = joining({"group.instance.id": "i"})
    [ask] = rig.asked(BEAT)
    said = rig.beat(1, A)
    assert (said.subscribed_topic_names, said.subscribed_topic_regex, ask.least) == (("t", "u"), "", 1)
    reconcile(rig)
    assert rig.beat(1, target=False).subscribed_topic_regex is None
    dynamic, _ = joining()
    assert dynamic.beat(1, A).subscribed_topic_regex is None


def test_a_static_member_says_nothing_of_patterns_to_a_broker_that_knows_none() -> None:
    rig, _ = joining({"group.instance.id": "i"})
    rig.fail(BEAT, UnsupportedVersionError("too old"))
    [ask] = rig.asked(BEAT)
    said = rig.beat(1, A)
    assert (said.subscribed_topic_names, said.subscribed_topic_regex, ask.least) == (("t", "u"), None, None)
    reconcile(rig)
    assert not rig.raised()
    rig.beat(1, target=False)
    rig.core.subscription.subscribe(SubscriptionPattern("t.*"))
    rig.do(rig.core.subscribed)
    rig.fail(BEAT, UnsupportedVersionError("too old"))
    [error] = rig.raised()
    assert isinstance(error, UnsupportedVersionError)


def test_partitions_of_topics_that_are_not_subscribed_any_more_rest_until_the_coordinator_takes_them_away() -> None:
    rig, _ = member(A, C)
    assert not rig.state(A).rests
    rig.subscribe("u")
    assert (rig.state(A).rests, rig.state(C).rests) == (True, False)
    rig.subscribe("t", "u")
    assert not rig.state(A).rests
    rig.beat(1, target=False)
    rig.subscribe("t")
    new_target(rig, 2, A, B, C)  # the coordinator has not heard of it, or thinks otherwise
    reconcile(rig)
    assert [rig.state(tp).rests for tp in (A, B, C)] == [False, False, True]
