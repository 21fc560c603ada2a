"""LeaveGroup, versions 0–5; several members at once from version 3 on (KIP-345)."""

from typing import Any, Protocol

from ottla.broker.handlers.table import RequestContext
from ottla.broker.ports.access import HasAccess
from ottla.broker.ports.groups import HasGroups
from ottla.wire.acls import AclOperation, ResourceType
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse

#: Older versions name one member.
_MEMBERS_FROM = 3


class _Node(HasAccess, HasGroups, Protocol):
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
    shard = runner.shard
    return runner.submit(lambda token, now_ms: shard.leave_group(token, request, now_ms))
