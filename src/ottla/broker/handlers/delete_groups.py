"""DeleteGroups, versions 0–2 (KIP-229): empty groups and their offsets.

Also the group without a name: a consumer without a group can have committed offsets to it.
"""

import asyncio
from collections.abc import Iterator
from functools import partial
from typing import Any, Protocol

from ottla.broker.handlers.parts import PART_PARTITIONS
from ottla.broker.handlers.table import RequestContext
from ottla.broker.ports.access import HasAccess
from ottla.broker.ports.groups import HasGroups
from ottla.broker.ports.quotas import counted
from ottla.broker.ports.slices import HasSlices
from ottla.broker.runtime.answers import gather
from ottla.coordinator.decision import Decision
from ottla.coordinator.group.shard import GroupShard
from ottla.wire.acls import AclOperation, ResourceType
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse


class _Node(HasAccess, HasGroups, HasSlices, Protocol):
    """What this handler touches."""


def handle(node: _Node, request: DeleteGroupsRequest, context: RequestContext) -> Any:
    """Delete each group that can be deleted."""
    results: list[DeletableGroupResult] = []
    asked: list[asyncio.Future[Any]] = []
    if _count(node, request) > PART_PARTITIONS:
        return node.slices.start(_slowly(node, request, context), "deleting groups with many offsets")
    for _ in _ask(node, request, context, results, asked):
        pass
    return gather(asked, lambda answers: DeleteGroupsResponse(results=(*results, *answers)))


async def _slowly(node: _Node, request: DeleteGroupsRequest, context: RequestContext) -> DeleteGroupsResponse:
    """One group in each step; of one with very many offsets the first part, and its shard goes on with the others."""
    results: list[DeletableGroupResult] = []
    asked: list[asyncio.Future[Any]] = []
    await node.slices.run(counted(context, _ask(node, request, context, results, asked)))
    return DeleteGroupsResponse(results=(*results, *[await each for each in asked]))


def _count(node: _Node, request: DeleteGroupsRequest) -> int:
    """How many offsets the groups have."""
    runners = [(node.groups.find(group_id), group_id) for group_id in request.groups_names]
    return sum(0 if isinstance(each, ErrorCode) else each.shard.count_offsets(group_id) for each, group_id in runners)


def _ask(
    node: _Node,
    request: DeleteGroupsRequest,
    context: RequestContext,
    results: list[DeletableGroupResult],
    asked: "list[asyncio.Future[Any]]",
) -> Iterator[None]:
    """Delete what can be deleted, in steps; put the refusals into `results`, and the answers of others into `asked`."""
    refused = node.access.refused(context, AclOperation.DELETE, ResourceType.GROUP, request.groups_names)
    for group_id in dict.fromkeys(request.groups_names):
        runner = node.groups.find(group_id)
        if group_id in refused:
            results.append(DeletableGroupResult(group_id, ErrorCode.GROUP_AUTHORIZATION_FAILED))
        elif isinstance(runner, ErrorCode):
            results.append(DeletableGroupResult(group_id, runner))
        else:
            asked.append(runner.submit(partial(_delete, runner.shard, group_id)))
        yield


def _delete(shard: GroupShard, group_id: str, token: int, now_ms: int) -> Decision:
    return shard.delete_group(token, group_id)
