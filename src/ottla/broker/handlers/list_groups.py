"""ListGroups, versions 0–5: by state from version 4 on (KIP-518), by type from version 5 on (KIP-848)."""

from ottla.broker.handlers.table import RequestContext
from ottla.broker.ports.groups import HasGroups
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse


def handle(node: HasGroups, request: ListGroupsRequest, context: RequestContext) -> ListGroupsResponse:
    """All groups of this node. If some are not loaded yet, the answer says that it is incomplete."""
    groups = tuple(
        group
        for runner in node.groups.active()
        for group in runner.shard.list_groups(request.states_filter, request.types_filter)
    )
    error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if node.groups.loading else ErrorCode.NONE
    return ListGroupsResponse(error_code=error, groups=groups)
