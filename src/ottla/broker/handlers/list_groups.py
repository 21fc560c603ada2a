"""ListGroups, versions 0–5: by state from version 4 on (KIP-518), by type from version 5 on (KIP-848).

Who may describe the cluster sees all groups, others those that they may describe.
"""

from typing import Protocol

from ottla.broker.handlers.table import RequestContext
from ottla.broker.ports.access import HasAccess
from ottla.broker.ports.groups import HasGroups
from ottla.wire.acls import AclOperation, ResourceType
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse


class _Node(HasAccess, HasGroups, Protocol):
    """What this handler touches."""


def handle(node: _Node, request: ListGroupsRequest, context: RequestContext) -> ListGroupsResponse:
    """All groups of this node. If some are not loaded yet, the answer says that it is incomplete."""
    groups = tuple(
        group
        for runner in node.groups.active()
        for group in runner.shard.list_groups(request.states_filter, request.types_filter)
    )
    if not node.access.allows_cluster(context, AclOperation.DESCRIBE, told=False):
        names = (group.group_id for group in groups)
        hidden = node.access.refused(context, AclOperation.DESCRIBE, ResourceType.GROUP, names, told=False)
        groups = tuple(group for group in groups if group.group_id not in hidden)
    error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if node.groups.loading else ErrorCode.NONE
    return ListGroupsResponse(error_code=error, groups=groups)
