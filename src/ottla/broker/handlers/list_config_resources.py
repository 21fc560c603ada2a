"""ListConfigResources, versions 0–1 (KIP-1142): what has settings, by kind; of groups those with settings of their own.

Version 0 asks for client metrics alone, and there are none.
"""

import asyncio
from collections.abc import Iterator
from itertools import chain
from typing import Final, Protocol

from ottla.broker.handlers.table import RequestContext
from ottla.broker.metadata.image import BROKER_RESOURCE, GROUP_RESOURCE, TOPIC_RESOURCE
from ottla.broker.ports.access import HasAccess
from ottla.broker.ports.identity import HasIdentity
from ottla.broker.ports.quotas import counted
from ottla.broker.ports.slices import HasSlices
from ottla.broker.ports.topics import HasImage
from ottla.wire.acls import AclOperation
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

_BROKER_LOGGER_RESOURCE, _CLIENT_METRICS_RESOURCE = 8, 16
_KINDS: Final = frozenset(
    (TOPIC_RESOURCE, BROKER_RESOURCE, _BROKER_LOGGER_RESOURCE, _CLIENT_METRICS_RESOURCE, GROUP_RESOURCE)
)


class _Node(HasAccess, HasIdentity, HasImage, HasSlices, Protocol):
    """What this handler touches."""


def handle(
    node: _Node, request: ListConfigResourcesRequest, context: RequestContext
) -> "ListConfigResourcesResponse | asyncio.Future[ListConfigResourcesResponse]":
    """The resources of the kinds that are asked for; of all kinds if none is."""
    if not node.access.allows_cluster(context, AclOperation.DESCRIBE_CONFIGS):
        return ListConfigResourcesResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    offered = _KINDS if context.api_version > 0 else frozenset((_CLIENT_METRICS_RESOURCE,))
    wanted = frozenset(request.resource_types) or offered
    if not wanted <= offered:
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    return node.slices.start(_list(node, wanted, context), "listing what has settings")


async def _list(node: _Node, wanted: frozenset[int], context: RequestContext) -> ListConfigResourcesResponse:
    found = await node.slices.collect(counted(context, _resources(node, wanted)))
    return ListConfigResourcesResponse(config_resources=tuple(chain.from_iterable(found)))


def _resources(node: _Node, wanted: frozenset[int]) -> Iterator[tuple[ConfigResource, ...]]:
    """In Kafka's order, over what there is now: others may change it between two slices."""
    if GROUP_RESOURCE in wanted:
        for (kind, name), own in tuple(node.image.configs.items()):
            yield (ConfigResource(name, kind),) if kind == GROUP_RESOURCE and own else ()
    me = str(node.identity.node_id)
    yield tuple(ConfigResource(me, kind) for kind in (_BROKER_LOGGER_RESOURCE, BROKER_RESOURCE) if kind in wanted)
    if TOPIC_RESOURCE in wanted:
        for name in tuple(node.image.topics):
            yield (ConfigResource(name, TOPIC_RESOURCE),)
