"""ListPartitionReassignments, version 0 (KIP-455): there is one node, so no partition is ever on its way to another."""

from typing import Protocol

from ottla.broker.handlers.authorized import UNAUTHORIZED_TEXT
from ottla.broker.handlers.table import RequestContext
from ottla.broker.ports.access import HasAccess
from ottla.wire.acls import AclOperation, ResourceType
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)


class _Node(HasAccess, Protocol):
    """What this handler touches."""


def handle(
    node: _Node, request: ListPartitionReassignmentsRequest, context: RequestContext
) -> ListPartitionReassignmentsResponse:
    """None, also of topics that are not there."""
    if not node.access.allows_cluster(context, AclOperation.DESCRIBE):
        refused = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return ListPartitionReassignmentsResponse(
            error_code=refused, error_message=UNAUTHORIZED_TEXT[ResourceType.CLUSTER]
        )
    return ListPartitionReassignmentsResponse(error_message=None)
