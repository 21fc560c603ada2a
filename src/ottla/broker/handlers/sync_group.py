"""SyncGroup, versions 0–5: the leader brings the assignment, and every member fetches its own part."""

from typing import Any, Protocol

from ottla.broker.handlers.table import RequestContext
from ottla.broker.ports.access import HasAccess
from ottla.broker.ports.groups import HasGroups
from ottla.wire.acls import AclOperation, ResourceType
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

_PROTOCOL_FROM = 5


class _Node(HasAccess, HasGroups, Protocol):
    """What this handler touches."""


def handle(node: _Node, request: SyncGroupRequest, context: RequestContext) -> Any:
    """Wait for the leader's assignment."""
    if context.api_version >= _PROTOCOL_FROM and None in (request.protocol_type, request.protocol_name):
        # KIP-559: from version 5 on a member must name both, protocol type and protocol.
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if not node.access.allows(context, AclOperation.READ, ResourceType.GROUP, request.group_id):
        return SyncGroupResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    runner = node.groups.find(request.group_id)
    if isinstance(runner, ErrorCode):
        return SyncGroupResponse(error_code=_known(runner))
    shard = runner.shard
    return runner.submit(lambda token, now_ms: shard.sync_group(token, request, now_ms))


def _known(error: ErrorCode) -> ErrorCode:
    """The error as members know it. As in Kafka, COORDINATOR_LOAD_IN_PROGRESS becomes a request to rejoin."""
    return ErrorCode.REBALANCE_IN_PROGRESS if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else error
