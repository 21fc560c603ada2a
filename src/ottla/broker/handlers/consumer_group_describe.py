"""ConsumerGroupDescribe, versions 0–1 (KIP-848): consumer groups with their epochs, members and assignments."""

from collections.abc import Iterator
from typing import Protocol

from ottla.broker.handlers.table import RequestContext
from ottla.broker.ports.access import HasAccess
from ottla.broker.ports.groups import HasGroups
from ottla.broker.ports.settings import HasConfig
from ottla.wire.acls import AclOperation, ResourceType
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)

_PROTOCOL = "consumer"


class _Node(HasAccess, HasConfig, HasGroups, Protocol):
    """What this handler touches."""


def handle(
    node: _Node, request: ConsumerGroupDescribeRequest, context: RequestContext
) -> ConsumerGroupDescribeResponse:
    """Each group as it is now."""
    enabled = _PROTOCOL in node.config.list("group.coordinator.rebalance.protocols")
    groups = [_describe(node, each, context, enabled=enabled) for each in request.group_ids]
    if request.include_authorized_operations:
        groups = [
            each
            if each.error_code
            else each._replace(authorized_operations=node.access.operations(context, ResourceType.GROUP, each.group_id))
            for each in groups
        ]
    return ConsumerGroupDescribeResponse(groups=tuple(groups))


def _describe(node: _Node, group_id: str, context: RequestContext, *, enabled: bool) -> DescribedGroup:
    if not enabled:
        return DescribedGroup(error_code=ErrorCode.UNSUPPORTED_VERSION, group_id=group_id)
    if not node.access.allows(context, AclOperation.DESCRIBE, ResourceType.GROUP, group_id):
        return DescribedGroup(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED, group_id=group_id)
    if not group_id:
        return DescribedGroup(error_code=ErrorCode.INVALID_GROUP_ID, group_id=group_id)
    runner = node.groups.find(group_id)
    if isinstance(runner, ErrorCode):
        return DescribedGroup(error_code=runner, group_id=group_id)
    group = runner.shard.describe_consumer_group(group_id)
    if node.access.refused(context, AclOperation.DESCRIBE, ResourceType.TOPIC, _topics(group)):
        return DescribedGroup(
            error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            error_message="The group has described topic(s) that the client is not authorized to describe.",
            group_id=group_id,
        )
    return group


def _topics(group: DescribedGroup) -> Iterator[str]:
    """The names of all topics that are assigned in the group, or will be."""
    for member in group.members:
        for assignment in (member.assignment, member.target_assignment):
            for topic in assignment.topic_partitions:
                yield topic.topic_name
