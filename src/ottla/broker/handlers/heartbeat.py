"""Heartbeat, versions 0–4."""

from typing import TYPE_CHECKING, Any

from ottla.broker.handlers.table import RequestContext
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

if TYPE_CHECKING:
    from ottla.broker.node import Node


def handle(node: "Node", request: HeartbeatRequest, context: RequestContext) -> Any:
    """The member lives; while the group is loaded, as in Kafka, every member is taken to live."""
    runner = node.groups.find(request.group_id)
    if isinstance(runner, ErrorCode):
        loading = runner is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return HeartbeatResponse(error_code=ErrorCode.NONE if loading else runner)
    shard = runner.shard
    return runner.submit(lambda token, now_ms: shard.heartbeat(token, request))
