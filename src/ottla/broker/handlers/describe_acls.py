"""DescribeAcls, versions 1–3 (KIP-140): the ACLs that a filter means, by resource pattern."""

import asyncio
from collections.abc import Iterator
from heapq import merge
from typing import Final, Protocol

from ottla.broker.access.acls import AclFilter
from ottla.broker.handlers.table import RequestContext
from ottla.broker.ports.access import HasAccess
from ottla.broker.ports.quotas import counted
from ottla.broker.ports.slices import HasSlices
from ottla.broker.ports.topics import HasImage
from ottla.wire.acls import AclOperation
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)

#: ACLs that are sorted in one step.
_SORTED_AT_ONCE: Final = 500


class _Node(HasAccess, HasImage, HasSlices, Protocol):
    """What this handler touches."""


def handle(
    node: _Node, request: DescribeAclsRequest, context: RequestContext
) -> "DescribeAclsResponse | asyncio.Future[DescribeAclsResponse]":
    """All that the filter means. (A filter with UNKNOWN in it gets its connection closed by Kafka.)"""
    if not node.access.allows_cluster(context, AclOperation.DESCRIBE):
        return _refuse(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Seeing ACLs needs DESCRIBE on the cluster.")
    if not node.access.is_on:
        return _refuse(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured on the broker")
    wanted = AclFilter(*request)
    if 0 in (wanted.resource_type, wanted.pattern_type, wanted.operation, wanted.permission_type):
        return _refuse(ErrorCode.INVALID_REQUEST, "The filter has UNKNOWN elements; ANY means every one.")
    return node.slices.start(_told(node, wanted, context), "describing ACLs")


async def _told(node: _Node, wanted: AclFilter, context: RequestContext) -> DescribeAclsResponse:
    meant = (acl for acl in tuple(node.image.acls.all()) if wanted.matches(acl))
    found = await node.slices.collect(counted(context, meant))
    parts = (sorted(found[at : at + _SORTED_AT_ONCE]) for at in range(0, len(found), _SORTED_AT_ONCE))
    runs = await node.slices.collect(counted(context, parts))
    by_pattern: dict[tuple[int, str, int], list[AclDescription]] = {}

    def ordering() -> Iterator[None]:
        for acl in merge(*runs):
            by_pattern.setdefault(acl[:3], []).append(AclDescription(*acl[3:]))
            yield

    await node.slices.run(counted(context, ordering()))
    resources = (DescribeAclsResource(*pattern, tuple(acls)) for pattern, acls in by_pattern.items())
    told = await node.slices.collect(counted(context, resources))
    return DescribeAclsResponse(error_message=None, resources=tuple(told))


def _refuse(error: ErrorCode, message: str) -> DescribeAclsResponse:
    return DescribeAclsResponse(error_code=error, error_message=message)
