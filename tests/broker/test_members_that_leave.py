"""A request that names very many members of a group: they leave in parts, while others are served.

Members of a consumer group need no connection of their own, so there may be thousands of one client. Counted, as in
`test_wide_requests`.
"""

import asyncio
from collections.abc import Iterator

import pytest

from ottla.broker.handlers.parts import PART_NAMES
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest, DescribedGroup
from ottla.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from tests.broker.counted_turns import CountedBroker
from tests.broker.wire_client import WireClient

_MEMBERS = 8 * PART_NAMES
#: A member that leaves is some 250 calls, and there are eight parts.
_CALLS_OF_EACH = 50


@pytest.fixture(scope="module")
def broker() -> Iterator[CountedBroker]:
    with CountedBroker({}) as it:
        yield it


async def _found(client: WireClient, group_id: str) -> None:
    answer = await client.ask(ApiKey.FIND_COORDINATOR, FindCoordinatorRequest("", 0, (group_id,)))
    assert answer.coordinators[0].error_code == ErrorCode.NONE


def _ids(count: int = _MEMBERS) -> list[str]:
    return [f"{number:022}" for number in range(count)]


async def _join(client: WireClient, group_id: str, *, are_static: bool) -> None:
    await _found(client, group_id)
    for each in _ids():
        request = ConsumerGroupHeartbeatRequest(
            group_id,
            each,
            0,
            instance_id=f"i{each}" if are_static else None,
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=("t",),
            topic_partitions=(),
        )
        answer = await client.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, request)
        assert answer.error_code == ErrorCode.NONE


async def _described(client: WireClient, group_id: str) -> DescribedGroup:
    answer = await client.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, ConsumerGroupDescribeRequest((group_id,)))
    group: DescribedGroup = answer.groups[0]
    return group


@pytest.mark.parametrize("are_static", [False, True])
def test_very_many_members_of_a_consumer_group_leave_in_parts(broker: CountedBroker, are_static: bool) -> None:
    """4,000 took 127 ms of one turn, and 5,000 were more than a batch may have."""
    group_id = f"g{are_static}"
    members = [MemberIdentity("", f"i{each}") if are_static else MemberIdentity(each) for each in _ids()]
    stays = members.pop(PART_NAMES)

    async def run() -> None:
        async with broker.client() as client:
            await _join(client, group_id, are_static=are_static)
            epoch = (await _described(client, group_id)).group_epoch
            with broker.counted() as turns:
                answer = await client.ask(ApiKey.LEAVE_GROUP, LeaveGroupRequest(group_id, tuple(members)), 5)
            assert 0 < turns.most < _MEMBERS * _CALLS_OF_EACH, f"{turns.most:,} calls in one turn of {turns.whose}"
            assert answer.error_code == ErrorCode.NONE
            assert [each[:3] for each in answer.members] == [(*each[:2], ErrorCode.NONE) for each in members]
            group = await _described(client, group_id)
            assert group.group_epoch == epoch + (_MEMBERS - 1 + PART_NAMES - 1) // PART_NAMES, "one of each part"
            (left,) = group.members
            assert stays in (MemberIdentity(left.member_id), MemberIdentity("", left.instance_id))

    asyncio.run(run())


def test_very_many_ids_that_were_given_out_are_taken_back_in_parts(broker: CountedBroker) -> None:
    asked = JoinGroupRequest("p", 60_000, 60_000, "", None, "consumer", (JoinGroupRequestProtocol("range", b""),))

    async def run() -> None:
        async with broker.client() as client:
            await _found(client, "p")
            given = [(await client.ask(ApiKey.JOIN_GROUP, asked)).member_id for _ in range(_MEMBERS)]
            twice = (*map(MemberIdentity, given), MemberIdentity(given[0]))
            with broker.counted() as turns:
                answer = await client.ask(ApiKey.LEAVE_GROUP, LeaveGroupRequest("p", twice), 5)
            errors = [each.error_code for each in answer.members]
            assert errors == [ErrorCode.NONE] * _MEMBERS + [ErrorCode.UNKNOWN_MEMBER_ID]
        assert 0 < turns.most < _MEMBERS * _CALLS_OF_EACH, f"{turns.most:,} calls in one turn of {turns.whose}"

    asyncio.run(run())
