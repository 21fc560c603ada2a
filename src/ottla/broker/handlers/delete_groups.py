"""DeleteGroups, versions 0–2 (KIP-229): empty groups and their offsets.

Also the group without a name: a consumer without a group can have committed offsets to it.
"""

from typing import Any, Protocol

from ottla.broker.handlers.table import RequestContext
from ottla.broker.ports.access import HasAccess
from ottla.broker.ports.groups import HasGroups
from ottla.broker.runtime.answers import gather
from ottla.wire.acls import AclOperation, ResourceType
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse


class _Node(HasAccess, HasGroups, Protocol):
    """What this handler touches."""


def handle(node: _Node, request: DeleteGroupsRequest, context: RequestContext) -> Any:
    """Delete each group that can be deleted."""
    results: list[DeletableGroupResult] = []
    asked = []
    refused = node.access.refused(context, AclOperation.DELETE, ResourceType.GROUP, request.groups_names)
    for group_id in dict.fromkeys(request.groups_names):
        if group_id in refused:
            results.append(DeletableGroupResult(group_id, ErrorCode.GROUP_AUTHORIZATION_FAILED))
            continue
        runner = node.groups.find(group_id)
        if isinstance(runner, ErrorCode):
            results.append(DeletableGroupResult(group_id, runner))
            continue
        shard = runner.shard
        asked.append(
            runner.submit(
                lambda token, now_ms, shard=shard, group_id=group_id: shard.delete_group(token, group_id)  # type: ignore[misc]
            )
        )
    return gather(asked, lambda answers: DeleteGroupsResponse(results=(*results, *answers)))
