"""ListGroups and DescribeGroups."""

from __future__ import annotations

from ottla.base.steps import result_of
from ottla.coordinator.group.classic.state import GroupState
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.describe_groups import DescribedGroup, DescribedGroupMember
from ottla.wire.messages.list_groups import ListedGroup
from tests.coordinator.group.rig import GROUP, HOST, Rig, protocols


def test_g18_a_stable_group_is_described_with_subscriptions_and_assignments() -> None:
    rig = Rig()
    (member,) = rig.stable(1)
    described = DescribedGroupMember(member, None, "c", HOST, protocols("range")[0].metadata, member.encode())
    assert result_of(rig.shard.describe_group(GROUP)) == DescribedGroup(
        group_id=GROUP,
        group_state="Stable",
        protocol_type="consumer",
        protocol_data="range",
        members=(described,),
    )


def test_g18_in_a_rebalance_who_the_members_are_is_told_and_what_they_had() -> None:
    rig = Rig()
    (member,) = rig.stable(1)
    rig.join_twice()
    group = result_of(rig.shard.describe_group(GROUP))
    assert (group.group_state, group.protocol_data) == ("PreparingRebalance", "")
    assert group.members[0] == DescribedGroupMember(member, None, "c", HOST, b"", b"c-1")


def test_g18_a_group_that_does_not_exist() -> None:
    rig = Rig()
    new = result_of(rig.shard.describe_group("nowhere"))
    assert (new.error_code, new.group_state) == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")
    assert new.error_message == "Group nowhere not found."
    old = result_of(rig.shard.describe_group("nowhere", report_missing=False))
    assert (old.error_code, old.error_message, old.group_state) == (ErrorCode.NONE, None, "Dead")


def test_a_large_group_is_described_in_steps_and_as_it_was_at_the_first() -> None:
    rig = Rig()
    leader, *others = rig.stable(120)
    as_it_was = result_of(rig.shard.describe_group(GROUP))
    steps = rig.shard.describe_group(GROUP)
    next(steps)
    rig.leave(others[-1])  # in between: one member is gone, and the generation is over
    next(steps)
    assert result_of(steps) == as_it_was
    assert (len(as_it_was.members), as_it_was.group_state) == (120, "Stable")
    now = result_of(rig.shard.describe_group(GROUP))
    assert (len(now.members), now.group_state, now.members[0].member_id) == (119, "PreparingRebalance", leader)


def test_g18_groups_are_listed_by_state_and_type() -> None:
    rig = Rig()
    rig.stable(1)
    rig.commit(1, group_id="simple")
    stable = ListedGroup(GROUP, "consumer", "Stable", "classic")
    simple = ListedGroup("simple", "", "Empty", "classic")
    assert list(rig.shard.list_groups()) == [(stable, simple)]
    assert list(rig.shard.list_groups(states=["stable"])) == [(stable,)]
    assert list(rig.shard.list_groups(states=["EMPTY", "Dead"], types=["classic"])) == [(simple,)]
    assert list(rig.shard.list_groups(types=["consumer"])) == [()]
    assert {state.value for state in GroupState} == {
        "Empty",
        "PreparingRebalance",
        "CompletingRebalance",
        "Stable",
    }


def test_a_rebalance_says_why_it_began() -> None:
    rig = Rig()
    leader, follower = rig.stable(2)
    assert rig.group().rebalance_reason == "c-1 joined; client's reason: not provided"
    rig.leave(follower)
    assert rig.group().rebalance_reason == f"left: {follower}"
    rig.complete([rig.joined(rig.join(leader))])
    rig.join(leader)
    assert rig.group().rebalance_reason.startswith(f"{leader} is the leader and rejoined")
