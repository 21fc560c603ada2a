"""Calls about groups where brokers are old, errors pass, or members are gone; what is usual is in the journeys."""

from __future__ import annotations

from typing import Any

import pytest

from ottla import AsyncAdmin, KafkaError, OffsetAndMetadata, TopicPartition
from ottla.client.admin.types import GroupLag
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import consumer_group_describe as consumer
from ottla.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from ottla.wire.messages.describe_groups import DescribedGroup, DescribedGroupMember, DescribeGroupsResponse
from ottla.wire.messages.leave_group import LeaveGroupResponse, MemberResponse
from ottla.wire.messages.offset_delete import (
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from tests.client.conftest import Watchdog
from tests.client.scripted_broker import ScriptedBroker, instead

_MEMBERS = tuple(DescribedGroupMember(name, None, "client", "/host") for name in ("one", "two"))
_CLASSIC = DescribeGroupsResponse(groups=(DescribedGroup(0, None, "g", "Stable", "consumer", "range", _MEMBERS),))
_DEAD = DescribeGroupsResponse(groups=(DescribedGroup(0, None, "g", "Dead"),))
_NOT_FOUND = DescribeGroupsResponse(groups=(DescribedGroup(ErrorCode.GROUP_ID_NOT_FOUND, "no g", "g", "Dead"),))


def _consumer_group(*types: int) -> consumer.ConsumerGroupDescribeResponse:
    members = tuple(consumer.Member(f"member-{number}", member_type=each) for number, each in enumerate(types))
    group = consumer.DescribedGroup(0, None, "g", "Stable", 7, 6, "uniform", members)
    return consumer.ConsumerGroupDescribeResponse(groups=(group,))


def _no_consumer_group(code: ErrorCode) -> consumer.ConsumerGroupDescribeResponse:
    return consumer.ConsumerGroupDescribeResponse(groups=(consumer.DescribedGroup(code, None, "g"),))


@pytest.mark.parametrize("classic", [_DEAD, _NOT_FOUND])
async def test_g18_a_group_that_the_classic_calls_do_not_know_may_be_one_of_consumers(
    watchdog: Watchdog, classic: Any
) -> None:
    async with watchdog(), ScriptedBroker() as broker, AsyncAdmin(broker.config()) as admin:
        broker.always(ApiKey.DESCRIBE_GROUPS, instead(classic))
        broker.always(ApiKey.CONSUMER_GROUP_DESCRIBE, instead(_consumer_group(1, 0, -1)))
        found = (await admin.describe_groups(["g"]))["g"]
        assert (found.type, found.state, found.epoch, found.target_epoch) == ("consumer", "Stable", 7, 6)
        assert [each.is_classic for each in found.members] == [False, True, None]


async def test_g18_an_old_broker_has_no_groups_of_consumers(watchdog: Watchdog) -> None:
    async with (
        watchdog(),
        ScriptedBroker(without=[ApiKey.CONSUMER_GROUP_DESCRIBE]) as broker,
        AsyncAdmin(broker.config()) as admin,
    ):
        broker.always(ApiKey.DESCRIBE_GROUPS, instead(_DEAD))
        found = (await admin.describe_groups(["g"]))["g"]
        assert (found.exists, found.type, found.members) == (False, "classic", ())


@pytest.mark.parametrize("code", [ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION])
async def test_g18_a_group_that_nobody_knows_is_told_as_the_classic_calls_tell_it(
    watchdog: Watchdog, code: ErrorCode
) -> None:
    async with watchdog(), ScriptedBroker() as broker, AsyncAdmin(broker.config()) as admin:
        broker.always(ApiKey.CONSUMER_GROUP_DESCRIBE, instead(_no_consumer_group(code)))
        broker.script(ApiKey.DESCRIBE_GROUPS, instead(_DEAD), instead(_NOT_FOUND))
        assert not (await admin.describe_groups(["g"]))["g"].exists
        with pytest.raises(KafkaError, match="GROUP_ID_NOT_FOUND: no g"):
            await admin.describe_groups(["g"])


async def test_g18_a_member_that_has_left_meanwhile_is_no_error_and_another_refusal_is(watchdog: Watchdog) -> None:
    def answered(code: ErrorCode) -> LeaveGroupResponse:
        return LeaveGroupResponse(members=(MemberResponse("one", None, code), MemberResponse("two", None, 0)))

    async with watchdog(), ScriptedBroker() as broker, AsyncAdmin(broker.config()) as admin:
        broker.always(ApiKey.DESCRIBE_GROUPS, instead(_CLASSIC))
        broker.script(
            ApiKey.LEAVE_GROUP,
            instead(LeaveGroupResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)),
            instead(answered(ErrorCode.UNKNOWN_MEMBER_ID)),
            instead(answered(ErrorCode.FENCED_INSTANCE_ID)),
        )
        assert await admin.remove_members("g", reason="why") == ["one", "two"]
        assert [each.reason for each in broker.asked(ApiKey.LEAVE_GROUP)[0].members] == ["why", "why"]
        with pytest.raises(KafkaError, match="group g, member one"):
            await admin.remove_members("g", ["one"])


async def test_g18_each_member_of_a_consumer_group_leaves_in_its_own_protocol(watchdog: Watchdog) -> None:
    async with watchdog(), ScriptedBroker() as broker, AsyncAdmin(broker.config()) as admin:
        broker.always(ApiKey.DESCRIBE_GROUPS, instead(_NOT_FOUND))
        broker.always(ApiKey.CONSUMER_GROUP_DESCRIBE, instead(_consumer_group(1, 0)))
        broker.always(ApiKey.LEAVE_GROUP, instead(LeaveGroupResponse(members=(MemberResponse("member-1", None, 0),))))
        broker.always(ApiKey.CONSUMER_GROUP_HEARTBEAT, instead(ConsumerGroupHeartbeatResponse()))
        assert await admin.remove_members("g") == ["member-0", "member-1"]
        (beat,) = broker.asked(ApiKey.CONSUMER_GROUP_HEARTBEAT)
        assert (beat.member_id, beat.member_epoch) == ("member-0", -1)
        (left,) = broker.asked(ApiKey.LEAVE_GROUP)
        assert [each.member_id for each in left.members] == ["member-1"]


async def test_g18_offsets_are_deleted_again_after_an_error_that_passes(watchdog: Watchdog) -> None:
    def answered(code: ErrorCode) -> OffsetDeleteResponse:
        return OffsetDeleteResponse(0, 0, (OffsetDeleteResponseTopic("t", (OffsetDeleteResponsePartition(1, code),)),))

    async with watchdog(), ScriptedBroker({"t": 2}) as broker, AsyncAdmin(broker.config()) as admin:
        broker.script(
            ApiKey.OFFSET_DELETE,
            instead(OffsetDeleteResponse(ErrorCode.NOT_COORDINATOR)),
            instead(answered(ErrorCode.NONE)),
            instead(answered(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)),
        )
        await admin.delete_group_offsets("g", [TopicPartition("t", 1)])
        with pytest.raises(KafkaError, match="GROUP_SUBSCRIBED_TO_TOPIC: group g, t-1"):
            await admin.delete_group_offsets("g", [TopicPartition("t", 1)])


def test_g18_how_far_a_group_is_behind_is_known_only_if_both_ends_are() -> None:
    committed = OffsetAndMetadata(4)
    lags = {
        GroupLag(committed, 0, 10, 1_000): (6, 500),
        GroupLag(committed, 0, 10, 2_000): (6, 0),  # the producer's clock is ahead
        GroupLag(committed, 0, 10, None): (6, None),
        GroupLag(committed, 0, 4, None): (0, 0),
        GroupLag(committed, None, None, None): (None, None),
        GroupLag(None, 0, 10, None): (None, None),
    }
    assert {lag: (lag.offsets, lag.age_ms(1_500)) for lag in lags} == lags


@pytest.mark.parametrize(
    ("wrong", "error", "said"),
    [
        ([5], TypeError, "must be (a )?str, not 5"),
        ([None], TypeError, "must be (a )?str, not None"),
        (["g\udcff"], KafkaError, "INVALID_GROUP_ID: the id of a group must be text that UTF-8 can write"),
        ("abc", TypeError, r"a list of group ids is needed, not a str: write \['abc'\]"),
    ],
)
async def test_g18_what_is_no_group_id_is_refused_and_spoils_nothing(
    wrong: Any, error: type[Exception], said: str
) -> None:
    """A text is not taken for its letters: that could delete groups that nobody has named."""
    admin = AsyncAdmin({"bootstrap.servers": "127.0.0.1:9"})  # never started: nothing is asked
    for call in (admin.describe_groups, admin.delete_groups):
        with pytest.raises(error, match=said):
            await call(wrong)
    if wrong != "abc":
        for one in (
            admin.list_group_offsets(wrong[0]),
            admin.alter_group_offsets(wrong[0], {}),
            admin.delete_group_offsets(wrong[0], []),
            admin.remove_members(wrong[0]),
            admin.list_group_lags(wrong[0]),
        ):
            with pytest.raises(error, match=said):
                await one
