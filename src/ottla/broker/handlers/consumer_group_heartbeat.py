"""ConsumerGroupHeartbeat, versions 0–1 (KIP-848). From version 1 on members make their ids themselves (KIP-1082)."""

import uuid
from typing import Any, Protocol

from ottla.base.types import topic_id_text
from ottla.broker.handlers.table import RequestContext
from ottla.broker.ports.access import HasAccess
from ottla.broker.ports.groups import HasGroups
from ottla.broker.ports.identity import HasRandom
from ottla.broker.ports.settings import HasConfig
from ottla.coordinator.group.context import RequestContext as Client
from ottla.wire.acls import AclOperation, ResourceType
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse

_MEMBER_ID_REQUIRED_FROM = 1
_PROTOCOL = "consumer"


class _Node(HasAccess, HasConfig, HasGroups, HasRandom, Protocol):
    """What this handler touches."""


def handle(node: _Node, request: ConsumerGroupHeartbeatRequest, context: RequestContext) -> Any:
    """A member joins, stays or leaves; UNSUPPORTED_VERSION where `group.coordinator.rebalance.protocols` forbids it."""
    if _PROTOCOL not in node.config.list("group.coordinator.rebalance.protocols"):
        return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    if not node.access.allows(context, AclOperation.READ, ResourceType.GROUP, request.group_id):
        return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if node.access.refused(context, AclOperation.DESCRIBE, ResourceType.TOPIC, request.subscribed_topic_names or ()):
        return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    runner = node.groups.find(request.group_id)
    if isinstance(runner, ErrorCode):
        return ConsumerGroupHeartbeatResponse(error_code=runner)
    shard = runner.shard
    client = Client(context.client_id, context.session.client_host, node.access.sees(context))
    unique = topic_id_text(uuid.UUID(int=node.rng.getrandbits(128), version=4).bytes)
    required = context.api_version >= _MEMBER_ID_REQUIRED_FROM
    return runner.submit(
        lambda token, now_ms: shard.consumer_group_heartbeat(
            token, request, client, now_ms, unique_id=unique, member_id_required=required
        )
    )
