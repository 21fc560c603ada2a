"""DescribeGroups, versions 0–6. A missing group is DEAD, from version 6 on GROUP_ID_NOT_FOUND (KIP-1043)."""

import asyncio
from collections.abc import Generator, Iterator
from typing import Protocol

from ottla.broker.handlers.table import RequestContext
from ottla.broker.ports.access import HasAccess
from ottla.broker.ports.groups import HasGroups
from ottla.broker.ports.quotas import counted
from ottla.broker.ports.slices import HasSlices
from ottla.wire.acls import AclOperation, ResourceType
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse

_REPORTS_MISSING_FROM = 6
#: Groups and members that are described in one step. (Of one group's members no more are, either.)
_AT_ONCE = 50


class _Node(HasAccess, HasGroups, HasSlices, Protocol):
    """What this handler touches."""


def handle(
    node: _Node, request: DescribeGroupsRequest, context: RequestContext
) -> "asyncio.Future[DescribeGroupsResponse]":
    """Each group as it is when its turn comes."""
    return node.slices.start(_slowly(node, request, context), "describing groups")


async def _slowly(node: _Node, request: DescribeGroupsRequest, context: RequestContext) -> DescribeGroupsResponse:
    """Few groups, or one of thousands of members, in each step."""
    groups: list[DescribedGroup] = []
    await node.slices.run(counted(context, _steps(node, request, context, groups)))
    return DescribeGroupsResponse(groups=tuple(groups))


def _steps(
    node: _Node, request: DescribeGroupsRequest, context: RequestContext, groups: list[DescribedGroup]
) -> Iterator[None]:
    described = 0
    for group_id in request.groups:
        groups.append((yield from _one(node, request, context, group_id)))
        described += 1 + len(groups[-1].members)
        if described >= _AT_ONCE:
            described = 0
            yield


def _one(
    node: _Node, request: DescribeGroupsRequest, context: RequestContext, group_id: str
) -> Generator[None, None, DescribedGroup]:
    if not node.access.allows(context, AclOperation.DESCRIBE, ResourceType.GROUP, group_id):
        return DescribedGroup(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED, group_id=group_id)
    group = yield from _describe(node, group_id, report_missing=context.api_version >= _REPORTS_MISSING_FROM)
    if group.error_code or not request.include_authorized_operations:
        return group
    return group._replace(authorized_operations=node.access.operations(context, ResourceType.GROUP, group_id))


def _describe(node: _Node, group_id: str, *, report_missing: bool) -> Generator[None, None, DescribedGroup]:
    runner = node.groups.find(group_id)
    if isinstance(runner, ErrorCode):
        return DescribedGroup(error_code=runner, group_id=group_id)
    return (yield from runner.shard.describe_group(group_id, report_missing=report_missing))
