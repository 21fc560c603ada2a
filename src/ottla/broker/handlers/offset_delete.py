"""OffsetDelete, version 0 (KIP-496)."""

from typing import TYPE_CHECKING, Any

from ottla.broker.handlers.table import RequestContext
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse

if TYPE_CHECKING:
    from ottla.broker.node import Node


def handle(node: "Node", request: OffsetDeleteRequest, context: RequestContext) -> Any:
    """Forget a group's offsets of partitions it does not read."""
    runner = node.groups.find(request.group_id)
    if isinstance(runner, ErrorCode):
        return OffsetDeleteResponse(error_code=runner)
    shard = runner.shard
    return runner.submit(lambda token, now_ms: shard.delete_offsets(token, request))
