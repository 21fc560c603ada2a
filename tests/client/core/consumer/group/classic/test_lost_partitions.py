"""SPEC G12, G15, G21: whose partitions others may have by now has lost them, and commits nothing for them."""

import pytest

from ottla.client.core.consumer.group.classic.states import State
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.heartbeat import HeartbeatResponse
from ottla.wire.messages.join_group import JoinGroupResponse
from ottla.wire.messages.sync_group import SyncGroupResponse
from tests.client.cooperative import CooperativeRoundRobin
from tests.client.core.consumer.group.classic.members import GROUP, A, B, beat, member
from tests.client.core.consumer.heard import Heard
from tests.client.core.consumer.rig import Rig


def test_g12_who_was_expelled_has_lost_what_it_had_and_joins_as_a_new_member() -> None:
    rig, heard = member()
    beat(rig, ErrorCode.UNKNOWN_MEMBER_ID)
    assert rig.core.state is State.OUT
    assert rig.core.holds_back
    rig.poll()
    rig.run_callback()
    assert heard.said == [("lost", [A])]
    assert rig.message(ApiKey.JOIN_GROUP).member_id == ""


@pytest.mark.parametrize("api", [ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP])
def test_g12_what_a_cooperative_member_kept_is_lost_when_the_group_drops_it(api: ApiKey) -> None:
    rig, heard = member(cooperative=True)
    beat(rig, ErrorCode.REBALANCE_IN_PROGRESS)
    rig.poll()
    if api is ApiKey.SYNC_GROUP:
        rig.join(2)
        rig.refuse(api, ErrorCode.ILLEGAL_GENERATION, SyncGroupResponse)
    else:
        rig.refuse(api, ErrorCode.UNKNOWN_MEMBER_ID, JoinGroupResponse)
    assert rig.core.holds_back
    rig.poll()
    rig.run_callback()
    assert heard.said == [("lost", [A])]
    rig.wait(1)
    assert rig.message(ApiKey.JOIN_GROUP).member_id == ("me" if api is ApiKey.SYNC_GROUP else "")


def test_g15_a_static_member_that_has_missed_a_generation_has_lost_what_it_kept() -> None:
    """The leader of generation 2 knew what it had when it joined generation 1: nothing. So others may have it."""
    rig, heard = member(cooperative=True, config={"enable.auto.commit": True, "group.instance.id": "i"})
    rig.state(A).seek(7)
    beat(rig, ErrorCode.REBALANCE_IN_PROGRESS)
    rig.poll()
    rig.join(3)
    rig.poll()
    assert not rig.asked(ApiKey.OFFSET_COMMIT), "the coordinator would take it, and undo a commit of the other"
    rig.run_all_callbacks()
    assert heard.said == [("lost", [A])]
    rig.wait(1.0)
    assert rig.message(ApiKey.JOIN_GROUP).member_id == "me"
    rig.join(4)
    rig.sync(A, B)
    rig.poll()
    rig.run_all_callbacks()
    assert (heard.said[1:], rig.core.state) == ([("assigned", [A, B])], State.STABLE)


@pytest.mark.parametrize("config", [{"group.instance.id": "i"}, {}], ids=["static", "dynamic"])
def test_g14_a_generation_that_was_joined_and_not_synced_is_not_missed(config: dict[str, object]) -> None:
    """A group goes on without a dynamic member that does not join; so its coordinator has told it of each one."""
    rig, heard = member(cooperative=True, config=config)
    rig.state(A).seek(7)
    beat(rig, ErrorCode.REBALANCE_IN_PROGRESS)
    rig.poll()
    rig.join(2 if config else 4)
    rig.refuse(ApiKey.SYNC_GROUP, ErrorCode.REBALANCE_IN_PROGRESS, SyncGroupResponse)
    rig.join(3 if config else 6)
    rig.sync(A, B)
    rig.poll()
    rig.run_callback()
    assert (heard.said, rig.state(A).position) == ([("assigned", [B])], 7)


def test_g21_who_a_mixed_group_had_forgotten_and_lets_in_again_has_lost_what_it_kept() -> None:
    rig, heard = member(cooperative=True, config={"enable.auto.commit": True})
    rig.state(A).seek(7)
    beat(rig, ErrorCode.REBALANCE_IN_PROGRESS)
    rig.poll()
    rig.join(4, mixed=True)  # the session was over, and others have had the partition in generations 2 and 3
    rig.sync(B)
    assert rig.core.member.last.generation_id == 1, "a transaction goes on, and the coordinator must refuse its offsets"
    rig.poll()
    assert not rig.asked(ApiKey.OFFSET_COMMIT), "the coordinator would take it, and undo a commit of the other"
    assert heard.said == []
    rig.run_all_callbacks()
    assert heard.said == [("lost", [A])]
    rig.wait(1.0)
    assert rig.message(ApiKey.JOIN_GROUP).member_id == "me"
    rig.join(4, mixed=True)
    rig.sync(B)
    rig.poll()
    rig.run_all_callbacks()
    assert (heard.said[1:], rig.core.state) == ([("assigned", [B])], State.STABLE)


def test_g21_what_is_kept_is_lost_with_the_rest_since_others_may_have_had_that_too() -> None:
    rig, heard = Rig(GROUP, strategy=[CooperativeRoundRobin()]), Heard()
    heard.subscribe(rig, "t")
    rig.become_stable(A, B)
    beat(rig, ErrorCode.REBALANCE_IN_PROGRESS)
    rig.poll()
    rig.join(4, mixed=True)
    rig.sync(B)
    rig.poll()
    rig.run_all_callbacks()
    assert heard.said[1:] == [("lost", [A, B])]


def test_g21_a_member_that_a_mixed_group_knows_yields_in_its_generation() -> None:
    rig, heard = member(cooperative=True)
    beat(rig, ErrorCode.REBALANCE_IN_PROGRESS)
    rig.poll()
    rig.join(1, mixed=True)
    rig.sync()
    rig.poll()
    rig.run_callback()
    assert heard.said == [("revoked", [A])]


def test_g21_a_member_that_a_mixed_group_knows_goes_on_where_it_was_in_a_later_generation() -> None:
    rig, heard = member(cooperative=True)
    rig.state(A).seek(7)
    beat(rig, ErrorCode.REBALANCE_IN_PROGRESS)
    rig.poll()
    rig.join(2, mixed=True)
    rig.sync(A, B)
    rig.poll()
    rig.run_callback()
    assert (heard.said, rig.state(A).position) == ([("assigned", [B])], 7)


def test_g12_who_is_expelled_while_the_user_gives_up_loses_the_rest() -> None:
    rig, heard = member(cooperative=True)
    beat(rig, ErrorCode.REBALANCE_IN_PROGRESS)
    rig.poll()
    rig.join(2)
    rig.sync(B)
    rig.poll()
    rig.wait(3)
    rig.refuse(ApiKey.HEARTBEAT, ErrorCode.UNKNOWN_MEMBER_ID, HeartbeatResponse)
    rig.run_callback()
    assert (rig.core.state, heard.said) == (State.OUT, [("revoked", [A])])
    rig.poll()
    assert rig.core.state is State.JOINING
