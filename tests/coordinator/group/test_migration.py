"""G21: groups that change their kind while they have members, or are not allowed to.

What each request is answered is in the talks (`consumer/talks.py`), word for word as Apache Kafka's; here is what they
cannot see: policies, logs and failures.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from ottla.base.limits import MAX_REQUEST_ELEMENTS
from ottla.base.steps import result_of
from ottla.coordinator.group.classic.state import GroupState
from ottla.coordinator.group.config import GroupConfig
from ottla.coordinator.group.consumer.records import member_record
from ottla.coordinator.group.consumer.room import CLASSIC_JOIN, CLASSIC_SYNC, REVOKE
from ottla.coordinator.group.consumer.states import MemberState
from ottla.wire.consumer_group_records import ClassicMemberMetadata, ClassicProtocol
from ottla.wire.consumer_protocol import encode_assignment, encode_subscription
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.consumer_protocol_assignment import ConsumerProtocolAssignment, TopicPartition
from ottla.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from ottla.wire.messages.consumer_protocol_subscription import TopicPartition as OwnedTopic
from ottla.wire.messages.heartbeat import HeartbeatRequest
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.wire.messages.list_groups import ListedGroup
from ottla.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.coordinator.group.consumer.rig import CLIENT, CONFIG, GROUP, FakeMember, Metadata, Rig, by_pattern, settle

_CONFIG = replace(CONFIG, group_initial_rebalance_delay_ms=0)


def _join(
    rig: Rig,
    member_id: str = "",
    *,
    instance_id: str | None = None,
    owned: tuple[int, ...] = (),
    generation: int = -1,
    topics: tuple[str, ...] = ("words",),
    protocols: tuple[str, ...] = ("range",),
) -> int:
    token = rig.token()
    has = (OwnedTopic("words", owned),) if owned else ()
    metadata = encode_subscription(ConsumerProtocolSubscription(topics, None, has, generation))
    offered = tuple(JoinGroupRequestProtocol(name, metadata) for name in protocols)
    request = JoinGroupRequest(GROUP, 45_000, 60_000, member_id, instance_id, "consumer", offered)
    joining = rig.shard.join_group(token, request, CLIENT, rig.now_ms, unique_id=f"u{token}", member_id_required=False)
    rig.run(joining)
    rig.advance(0)  # the wait for the first members of a group is over
    return token


def _stable(rig: Rig, assignment: bytes | None = None) -> str:
    """A classic group of one member; its id."""
    member_id: str = rig.answers[_join(rig)].member_id
    if assignment is None:
        topics = (TopicPartition("words", (0, 1, 2, 3)),)
        assignment = encode_assignment(ConsumerProtocolAssignment(topics))
    given = (SyncGroupRequestAssignment(member_id, assignment),)
    token = rig.token()
    request = SyncGroupRequest(GROUP, 1, member_id, None, "consumer", "range", given)
    rig.run(rig.shard.sync_group(token, request, rig.now_ms))
    assert not rig.answers[token].error_code
    return member_id


def _beat(rig: Rig, member_id: str, generation: int) -> ErrorCode:
    token = rig.token()
    rig.run(rig.shard.heartbeat(token, HeartbeatRequest(GROUP, generation, member_id), rig.now_ms))
    return ErrorCode(rig.answers[token].error_code)


def _listed(rig: Rig) -> ListedGroup:
    ((group,),) = rig.shard.list_groups()
    return group


def _kind(rig: Rig) -> str:
    return _listed(rig).group_type


@pytest.mark.parametrize(
    ("config", "why"),
    [
        (replace(_CONFIG, upgrade=False), "online upgrade is disabled"),
        (replace(_CONFIG, consumer_max_size=0), "the group size exceeds the consumer group maximum size"),
    ],
)
def test_g21_an_upgrade_that_is_not_allowed(config: GroupConfig, why: str) -> None:
    rig = Rig(config=config)
    member_id = _stable(rig)
    answer = rig.join("m1")
    assert (answer.error_code, answer.error_message) == (
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"Cannot upgrade classic group {GROUP} to consumer group because {why}.",
    )
    assert (_kind(rig), _beat(rig, member_id, 1)) == ("classic", ErrorCode.NONE)


@pytest.mark.parametrize("assignment", [b"\0\0\xff", encode_assignment(ConsumerProtocolAssignment((), b"custom"))])
def test_an_upgrade_that_would_lose_something(assignment: bytes) -> None:
    rig = Rig(config=_CONFIG)
    _stable(rig, assignment)
    answer = rig.join("m1")
    assert answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert _kind(rig) == "classic"


def _divided(rig: Rig, *numbers: tuple[int, ...]) -> list[str]:
    """A stable classic group whose leader has given each member these partitions of `words`; the ids."""
    last = _join(rig)
    ids: list[str] = [rig.answers[last].member_id]
    for _ in numbers[1:]:
        joining = _join(rig)
        for each in ids:  # all others join again
            last = _join(rig, each)
        ids.append(rig.answers[joining].member_id)
    generation, leader = rig.answers[last].generation_id, rig.answers[last].leader
    given = tuple(
        SyncGroupRequestAssignment(
            each, encode_assignment(ConsumerProtocolAssignment((TopicPartition("words", has),) if has else ()))
        )
        for each, has in zip(ids, numbers, strict=True)
    )
    for each in sorted(ids, key=lambda each: each != leader):
        token = rig.token()
        said = given if each == leader else ()
        request = SyncGroupRequest(GROUP, generation, each, None, "consumer", "range", said)
        rig.run(rig.shard.sync_group(token, request, rig.now_ms))
        assert not rig.answers[token].error_code
    return ids


def test_g21_a_group_whose_assignor_gives_a_partition_to_several_members_cannot_be_upgraded() -> None:
    rig = Rig(config=_CONFIG)
    member_id, _ = _divided(rig, (0, 1, 2, 3), (3, 0))
    answer = rig.join("m1")
    assert (answer.error_code, answer.error_message) == (
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"Cannot upgrade classic group {GROUP} to consumer group because its assignor gives a partition to several "
        "members.",
    )
    assert (_kind(rig), _beat(rig, member_id, 2)) == ("classic", ErrorCode.NONE)


def test_g21_a_topic_that_was_made_again_with_fewer_partitions_is_divided_as_it_is_now() -> None:
    rig = Rig(Metadata(words=4, other=1), _CONFIG)
    member_id = _stable(rig)
    rig.metadata.delete("words")
    words = rig.metadata.make("words", 2)
    first = rig.joined("m1", "words", "other")
    assert rig.group.members[member_id].assigned == {words: {0: 1, 1: 1}}
    generation = rig.answers[_join(rig, member_id)].generation_id
    assert not _synced(rig, member_id, generation)
    settle(first)
    assert {number for has in rig.group.target.values() for number in has.get(words, ())} == {0, 1}


def test_g21_what_an_assignment_names_twice_counts_once_and_what_is_not_there_not_at_all() -> None:
    rig = Rig(config=_CONFIG)
    topics = (TopicPartition("words", (0, 3)), TopicPartition("words", (3, 1, -1, 4)), TopicPartition("gone", (0,)))
    member_id = _stable(rig, encode_assignment(ConsumerProtocolAssignment(topics)))
    rig.joined("m1")
    assert rig.group.members[member_id].assigned == {rig.metadata.id_of("words"): {0: 1, 1: 1, 3: 1}}


def test_g21_an_upgrade_while_a_member_has_dropped_the_assignor_of_the_last_generation() -> None:
    """A rolling restart from `range` to `sticky`: the group has not elected anew yet."""
    rig = Rig(config=_CONFIG)
    member_id = rig.answers[_join(rig, protocols=("range", "sticky"))].member_id
    waiting = _join(rig, protocols=("sticky",))
    assert waiting not in rig.answers
    assert not rig.join("m1").error_code
    assert rig.answers[waiting].error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert len(rig.group.members) == 3
    assert _kind(rig) == "consumer"
    assert rig.group.members[member_id].topic_names == {"words"}


def test_a_subscription_of_more_topics_than_a_request_may_name_is_not_read() -> None:
    """It comes as bytes, which the limit of a request does not see. To read it would keep others waiting."""
    many = tuple(f"t{number}" for number in range(MAX_REQUEST_ELEMENTS + 1))
    rig = Rig(config=_CONFIG)
    member_id = rig.answers[_join(rig, topics=many)].member_id
    group = rig.shard.group(GROUP)
    assert group is not None
    assert (group.subscribed_topics, list(group.members)) == (None, [member_id])
    answer = rig.join("m1")
    assert (answer.error_code, answer.error_message) == (
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"Cannot upgrade classic group {GROUP} to consumer group because a member's subscription or assignment has "
        f"more than {MAX_REQUEST_ELEMENTS} elements.",
    )
    assert _kind(rig) == "classic"
    other = Rig(config=_CONFIG)
    other.joined("m1")
    assert other.answers[_join(other, topics=many)].error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert list(other.group.members) == ["m1"]


def test_g21_a_group_that_was_upgraded_is_the_same_after_a_crash() -> None:
    rig = Rig(config=_CONFIG)
    member_id = _stable(rig)
    rig.joined("m1")
    before = result_of(rig.shard.describe_consumer_group(GROUP))
    rig.crash()
    assert result_of(rig.shard.describe_consumer_group(GROUP)) == before
    assert (_kind(rig), _beat(rig, member_id, 1)) == ("consumer", ErrorCode.REBALANCE_IN_PROGRESS)
    rig.advance(44_999)
    assert set(rig.group.members) == {member_id, "m1"}
    rig.advance(1)
    assert _listed(rig).group_state == "Empty"


def test_an_upgrade_whose_append_fails_leaves_the_classic_group() -> None:
    rig = Rig(config=_CONFIG)
    member_id = _stable(rig)
    rig.fail_with = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert rig.join("m1").error_code == ErrorCode.NOT_COORDINATOR
    assert (_kind(rig), _beat(rig, member_id, 1)) == ("classic", ErrorCode.NONE)
    assert not rig.join("m1").error_code
    assert _kind(rig) == "consumer"


def test_g21_a_join_that_waits_is_told_to_come_again() -> None:
    rig = Rig(config=_CONFIG)
    _stable(rig)
    waiting = _join(rig)  # a second member waits until the first has joined again
    assert waiting not in rig.answers
    rig.join("m1")
    assert rig.answers[waiting].error_code == ErrorCode.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize("missing", ["everything", "new partitions"])
def test_g21_a_static_member_takes_the_place_of_one_whose_group_had_not_divided_all_partitions(missing: str) -> None:
    """World 300004185 of broker-consumer-groups: nothing about its subscription is new, and there was no target."""
    rig = Rig(config=replace(_CONFIG, group_initial_rebalance_delay_ms=3_000))
    waiting = _join(rig, instance_id="i")
    rig.advance(3_000)
    member_id = rig.answers[waiting].member_id
    assignment = encode_assignment(ConsumerProtocolAssignment((TopicPartition("words", (0, 1, 2, 3)),)))
    given = (SyncGroupRequestAssignment(member_id, assignment),)
    request = SyncGroupRequest(GROUP, 1, member_id, "i", "consumer", "range", given)
    rig.run(rig.shard.sync_group(rig.token(), request, rig.now_ms))
    if missing == "new partitions":
        rig.metadata.make("words", 6)
    else:
        leaving = LeaveGroupRequest(GROUP, (MemberIdentity("", "i"),))
        rig.run(rig.shard.leave_group(rig.token(), leaving, rig.now_ms))
        waiting = _join(rig, instance_id="i")
    member = rig.joined("m1", instance_id="i")
    settle(member)
    assert sorted(member.owned.values()) == [tuple(range(rig.metadata.find("words").partitions))]  # type: ignore[union-attr]
    if missing == "everything":
        assert rig.answers[waiting].error_code == ErrorCode.REBALANCE_IN_PROGRESS


def _mixed(rig: Rig) -> tuple[FakeMember, str]:
    """A consumer group of `m1` and a member of the classic protocol; the latter's id."""
    first = rig.joined("m1")
    member_id: str = rig.answers[_join(rig)].member_id
    return first, member_id


def test_g21_an_assignor_that_a_member_names_twice_counts_once() -> None:
    rig = Rig(config=_CONFIG)
    first = rig.joined("m1")
    member_id = rig.answers[_join(rig, protocols=("y", "x", "x"))].member_id
    other_id = rig.answers[_join(rig, protocols=("y",))].member_id
    assert rig.answers[_join(rig, protocols=("x",))].error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    rig.crash()
    assert rig.group.classic_protocols == {"y": 2, "x": 1}
    first.leave()
    group = rig.shard.group(GROUP)
    assert group is not None
    assert set(group.members) == {member_id, other_id}


def test_g21_members_that_have_no_assignor_in_common_stay_a_consumer_group() -> None:
    """An earlier version let them in, so a log may have them: there is no classic group that they could be."""
    rig = Rig(config=_CONFIG)
    first, member_id = _mixed(rig)
    member = replace(rig.group.members[member_id], member_id="poison")
    classic = ClassicMemberMetadata(45_000, (ClassicProtocol("other", member.classic.supported_protocols[0].metadata),))  # type: ignore[union-attr]
    rig.log.append(member_record(GROUP, replace(member, assigned={}, revoking={}, classic=classic)))
    rig.crash()
    first.leave()
    assert (_kind(rig), set(rig.group.members)) == ("consumer", {member_id, "poison"})
    rig.advance(90_000)
    assert _listed(rig).group_state == "Empty"


def test_g21_the_last_member_of_the_consumer_protocol_leaves() -> None:
    rig = Rig(config=_CONFIG)
    _, member_id = _mixed(rig)
    rig.advance(44_999)
    _beat(rig, member_id, 3)
    rig.advance(1)  # m1 is silent
    assert _kind(rig) == "classic"
    group = rig.shard.group(GROUP)
    assert group is not None
    assert (group.state, group.generation, list(group.members)) == (GroupState.PREPARING_REBALANCE, 3, [member_id])
    assert _beat(rig, member_id, 3) is ErrorCode.REBALANCE_IN_PROGRESS
    rig.crash()
    assert _kind(rig) == "classic"
    assert rig.answers[_join(rig, member_id)].generation_id == 4


def test_g21_a_downgrade_that_is_not_allowed() -> None:
    rig = Rig(config=replace(_CONFIG, downgrade=False))
    _, member_id = _mixed(rig)
    token = rig.token()
    rig.run(rig.shard.leave_group(token, LeaveGroupRequest(GROUP, (MemberIdentity("m1"),)), rig.now_ms))
    assert rig.answers[token].members[0].error_code == ErrorCode.NONE
    assert (_kind(rig), list(rig.group.members)) == ("consumer", [member_id])


def test_g21_who_stays_where_no_downgrade_is_allowed_gets_what_the_others_had() -> None:
    """Nobody is left who would compute a target at a heartbeat: the members that stay have to join again for it."""
    rig = Rig(config=replace(_CONFIG, downgrade=False))
    first, member_id = _mixed(rig)
    while _listed(rig).group_state != "Stable":
        settle(first)
        generation = rig.answers[_join(rig, member_id)].generation_id
    assert not _synced(rig, member_id, generation)
    first.leave()
    assert _listed(rig).group_state == "Assigning"
    assert _beat(rig, member_id, generation) is ErrorCode.REBALANCE_IN_PROGRESS
    generation = rig.answers[_join(rig, member_id)].generation_id
    assert not _synced(rig, member_id, generation)
    assert (_beat(rig, member_id, generation), _listed(rig).group_state) == (ErrorCode.NONE, "Stable")
    assert [sorted(numbers) for numbers in rig.group.members[member_id].assigned.values()] == [[0, 1, 2, 3]]


def test_g21_who_would_join_again_too_early_for_a_new_target_goes_on() -> None:
    rig = Rig(config=replace(_CONFIG, downgrade=False, consumer_assignment_interval_ms=1_000))
    _, member_id = _mixed(rig)
    rig.run(rig.shard.leave_group(rig.token(), LeaveGroupRequest(GROUP, (MemberIdentity("m1"),)), rig.now_ms))
    assert _listed(rig).group_state == "Assigning"
    generation = rig.group.members[member_id].member_epoch
    assert _beat(rig, member_id, generation) is ErrorCode.NONE
    rig.advance(1_000)
    assert _beat(rig, member_id, generation) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_member_that_does_not_join_again_is_expelled() -> None:
    rig = Rig(config=_CONFIG)
    first, member_id = _mixed(rig)
    settle(first)
    assert not _synced(rig, member_id, 3)
    second = rig.joined("m2")
    for _ in range(12):
        assert _beat(rig, member_id, 3) is ErrorCode.REBALANCE_IN_PROGRESS
        rig.advance(5_000)
        first.beat()
        second.beat()
    assert set(rig.group.members) == {"m1", "m2"}


def test_a_member_that_goes_is_not_waited_for() -> None:
    """Else each static member that restarts would leave its id in the coordinator's memory."""
    rig = Rig(config=_CONFIG)
    first, member_id = _mixed(rig)
    settle(first)
    rig.joined("m2")
    assert _beat(rig, member_id, 3) is ErrorCode.REBALANCE_IN_PROGRESS
    joining = rig.shard.consumer_groups.room.soft(GROUP).joining
    assert joining == {member_id}
    rig.run(rig.shard.leave_group(rig.token(), LeaveGroupRequest(GROUP, (MemberIdentity(member_id),)), rig.now_ms))
    assert joining == set()


def test_a_member_that_does_not_fetch_its_assignment_is_expelled() -> None:
    rig = Rig(config=_CONFIG)
    first, member_id = _mixed(rig)
    for _ in range(12):
        assert _beat(rig, member_id, 3) is not ErrorCode.UNKNOWN_MEMBER_ID
        rig.advance(5_000)
        first.beat()
    assert set(rig.group.members) == {"m1"}


def test_a_member_that_was_expelled_gives_up_what_it_has_before_it_joins_again() -> None:
    """World 430025634 of broker-consumer-groups: it kept partitions through a generation in which another had them."""
    rig = Rig(config=_CONFIG)
    first, member_id = _mixed(rig)
    generation = 3
    settle(first)
    assert not _synced(rig, member_id, generation)
    for _ in range(9):  # the member of the classic protocol is silent, and expelled
        rig.advance(5_000)
        first.beat()
    assert (set(rig.group.members), first.partitions) == ({"m1"}, [0, 1, 2, 3])
    stale = rig.answers[_join(rig, member_id, owned=(2, 3), generation=generation)]
    assert stale.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert set(rig.group.members) == {"m1"}
    assert not rig.answers[_join(rig, member_id)].error_code  # any id will do for one that has nothing
    again = rig.answers[_join(rig, member_id, owned=(2,), generation=generation)]
    assert (again.error_code, again.member_id) == (ErrorCode.NONE, member_id)  # it is a member


def _synced(rig: Rig, member_id: str, generation: int) -> int:
    token = rig.token()
    request = SyncGroupRequest(GROUP, generation, member_id, None, "consumer", "range", ())
    rig.run(rig.shard.sync_group(token, request, rig.now_ms))
    error: int = rig.answers[token].error_code
    return error


def test_g21_a_rebalance_after_a_downgrade_outlives_the_coordinator() -> None:
    """World 320000171 of broker-consumer-groups: what the member that left had would be nobody's for good."""
    rig = Rig(config=_CONFIG)
    first, member_id = _mixed(rig)
    first.leave()
    generation = 3
    assert (_kind(rig), _beat(rig, member_id, generation)) == ("classic", ErrorCode.REBALANCE_IN_PROGRESS)
    rig.crash()
    assert (_kind(rig), _beat(rig, member_id, generation)) == ("classic", ErrorCode.REBALANCE_IN_PROGRESS)
    assert rig.answers[_join(rig, member_id)].generation_id == generation + 1


def test_a_pattern_ends_with_the_static_member_whose_place_one_of_the_classic_protocol_takes() -> None:
    rig = Rig(Metadata(words=4, other=2), _CONFIG)
    by_pattern(rig, "m1", "o.*", instance_id="A")
    rig.joined("m2")
    assert rig.group.is_subscribed_to("other")
    assert not rig.answers[_join(rig, instance_id="A")].error_code
    assert (rig.group.regexes, rig.group.is_subscribed_to("other")) == ({}, False)


def test_a_member_of_the_classic_protocol_has_no_time_to_give_up_after_a_load() -> None:
    """It has the time to join again; nothing would stop the other clock."""
    rig = Rig(config=_CONFIG)
    member_id = _stable(rig)
    rig.joined("m1")
    assert not rig.answers[_join(rig, member_id, owned=(0, 1, 2, 3), generation=1)].error_code
    assert rig.group.members[member_id].state is MemberState.UNREVOKED_PARTITIONS
    rig.crash()
    assert not [key for key in rig.timers if key[0] == REVOKE]


@pytest.mark.parametrize("how", ["left", "replaced"])
def test_g21_no_clock_of_the_consumer_group_goes_on_in_the_classic_one(how: str) -> None:
    """After another upgrade it would expel a member that has done nothing wrong."""
    rig = Rig(config=_CONFIG)
    first = rig.joined("m1", instance_id="i")
    member_id: str = rig.answers[_join(rig)].member_id
    settle(first)
    assert not _synced(rig, member_id, 3)
    second = rig.joined("m2")
    assert _beat(rig, member_id, 3) is ErrorCode.REBALANCE_IN_PROGRESS  # it has a minute to join again
    second.leave()
    if how == "left":
        first.leave()
    else:
        assert not rig.answers[_join(rig, instance_id="i")].error_code
    assert _kind(rig) == "classic"
    assert not [key for key in rig.timers if key[0] in (REVOKE, CLASSIC_JOIN, CLASSIC_SYNC)]
