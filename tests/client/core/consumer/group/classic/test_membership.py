"""SPEC G3–G15: a member of a classic group, event by event, on the whole core."""

import re
from collections.abc import Mapping

import pytest

from ottla.assign import Assignment, Cluster, RangeAssignor, Subscription
from ottla.base.types import TopicPartition
from ottla.client.core.consumer.era import Call
from ottla.client.core.consumer.group.classic.group_protocol import encode_one
from ottla.client.core.consumer.group.classic.states import State
from ottla.client.core.intents import Channel, Coordinator
from ottla.client.errors import AssignorError, DisconnectedError, FencedInstanceIdError, KafkaError
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.heartbeat import HeartbeatResponse
from ottla.wire.messages.join_group import JoinGroupResponse
from ottla.wire.messages.leave_group import LeaveGroupResponse
from tests.client.core.consumer.group.classic.members import GROUP, A, B, beat, member
from tests.client.core.consumer.rig import Rig, snapshot

# --- joining ---


def test_g3_a_member_id_that_is_given_is_taken_at_once() -> None:
    rig = Rig(GROUP)
    rig.subscribe("t")
    rig.poll()
    rig.answer(ApiKey.JOIN_GROUP, JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id="given"))
    assert rig.message(ApiKey.JOIN_GROUP).member_id == "given"


def test_g4_the_leader_divides_by_fresh_metadata() -> None:
    rig = Rig(GROUP, known=snapshot(t=1))
    rig.subscribe("t")
    rig.poll()
    rig.join(1, leader=True)
    assert rig.core.state is State.LEADING
    rig.learn(snapshot(t=2))
    rig.refresh(Call.LEAD)
    [given] = rig.message(ApiKey.SYNC_GROUP).assignments
    assert given.assignment == encode_one(Assignment((A, B)))


def test_joins_and_syncs_go_their_own_way_so_that_nothing_waits_behind_them() -> None:
    rig = Rig(GROUP)
    rig.subscribe("t")
    rig.poll()
    [join] = rig.asked(ApiKey.JOIN_GROUP)
    assert isinstance(join.to, Coordinator)
    assert join.to.channel is Channel.JOIN


@pytest.mark.parametrize(
    "code",
    [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE],
)
def test_g1_a_coordinator_that_is_not_there_is_asked_again_after_a_pause(code: ErrorCode) -> None:
    rig = Rig(GROUP)
    rig.subscribe("t")
    rig.poll()
    rig.refuse(ApiKey.JOIN_GROUP, code, JoinGroupResponse)
    assert not rig.asked(ApiKey.JOIN_GROUP)
    rig.wait(1)
    assert rig.asked(ApiKey.JOIN_GROUP)


def test_what_is_refused_for_good_is_raised_and_the_next_poll_joins_again() -> None:
    rig = Rig(GROUP)
    rig.subscribe("t")
    rig.poll()
    rig.refuse(ApiKey.JOIN_GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED, JoinGroupResponse)
    [error] = rig.raised()
    assert isinstance(error, KafkaError)
    assert (error.code, rig.core.state) == (ErrorCode.GROUP_AUTHORIZATION_FAILED, State.OUT)
    rig.poll()
    assert rig.asked(ApiKey.JOIN_GROUP)


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, r"\(range, cooperative-sticky\): set partition.assignment.strategy"),
        (ErrorCode.INVALID_SESSION_TIMEOUT, "session.timeout.ms is 45000 and has to lie between"),
        (ErrorCode.GROUP_MAX_SIZE_REACHED, "group.max.size"),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, "READ"),
        (ErrorCode.INVALID_GROUP_ID, "choose another"),
        (ErrorCode.FENCED_INSTANCE_ID, "an id of its own"),
        (ErrorCode.UNKNOWN_SERVER_ERROR, "larger than its message.max.bytes"),
        (ErrorCode.INVALID_REQUEST, "group g$"),
    ],
)
def test_what_is_refused_for_good_says_what_to_do(code: ErrorCode, advice: str) -> None:
    rig = Rig(GROUP)
    rig.subscribe("t")
    rig.poll()
    rig.refuse(ApiKey.JOIN_GROUP, code, JoinGroupResponse)
    [error] = rig.raised()
    assert re.search(advice, str(error))


def test_a_sync_without_an_answer_is_another_join_of_the_same_member() -> None:
    rig = Rig(GROUP)
    rig.subscribe("t")
    rig.poll()
    rig.join(1)
    rig.fail(ApiKey.SYNC_GROUP, DisconnectedError("gone"))
    rig.wait(1)
    assert rig.message(ApiKey.JOIN_GROUP).member_id == "me"


# --- giving up and taking ---


def test_g13_an_eager_member_gives_everything_up_before_it_joins() -> None:
    rig, heard = member()
    beat(rig, ErrorCode.REBALANCE_IN_PROGRESS)
    assert rig.core.state is State.STABLE, "a rebalance begins in poll"
    rig.poll()
    assert not rig.asked(ApiKey.JOIN_GROUP), "not before the user knows"
    rig.run_callback()
    assert heard.said == [("revoked", [A])]
    assert rig.asked(ApiKey.JOIN_GROUP)
    assert rig.core.positions.assignment == frozenset()


def test_g14_a_cooperative_member_keeps_what_it_has_and_yields_what_goes() -> None:
    rig, heard = member(cooperative=True)
    beat(rig, ErrorCode.REBALANCE_IN_PROGRESS)
    rig.poll()
    assert rig.core.positions.assignment == {A}
    rig.join(2)
    rig.sync(B)
    assert rig.core.positions.assignment == {A}, "it changes in poll alone"
    rig.poll()
    rig.run_callback()
    rig.poll()
    rig.run_callback()
    assert heard.said == [("revoked", [A]), ("assigned", [B])]
    rig.poll()
    assert rig.asked(ApiKey.JOIN_GROUP), "others wait for what was given up"


def test_what_a_callback_raises_is_raised_by_poll_and_the_rebalance_goes_on() -> None:
    rig, _ = member()
    beat(rig, ErrorCode.REBALANCE_IN_PROGRESS)
    rig.poll()
    rig.run_callback(RuntimeError("mine"))
    assert [str(error) for error in rig.raised()] == ["mine"]
    assert rig.asked(ApiKey.JOIN_GROUP)


def test_partitions_of_topics_that_are_not_wanted_any_more_are_not_taken() -> None:
    rig = Rig({**GROUP, "group.instance.id": "i"}, known=snapshot(t=1, u=1))
    rig.subscribe("t")
    rig.become_stable(A, TopicPartition("u", 0))
    assert rig.core.positions.assignment == {A}


# --- heartbeats and polls ---


def test_a_new_generation_is_asked_often_at_first() -> None:
    rig, _ = member()
    begun_s = rig.now_s
    sent: list[float] = []
    for _ in range(4):
        while not rig.asked(ApiKey.HEARTBEAT):
            rig.wait(0.01)
        sent.append(round(rig.now_s - begun_s, 2))
        rig.answer(ApiKey.HEARTBEAT, HeartbeatResponse())
    assert sent == pytest.approx([0.05, 0.15, 0.35, 0.75], abs=0.05)


def test_g9_who_does_not_poll_in_time_leaves_and_is_told_once() -> None:
    rig, heard = member(config={"max.poll.interval.ms": 10_000})
    rig.wait(11)
    assert rig.message(ApiKey.LEAVE_GROUP).members[0].member_id == "me"
    rig.answer(ApiKey.LEAVE_GROUP, LeaveGroupResponse())
    took_ms = rig.core.polled(rig.now_s)
    assert took_ms is not None
    assert took_ms >= 10_000
    assert rig.core.polled(rig.now_s) is None
    rig.poll()
    rig.run_callback()
    assert heard.said == [("lost", [A])]


def test_who_waits_in_poll_polls_in_time() -> None:
    rig, _ = member(config={"max.poll.interval.ms": 10_000})
    rig.core.watch.in_poll = True
    rig.wait(60)
    assert not rig.asked(ApiKey.LEAVE_GROUP)


def test_g15_who_is_fenced_says_so_at_every_poll_and_does_not_take_the_id_back() -> None:
    rig, heard = member(config={"group.instance.id": "i"})
    beat(rig, ErrorCode.FENCED_INSTANCE_ID)
    for _ in range(2):
        assert [type(error) for error in rig.raised()] == [FencedInstanceIdError]
        rig.poll()
        rig.run_all_callbacks()
    assert heard.said == [("lost", [A])]
    assert not rig.asked(ApiKey.JOIN_GROUP)


# --- leaving ---


@pytest.mark.parametrize("static", [False, True])
def test_g10_close_gives_back_and_leaves_unless_the_member_is_static(static: bool) -> None:
    rig, heard = member(config={"group.instance.id": "i"} if static else {})
    rig.do(rig.core.close, "call", True)
    rig.run_callback()
    assert heard.said == [("revoked", [A])]
    assert bool(rig.asked(ApiKey.LEAVE_GROUP)) is not static
    if not static:
        rig.answer(ApiKey.LEAVE_GROUP, LeaveGroupResponse())
    assert rig.finished["call"].error is None


def test_g10_close_does_not_wait_for_a_coordinator_that_is_silent() -> None:
    rig, _ = member()
    rig.do(rig.core.close, "call", True)
    rig.run_callback()
    assert "call" not in rig.finished
    rig.wait(6)
    assert "call" in rig.finished


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID])
def test_g10_whatever_a_heartbeat_is_answered_meanwhile_close_ends(code: ErrorCode) -> None:
    rig, _ = member()
    rig.wait(3.1)
    rig.do(rig.core.close, "call", True)
    rig.refuse(ApiKey.HEARTBEAT, code, HeartbeatResponse)
    rig.run_all_callbacks()
    rig.wait(6)
    assert "call" in rig.finished


def test_what_a_callback_raises_in_close_is_raised_there() -> None:
    rig, _ = member()
    rig.do(rig.core.close, "call", True)
    rig.run_callback(RuntimeError("mine"))
    rig.answer(ApiKey.LEAVE_GROUP, LeaveGroupResponse())
    assert str(rig.finished["call"].error) == "mine"


def test_a_client_that_nobody_closed_leaves_without_a_word_to_the_user() -> None:
    rig, heard = member()
    rig.do(rig.core.depart, "call")
    rig.answer(ApiKey.LEAVE_GROUP, LeaveGroupResponse())
    assert ("call" in rig.finished, heard.said) == (True, [])


# --- assignors: suspicion 2 of issue 8 ---


class Broken(RangeAssignor):
    """Raises in `where`, once."""

    def __init__(self, where: str, fault: BaseException) -> None:
        self._where: str | None = where
        self._fault = fault

    def _come_to(self, where: str) -> None:
        if where == self._where:
            self._where = None
            raise self._fault

    def subscription_user_data(self, topics: frozenset[str]) -> bytes | None:
        self._come_to("subscription_user_data")
        return None

    def assign(self, cluster: Cluster, subscriptions: Mapping[str, Subscription]) -> dict[str, Assignment]:
        self._come_to("assign")
        return super().assign(cluster, subscriptions)

    def on_assignment(self, assignment: Assignment, generation_id: int) -> None:
        self._come_to("on_assignment")


@pytest.mark.parametrize("instance", [{}, {"group.instance.id": "i"}], ids=["dynamic", "static"])
@pytest.mark.parametrize("fault", [KeyError("k"), SystemExit(3), KeyboardInterrupt()], ids=repr)
@pytest.mark.parametrize("where", ["subscription_user_data", "assign"])
def test_a7_an_assignor_that_raises_is_told_and_the_group_goes_on_without_its_member(
    where: str, fault: BaseException, instance: dict[str, object]
) -> None:
    rig = Rig({**GROUP, **instance}, strategy=[Broken(where, fault)])
    rig.subscribe("t")
    rig.poll()
    if where != "subscription_user_data":
        rig.join(1, leader=True)
        rig.refresh(Call.LEAD)
    [error] = rig.raised()
    assert isinstance(error, AssignorError)
    assert error.__cause__ is fault
    if where != "subscription_user_data":  # which was before it had an id
        assert rig.message(ApiKey.LEAVE_GROUP).members[0].group_instance_id == instance.get("group.instance.id")
        rig.answer(ApiKey.LEAVE_GROUP, LeaveGroupResponse())
    rig.become_stable(A, generation=2)
    assert rig.core.positions.assignment == {A}


@pytest.mark.parametrize("fault", [KeyError("k"), SystemExit(3), KeyboardInterrupt()], ids=repr)
def test_a7_an_on_assignment_that_raises_is_told_and_its_member_keeps_what_it_got(fault: BaseException) -> None:
    """As in Java. It left the group, and joined again, as often as its assignor failed; others moved with it."""
    rig = Rig(GROUP, strategy=[Broken("on_assignment", fault)])
    rig.subscribe("t")
    rig.poll()
    rig.join(1, leader=True)
    rig.refresh(Call.LEAD)
    rig.sync(A)
    [error] = rig.raised()
    assert isinstance(error, AssignorError)
    assert error.__cause__ is fault
    rig.poll()
    assert rig.core.positions.assignment == {A}
    assert not rig.asked(ApiKey.LEAVE_GROUP)


def test_g11_a_joingroup_does_not_leave_behind_the_end_of_the_membership_that_it_was_for() -> None:
    rig = Rig(GROUP)
    rig.subscribe("t")
    rig.poll()
    [ask] = rig.asked(ApiKey.JOIN_GROUP)
    rig.do(rig.core.unsubscribe, "call")
    assert rig.finished["call"].error is None
    assert rig.given_up == [ask.ticket]


def test_g11_a_syncgroup_of_a_generation_that_went_on_without_the_member_is_given_up() -> None:
    rig = Rig(GROUP)
    rig.subscribe("t")
    rig.poll()
    rig.join(1)
    [ask] = rig.asked(ApiKey.SYNC_GROUP)
    rig.wait(0.06)
    rig.refuse(ApiKey.HEARTBEAT, ErrorCode.UNKNOWN_MEMBER_ID, HeartbeatResponse)
    assert rig.given_up == [ask.ticket]


def test_g10_a_leavegroup_that_nobody_waits_for_does_not_come_behind_the_next_joingroup() -> None:
    rig = Rig(GROUP)
    rig.subscribe("t")
    rig.become_stable(A)
    rig.do(rig.core.unsubscribe, "call")
    [ask] = rig.asked(ApiKey.LEAVE_GROUP)
    rig.wait(6)
    assert rig.finished["call"].error is None
    rig.do(rig.core.unsubscribed)
    rig.subscribe("t")
    rig.poll()
    assert rig.asked(ApiKey.JOIN_GROUP)
    assert rig.given_up == [ask.ticket]


def test_c3_a_subscribed_topic_that_this_user_may_not_see_is_told_once() -> None:
    """As a topic without partitions it would be waited for in silence."""
    rig = Rig(GROUP, known=snapshot(t=1))
    rig.subscribe("t", "secret")
    refused = snapshot(t=1)._replace(topic_errors={"secret": ErrorCode.TOPIC_AUTHORIZATION_FAILED})
    for _ in range(2):
        rig.learn(refused)
    assert [str(error) for error in rig.raised()] == ["TOPIC_AUTHORIZATION_FAILED: topic secret"]
    rig.learn(refused)
    assert not rig.raised()
    rig.learn(snapshot(t=1)._replace(topic_errors={"secret": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}))
    assert not rig.raised(), "it may be made yet"
