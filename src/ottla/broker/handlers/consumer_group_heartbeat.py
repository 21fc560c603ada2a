"""ConsumerGroupHeartbeat, versions 0–1 (KIP-848). From version 1 on members make their ids themselves (KIP-1082)."""

import asyncio
import uuid
from collections.abc import Collection, Sequence
from typing import Any, Protocol

from ottla.base.types import topic_id_text
from ottla.broker.handlers.parts import PART_NAMES
from ottla.broker.handlers.table import RequestContext
from ottla.broker.ports.access import HasAccess
from ottla.broker.ports.groups import HasGroups
from ottla.broker.ports.identity import HasRandom
from ottla.broker.ports.settings import HasConfig
from ottla.broker.ports.slices import HasSlices
from ottla.coordinator.group.context import RequestContext as Client
from ottla.wire.acls import AclOperation, ResourceType
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse

_MEMBER_ID_REQUIRED_FROM = 1
_PROTOCOL = "consumer"


#: The right to each topic that a member names.
_NEEDED = AclOperation.DESCRIBE, ResourceType.TOPIC


class _Node(HasAccess, HasConfig, HasGroups, HasRandom, HasSlices, Protocol):
    """What this handler touches."""


def handle(node: _Node, request: ConsumerGroupHeartbeatRequest, context: RequestContext) -> Any:
    """A member joins, stays or leaves; UNSUPPORTED_VERSION where `group.coordinator.rebalance.protocols` forbids it."""
    if _PROTOCOL not in node.config.list("group.coordinator.rebalance.protocols"):
        return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    if not node.access.allows(context, AclOperation.READ, ResourceType.GROUP, request.group_id):
        return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    names = request.subscribed_topic_names or ()
    if node.access.is_on and len(names) > PART_NAMES:
        return node.slices.start(_slowly(node, request, context, names), "a heartbeat with many topics")
    return _carry_out(node, request, context, node.access.refused(context, *_NEEDED, names))


async def _slowly(
    node: _Node, request: ConsumerGroupHeartbeatRequest, context: RequestContext, names: Sequence[str]
) -> ConsumerGroupHeartbeatResponse:
    """The topics are decided while others are served."""
    refused = await node.access.refused_of_many(node.slices, context, *_NEEDED, names)
    answer = _carry_out(node, request, context, refused)
    response: ConsumerGroupHeartbeatResponse = await answer if isinstance(answer, asyncio.Future) else answer
    return response


def _carry_out(
    node: _Node, request: ConsumerGroupHeartbeatRequest, context: RequestContext, refused: Collection[str]
) -> Any:
    if refused:
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
