"""AlterConfigs, versions 0–2: the older way, which replaces all own settings of a topic or group by those given."""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Protocol

from ottla.broker.config import BrokerConfig
from ottla.broker.handlers.altered import Asked, alter_all, check_access, check_names, check_values
from ottla.broker.handlers.table import RequestContext
from ottla.broker.ports.access import HasAccess
from ottla.broker.ports.settings import HasConfig
from ottla.broker.ports.slices import HasSlices
from ottla.broker.ports.topics import HasImage, HasTopics
from ottla.broker.resources import Resource
from ottla.wire.messages.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)


class _Node(HasAccess, HasConfig, HasImage, HasSlices, HasTopics, Protocol):
    """What this handler touches."""


def handle(
    node: _Node, request: AlterConfigsRequest, context: RequestContext
) -> "asyncio.Future[AlterConfigsResponse]":
    """Each resource is changed as a whole or not at all. A resource that is named twice is not changed."""
    return node.topics.change(partial(_alter_all, node, request, context))


async def _alter_all(node: _Node, request: AlterConfigsRequest, context: RequestContext) -> AlterConfigsResponse:
    slices = node.slices
    asked = await slices.collect(
        Asked(each.resource_type, each.resource_name, each.configs) for each in request.resources
    )
    results = await alter_all(
        node.topics,
        node.image,
        slices,
        asked,
        partial(_changed, node.config),
        partial(check_access, node.access, context),
        validate_only=request.validate_only,
    )
    responses = await slices.collect(AlterConfigsResourceResponse(*each) for each in results)
    return AlterConfigsResponse(responses=tuple(responses))


def _changed(
    config: BrokerConfig, resource: Resource, own: Mapping[str, str], configs: Sequence[AlterableConfig]
) -> dict[str, str | None]:
    check_names(each.name for each in configs)
    check_values(each.name for each in configs if each.value is None)
    given = resource.check(config, {each.name: each.value for each in configs})
    return dict.fromkeys(own, None) | given
