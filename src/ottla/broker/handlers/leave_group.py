"""LeaveGroup, versions 0–5; several members at once from version 3 on (KIP-345)."""

import asyncio
from collections.abc import Iterator
from functools import partial
from typing import Any, Final, Protocol, cast

from ottla.broker.handlers.large import in_its_turn
from ottla.broker.handlers.parts import PART_NAMES
from ottla.broker.handlers.table import RequestContext
from ottla.broker.ports.access import HasAccess
from ottla.broker.ports.groups import HasGroups
from ottla.broker.ports.quotas import counted
from ottla.broker.ports.slices import HasSlices
from ottla.broker.runtime.shard import ShardRunner
from ottla.coordinator.group.shard import GroupShard
from ottla.wire.acls import AclOperation, ResourceType
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)

#: Older versions name one member.
_MEMBERS_FROM = 3
#: Behind the last of those that are there.
_NOBODY: Final = (MemberIdentity(), MemberResponse())


class _Node(HasAccess, HasGroups, HasSlices, Protocol):
    """What this handler touches."""


def handle(node: _Node, request: LeaveGroupRequest, context: RequestContext) -> Any:
    """Members leave, and the others rebalance."""
    if not node.access.allows(context, AclOperation.READ, ResourceType.GROUP, request.group_id):
        return LeaveGroupResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    runner = node.groups.find(request.group_id)
    if isinstance(runner, ErrorCode):
        return LeaveGroupResponse(error_code=runner)
    if context.api_version < _MEMBERS_FROM and not request.member_id:
        error = ErrorCode.UNKNOWN_MEMBER_ID if request.group_id else ErrorCode.INVALID_GROUP_ID
        return LeaveGroupResponse(error_code=error)
    if len(request.members) > PART_NAMES:
        return node.slices.start(_slowly(node, runner, request, context), "many members that leave")
    return _leave(runner, request)


def _leave(runner: ShardRunner[GroupShard], request: LeaveGroupRequest) -> "asyncio.Future[object]":
    shard = runner.shard
    return runner.submit(lambda token, now_ms: shard.leave_group(token, request, now_ms))


async def _slowly(
    node: _Node, runner: ShardRunner[GroupShard], request: LeaveGroupRequest, context: RequestContext
) -> LeaveGroupResponse:
    """While others are served: members that are not there are found, and those that are leave some in a decision.

    As if each part were a request of its own: a heartbeat that comes in between meets a group that some have left.
    """
    there: list[MemberIdentity] = []
    shard = runner.shard
    await node.slices.run(counted(context, _look(shard, request, there)))
    if runner.shard is not shard:  # it is read again from its log: who is there was not to be seen meanwhile
        return LeaveGroupResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    left: list[MemberResponse] = []
    for begin in range(0, max(len(there), 1), PART_NAMES):
        some = request._replace(members=tuple(there[begin : begin + PART_NAMES]))
        answer = cast(
            LeaveGroupResponse, await (await in_its_turn(node.slices, context, partial(_leave, runner, some)))
        )
        if answer.error_code:
            return answer
        left += answer.members
    told: list[MemberResponse] = []
    await node.slices.run(counted(context, _tell(request, there, left, told)))
    return LeaveGroupResponse(members=tuple(told))


def _look(shard: GroupShard, request: LeaveGroupRequest, there: list[MemberIdentity]) -> Iterator[None]:
    for begin in range(0, len(request.members), PART_NAMES):
        some = request.members[begin : begin + PART_NAMES]
        there += (m for m in some if shard.knows_member(request.group_id, m.member_id, m.group_instance_id))
        yield


def _tell(
    request: LeaveGroupRequest, there: list[MemberIdentity], left: list[MemberResponse], told: list[MemberResponse]
) -> Iterator[None]:
    """An answer for each of those that are named, in their order."""
    asked = zip(there, left, strict=True)
    member, found = next(asked, _NOBODY)
    for number, each in enumerate(request.members):
        if each is member:
            told.append(found)
            member, found = next(asked, _NOBODY)
        else:
            told.append(MemberResponse(each.member_id, each.group_instance_id, ErrorCode.UNKNOWN_MEMBER_ID))
        if number % PART_NAMES == 0:
            yield
