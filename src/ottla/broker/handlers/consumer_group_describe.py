"""ConsumerGroupDescribe, versions 0–1 (KIP-848): consumer groups with their epochs, members and assignments."""

import asyncio
from collections.abc import Generator, Iterator
from typing import Protocol

from ottla.broker.handlers.table import RequestContext
from ottla.broker.ports.access import HasAccess
from ottla.broker.ports.groups import HasGroups
from ottla.broker.ports.quotas import counted
from ottla.broker.ports.settings import HasConfig
from ottla.broker.ports.slices import HasSlices
from ottla.wire.acls import AclOperation, ResourceType
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)

_PROTOCOL = "consumer"


class _Node(HasAccess, HasConfig, HasGroups, HasSlices, Protocol):
    """What this handler touches."""


def handle(
    node: _Node, request: ConsumerGroupDescribeRequest, context: RequestContext
) -> "asyncio.Future[ConsumerGroupDescribeResponse]":
    """Each group as it is when its turn comes."""
    return node.slices.start(_slowly(node, request, context), "describing consumer groups")


async def _slowly(
    node: _Node, request: ConsumerGroupDescribeRequest, context: RequestContext
) -> ConsumerGroupDescribeResponse:
    """A group may have thousands of members, each with thousands of topics."""
    groups: list[DescribedGroup] = []
    await node.slices.run(counted(context, _describe_all(node, request, context, groups)))
    return ConsumerGroupDescribeResponse(groups=tuple(groups))


def _describe_all(
    node: _Node, request: ConsumerGroupDescribeRequest, context: RequestContext, groups: list[DescribedGroup]
) -> Iterator[None]:
    enabled = _PROTOCOL in node.config.list("group.coordinator.rebalance.protocols")
    for group_id in request.group_ids:
        group = yield from _describe(node, group_id, context, enabled=enabled)
        if request.include_authorized_operations and not group.error_code:
            operations = node.access.operations(context, ResourceType.GROUP, group_id)
            group = group._replace(authorized_operations=operations)
        groups.append(group)
        yield


def _describe(
    node: _Node, group_id: str, context: RequestContext, *, enabled: bool
) -> Generator[None, None, DescribedGroup]:
    if not enabled:
        return DescribedGroup(error_code=ErrorCode.UNSUPPORTED_VERSION, group_id=group_id)
    if not node.access.allows(context, AclOperation.DESCRIBE, ResourceType.GROUP, group_id):
        return DescribedGroup(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED, group_id=group_id)
    if not group_id:
        return DescribedGroup(error_code=ErrorCode.INVALID_GROUP_ID, group_id=group_id)
    runner = node.groups.find(group_id)
    if isinstance(runner, ErrorCode):
        return DescribedGroup(error_code=runner, group_id=group_id)
    group = yield from runner.shard.describe_consumer_group(group_id)
    if node.access.is_on and (yield from _is_refused(node, group, context)):
        return DescribedGroup(
            error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            error_message="The group has described topic(s) that the client is not authorized to describe.",
            group_id=group_id,
        )
    return group


def _is_refused(node: _Node, group: DescribedGroup, context: RequestContext) -> Generator[None, None, bool]:
    """Whether the group has a topic that who asks may not describe."""
    is_refused = False
    for name in dict.fromkeys(_topics(group)):
        allowed = node.access.allows(context, AclOperation.DESCRIBE, ResourceType.TOPIC, name)
        is_refused = is_refused or not allowed
        yield
    return is_refused


def _topics(group: DescribedGroup) -> Iterator[str]:
    """The names of all topics that are assigned in the group, or will be."""
    for member in group.members:
        for assignment in (member.assignment, member.target_assignment):
            for topic in assignment.topic_partitions:
                yield topic.topic_name
