"""ListGroups, versions 0–5: by state from version 4 on (KIP-518), by type from version 5 on (KIP-848).

Who may describe the cluster sees all groups, others those that they may describe.
"""

import asyncio
from collections.abc import Iterator
from itertools import chain
from typing import Protocol

from ottla.broker.handlers.table import RequestContext
from ottla.broker.ports.access import HasAccess
from ottla.broker.ports.groups import HasGroups
from ottla.broker.ports.quotas import counted
from ottla.broker.ports.slices import HasSlices
from ottla.wire.acls import AclOperation, ResourceType
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse


class _Node(HasAccess, HasGroups, HasSlices, Protocol):
    """What this handler touches."""


def handle(node: _Node, request: ListGroupsRequest, context: RequestContext) -> "asyncio.Future[ListGroupsResponse]":
    """All groups of this node. If some are not loaded yet, the answer says that it is incomplete."""
    return node.slices.start(_list(node, request, context), "listing groups")


async def _list(node: _Node, request: ListGroupsRequest, context: RequestContext) -> ListGroupsResponse:
    is_incomplete = bool(node.groups.loading)
    groups = await node.slices.collect(counted(context, _shown(node, request, context)))
    error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if is_incomplete else ErrorCode.NONE
    return ListGroupsResponse(error_code=error, groups=tuple(chain.from_iterable(groups)))


def _shown(node: _Node, request: ListGroupsRequest, context: RequestContext) -> Iterator[tuple[ListedGroup, ...]]:
    """Those that may be described, some at a time: there may be very many."""
    sees_all = node.access.allows_cluster(context, AclOperation.DESCRIBE, told=False)
    for runner in node.groups.active():
        for groups in runner.shard.list_groups(request.states_filter, request.types_filter):
            names = () if sees_all else (group.group_id for group in groups)
            hidden = node.access.refused(context, AclOperation.DESCRIBE, ResourceType.GROUP, names, told=False)
            yield tuple(group for group in groups if group.group_id not in hidden)
