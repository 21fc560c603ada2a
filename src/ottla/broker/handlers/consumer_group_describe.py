"""ConsumerGroupDescribe, versions 0–1 (KIP-848): consumer groups with their epochs, members and assignments."""

from typing import Protocol

from ottla.broker.handlers.authorized import ON_GROUP
from ottla.broker.handlers.table import RequestContext
from ottla.broker.ports.groups import HasGroups
from ottla.broker.ports.settings import HasConfig
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)

_PROTOCOL = "consumer"


class _Node(HasConfig, HasGroups, Protocol):
    """What this handler touches."""


def handle(
    node: _Node, request: ConsumerGroupDescribeRequest, context: RequestContext
) -> ConsumerGroupDescribeResponse:
    """Each group as it is now."""
    enabled = _PROTOCOL in node.config.list("group.coordinator.rebalance.protocols")
    groups = [_describe(node, each, enabled=enabled) for each in request.group_ids]
    if request.include_authorized_operations:
        groups = [each if each.error_code else each._replace(authorized_operations=ON_GROUP) for each in groups]
    return ConsumerGroupDescribeResponse(groups=tuple(groups))


def _describe(node: _Node, group_id: str, *, enabled: bool) -> DescribedGroup:
    if not enabled:
        return DescribedGroup(error_code=ErrorCode.UNSUPPORTED_VERSION, group_id=group_id)
    if not group_id:
        return DescribedGroup(error_code=ErrorCode.INVALID_GROUP_ID, group_id=group_id)
    runner = node.groups.find(group_id)
    if isinstance(runner, ErrorCode):
        return DescribedGroup(error_code=runner, group_id=group_id)
    return runner.shard.describe_consumer_group(group_id)
