"""DescribeGroups, versions 0–6. A missing group is DEAD, from version 6 on GROUP_ID_NOT_FOUND (KIP-1043)."""

from ottla.broker.handlers.authorized import ON_GROUP
from ottla.broker.handlers.table import RequestContext
from ottla.broker.ports.groups import HasGroups
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse

_REPORTS_MISSING_FROM = 6


def handle(node: HasGroups, request: DescribeGroupsRequest, context: RequestContext) -> DescribeGroupsResponse:
    """Each group as it is now."""
    reports = context.api_version >= _REPORTS_MISSING_FROM
    groups = [_describe(node, each, reports) for each in request.groups]
    if request.include_authorized_operations:
        groups = [each if each.error_code else each._replace(authorized_operations=ON_GROUP) for each in groups]
    return DescribeGroupsResponse(groups=tuple(groups))


def _describe(node: HasGroups, group_id: str, reports_missing: bool) -> DescribedGroup:
    runner = node.groups.find(group_id)
    if isinstance(runner, ErrorCode):
        return DescribedGroup(error_code=runner, group_id=group_id)
    return runner.shard.describe_group(group_id, report_missing=reports_missing)
