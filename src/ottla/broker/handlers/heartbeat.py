"""Heartbeat, versions 0–4."""

from typing import Any, Protocol

from ottla.broker.handlers.table import RequestContext
from ottla.broker.ports.access import HasAccess
from ottla.broker.ports.groups import HasGroups
from ottla.wire.acls import AclOperation, ResourceType
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


class _Node(HasAccess, HasGroups, Protocol):
    """What this handler touches."""


def handle(node: _Node, request: HeartbeatRequest, context: RequestContext) -> Any:
    """The member is alive. While the group is being loaded every heartbeat succeeds, as in Kafka."""
    if not node.access.allows(context, AclOperation.READ, ResourceType.GROUP, request.group_id):
        return HeartbeatResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    runner = node.groups.find(request.group_id)
    if isinstance(runner, ErrorCode):
        loading = runner is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return HeartbeatResponse(error_code=ErrorCode.NONE if loading else runner)
    shard = runner.shard
    return runner.submit(lambda token, now_ms: shard.heartbeat(token, request, now_ms))
