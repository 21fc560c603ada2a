"""DescribeGroups, versions 0–6. A missing group is DEAD, from version 6 on GROUP_ID_NOT_FOUND (KIP-1043)."""

from collections.abc import Collection
from typing import Protocol

from ottla.broker.handlers.table import RequestContext
from ottla.broker.ports.access import HasAccess
from ottla.broker.ports.groups import HasGroups
from ottla.wire.acls import AclOperation, ResourceType
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse

_REPORTS_MISSING_FROM = 6


class _Node(HasAccess, HasGroups, Protocol):
    """What this handler touches."""


def handle(node: _Node, request: DescribeGroupsRequest, context: RequestContext) -> DescribeGroupsResponse:
    """Each group as it is now."""
    reports = context.api_version >= _REPORTS_MISSING_FROM
    refused = node.access.refused(context, AclOperation.DESCRIBE, ResourceType.GROUP, request.groups)
    groups = [_describe(node, each, reports, refused) for each in request.groups]
    if request.include_authorized_operations:
        groups = [
            each
            if each.error_code
            else each._replace(authorized_operations=node.access.operations(context, ResourceType.GROUP, each.group_id))
            for each in groups
        ]
    return DescribeGroupsResponse(groups=tuple(groups))


def _describe(node: _Node, group_id: str, reports_missing: bool, refused: Collection[str]) -> DescribedGroup:
    if group_id in refused:
        return DescribedGroup(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED, group_id=group_id)
    runner = node.groups.find(group_id)
    if isinstance(runner, ErrorCode):
        return DescribedGroup(error_code=runner, group_id=group_id)
    return runner.shard.describe_group(group_id, report_missing=reports_missing)
