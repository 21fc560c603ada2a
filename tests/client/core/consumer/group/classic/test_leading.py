"""The leader and partition counts (SPEC G11, G15): partitions that are added, and those that nobody has."""

from collections.abc import Mapping

import pytest

from ottla.assign import Assignment, Assignor, Cluster, CooperativeStickyAssignor, RangeAssignor, Subscription
from ottla.base.limits import MAX_INLINE_DIVISION
from ottla.base.types import TopicPartition
from ottla.client.core.consumer.era import Call
from ottla.client.core.consumer.group.classic.group_protocol import encode_one, read_assignment, subscription_protocols
from ottla.client.core.consumer.group.classic.states import State
from ottla.client.errors import AssignorError
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.describe_groups import DescribedGroup, DescribedGroupMember, DescribeGroupsResponse
from ottla.wire.messages.heartbeat import HeartbeatResponse
from ottla.wire.messages.join_group import JoinGroupResponseMember
from tests.client.core.consumer.rig import Rig, partitions, snapshot

A = TopicPartition("t", 0)
_GROUP: dict[str, object] = {"group.id": "g", "enable.auto.commit": False, "max.poll.interval.ms": 300_000}


def described(*tps: TopicPartition, state: str = "Stable") -> DescribeGroupsResponse:
    """What the coordinator says that the group's members have."""
    one = DescribedGroupMember("m", member_assignment=encode_one(Assignment(tps)))
    return DescribeGroupsResponse(groups=(DescribedGroup(group_id="g", group_state=state, members=(one,)),))


def returned_leader(counted: int) -> Rig:
    """A static leader that came back; metadata knows `counted` partitions."""
    rig = Rig({**_GROUP, "group.instance.id": "i"}, known=snapshot(t=counted))
    rig.subscribe("t")
    rig.poll()
    rig.join(5, leader=True, skip=True)
    assert rig.message(ApiKey.SYNC_GROUP).assignments == ()
    rig.refresh(Call.LEAD)
    rig.sync(A)
    rig.poll()
    assert rig.core.state is State.STABLE
    return rig


def test_g11_a_leader_rejoins_when_partitions_are_added() -> None:
    rig = Rig(_GROUP, known=snapshot(t=1))
    rig.subscribe("t")
    rig.poll()
    rig.join(1, leader=True)
    rig.refresh(Call.LEAD)
    rig.sync(A)
    rig.poll()
    assert rig.core.rejoin_reason is None
    rig.learn(snapshot(t=2))
    assert rig.core.rejoin_reason == "topics have other partitions than were assigned"


def test_g15_a_static_leader_that_came_back_sees_partitions_that_are_added() -> None:
    rig = returned_leader(1)
    rig.answer(ApiKey.DESCRIBE_GROUPS, described(A))
    assert rig.core.rejoin_reason is None
    rig.learn(snapshot(t=2))
    assert rig.core.rejoin_reason is not None


def test_g15_a_static_leader_that_came_back_sees_partitions_that_were_added_while_it_was_away() -> None:
    rig = returned_leader(2)
    assert rig.core.rejoin_reason is None
    rig.answer(ApiKey.DESCRIBE_GROUPS, described(A))
    assert rig.core.rejoin_reason is not None


def test_g15_a_static_leader_that_came_back_sees_a_partition_that_nobody_has() -> None:
    """It died while the partition was on its way to another member (KIP-429), and has nothing to give up any more."""
    rig = returned_leader(2)
    rig.answer(ApiKey.DESCRIBE_GROUPS, described(TopicPartition("t", 1)))
    assert rig.core.rejoin_reason is not None


@pytest.mark.parametrize(
    "answer",
    [
        described(A, state="PreparingRebalance"),
        DescribeGroupsResponse(groups=(DescribedGroup(ErrorCode.GROUP_AUTHORIZATION_FAILED),)),
        DescribeGroupsResponse(),
        DescribeGroupsResponse(
            groups=(DescribedGroup(group_state="Stable", members=(DescribedGroupMember(member_assignment=b"\0"),)),)
        ),
    ],
    ids=["rebalancing", "refused", "nothing", "unreadable"],
)
def test_g15_what_the_coordinator_does_not_tell_a_returned_leader_it_takes_from_metadata(
    answer: DescribeGroupsResponse,
) -> None:
    rig = returned_leader(2)
    rig.answer(ApiKey.DESCRIBE_GROUPS, answer)
    assert rig.core.rejoin_reason is None
    rig.learn(snapshot(t=3))
    assert rig.core.rejoin_reason is not None


def test_a_follower_does_not_count_partitions() -> None:
    rig = Rig(_GROUP)
    rig.subscribe("t")
    rig.become_stable(A)
    rig.learn(snapshot(t=5))
    assert rig.core.rejoin_reason is None
    assert rig.core.positions.assignment == partitions("t", 0)


def leader_that_holds_back() -> Rig:
    """A cooperative leader beside a static member that owns both partitions: one is on its way to the leader."""
    rig = Rig({**_GROUP, "partition.assignment.strategy": "cooperative-sticky"}, known=snapshot(t=2))
    rig.subscribe("t")
    rig.poll()
    both = [TopicPartition("t", 0), TopicPartition("t", 1)]
    (said,) = subscription_protocols([CooperativeStickyAssignor()], frozenset({"t"}), both, 4, None)
    rig.join(5, leader=True, others=(JoinGroupResponseMember("static", "i", said.metadata),))
    rig.refresh(Call.LEAD)
    given = {a.member_id: read_assignment(a.assignment) for a in rig.message(ApiKey.SYNC_GROUP).assignments}
    assert given == {"me": Assignment(()), "static": Assignment((A,))}
    rig.sync()
    rig.poll()
    assert rig.core.state is State.STABLE
    return rig


def test_g15_a_partition_that_its_owner_never_gives_up_is_divided_again_after_the_rebalance_timeout() -> None:
    """The owner is static. It dies before it gives the partition up, comes back within its session, and gets what it
    was assigned: it has nothing to give up any more, and the group is not rebalanced for it."""
    rig = leader_that_holds_back()
    for _ in range(2):
        rig.wait(140)
        rig.poll()
        assert rig.core.rejoin_reason is None
    rig.wait(21)
    assert rig.core.rejoin_reason == "partitions were held back for a member, and it has not given them up"


def test_g15_the_leader_does_not_look_again_if_the_next_generation_came_in_time() -> None:
    rig = leader_that_holds_back()
    rig.wait(3)
    rig.answer(ApiKey.HEARTBEAT, HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
    rig.poll()
    rig.join(6, leader=True)
    rig.refresh(Call.LEAD)
    rig.sync(A, TopicPartition("t", 1))
    for _ in range(4):
        rig.poll()
        rig.wait(140)
    assert rig.core.rejoin_reason is None


class _Own(RangeAssignor):
    """A user's assignor: nobody knows how long it takes."""

    name = "own"


class _Fails(_Own):
    def assign(self, cluster: Cluster, subscriptions: Mapping[str, Subscription]) -> dict[str, Assignment]:
        raise ValueError("out of order")


def leading(assignor: Assignor, counted: int = 1) -> Rig:
    """A leader whose assignor has begun."""
    rig = Rig(_GROUP, known=snapshot(t=counted), strategy=[assignor])
    rig.works_later = True
    rig.subscribe("t")
    rig.poll()
    rig.join(1, leader=True)
    rig.refresh(Call.LEAD)
    return rig


def test_a7_a_users_assignor_works_beside_the_loop_and_heartbeats_go_on() -> None:
    rig = leading(_Own())
    (work,) = rig.works
    assert rig.core.state.name == "LEADING"
    assert not rig.asked(ApiKey.SYNC_GROUP)
    rig.wait(3.1)
    assert rig.asked(ApiKey.HEARTBEAT)
    rig.do(lambda _: rig.run(work))
    assert len(rig.message(ApiKey.SYNC_GROUP).assignments) == 1
    rig.sync(A)
    rig.poll()
    assert rig.core.state is State.STABLE


@pytest.mark.parametrize(("counted", "beside"), [(MAX_INLINE_DIVISION - 1, 0), (MAX_INLINE_DIVISION, 1)])
def test_a_large_group_is_divided_beside_the_loop(counted: int, beside: int) -> None:
    """The one member counts, too."""
    rig = leading(RangeAssignor(), counted)
    assert len(rig.works) == beside
    assert len(rig.asked(ApiKey.SYNC_GROUP)) == 1 - beside


def test_a7_an_assignor_that_fails_beside_the_loop_is_told_and_the_member_leaves() -> None:
    rig = leading(_Fails())
    rig.do(lambda _: rig.run(rig.works[0]))
    (error,) = rig.raised()
    assert isinstance(error, AssignorError)
    assert isinstance(error.__cause__, ValueError)
    assert rig.asked(ApiKey.LEAVE_GROUP)


@pytest.mark.parametrize("assignor", [_Own(), _Fails()])
def test_what_an_assignor_says_too_late_changes_nothing(assignor: Assignor) -> None:
    """The member was expelled meanwhile, and joins again."""
    rig = leading(assignor)
    rig.wait(3.1)
    rig.refuse(ApiKey.HEARTBEAT, ErrorCode.UNKNOWN_MEMBER_ID, HeartbeatResponse)
    before = rig.core.state.name
    assert before != "LEADING"
    rig.do(lambda _: rig.run(rig.works[0]))
    assert rig.core.state.name == before
    assert not rig.asked(ApiKey.SYNC_GROUP)
    assert not rig.raised()


def test_what_an_assignor_says_when_the_user_has_left_changes_nothing() -> None:
    rig = leading(_Own())
    rig.do(rig.core.depart, "call")
    rig.do(lambda _: rig.run(rig.works[0]))
    assert not rig.asked(ApiKey.SYNC_GROUP)
