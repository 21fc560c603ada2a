"""LeaveGroup, versions 0–5; several members at once from version 3 on (KIP-345)."""

from typing import TYPE_CHECKING, Any

from ottla.broker.handlers.table import RequestContext
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse

if TYPE_CHECKING:
    from ottla.broker.node import Node


def handle(node: "Node", request: LeaveGroupRequest, context: RequestContext) -> Any:
    """Members leave, and the others rebalance."""
    runner = node.groups.find(request.group_id)
    if isinstance(runner, ErrorCode):
        return LeaveGroupResponse(error_code=runner)
    shard = runner.shard
    return runner.submit(lambda token, now_ms: shard.leave_group(token, request, now_ms))
