"""ListConfigResources, versions 0–1 (KIP-1000, KIP-1142): what has settings that DescribeConfigs tells.

Version 0 asks for client metrics, of which there are none. A group is one of them if it has settings of its own.
"""

import asyncio
from collections.abc import Iterator
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

_LOGGER, _CLIENT_METRICS = 8, 16
_KINDS: Final = frozenset((TOPIC_RESOURCE, BROKER_RESOURCE, _LOGGER, _CLIENT_METRICS, GROUP_RESOURCE))
#: From here on a request says of which kinds; none are all.
_SAYS_KINDS_FROM: Final = 1


class _Node(HasAccess, HasIdentity, HasImage, HasSlices, Protocol):
    """What this handler touches."""


def handle(
    node: _Node, request: ListConfigResourcesRequest, context: RequestContext
) -> "ListConfigResourcesResponse | asyncio.Future[ListConfigResourcesResponse]":
    """The resources of these kinds. A kind that there is not is an error for the whole request."""
    if not node.access.allows_cluster(context, AclOperation.DESCRIBE_CONFIGS):
        return ListConfigResourcesResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    kinds = frozenset(request.resource_types)
    if context.api_version < _SAYS_KINDS_FROM:
        kinds = frozenset((_CLIENT_METRICS,))
    if not kinds <= _KINDS:
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    return node.slices.start(_slowly(node, kinds or _KINDS, context), "listing resources")


async def _slowly(node: _Node, kinds: frozenset[int], context: RequestContext) -> ListConfigResourcesResponse:
    found = await node.slices.collect(counted(context, _resources(node, kinds)))
    return ListConfigResourcesResponse(config_resources=tuple(each for each in found if each is not None))


def _resources(node: _Node, kinds: frozenset[int]) -> Iterator[ConfigResource | None]:
    """One in each step; None for settings of something else."""
    for kind in kinds & {BROKER_RESOURCE, _LOGGER}:
        yield ConfigResource(str(node.identity.node_id), kind)
    if TOPIC_RESOURCE in kinds:
        for name in tuple(node.image.topics):
            yield ConfigResource(name, TOPIC_RESOURCE)
    if GROUP_RESOURCE in kinds:
        for kind, name in tuple(node.image.configs):
            yield ConfigResource(name, GROUP_RESOURCE) if kind == GROUP_RESOURCE else None
