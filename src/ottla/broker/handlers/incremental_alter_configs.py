"""IncrementalAlterConfigs, versions 0–1 (KIP-339): set, delete, append to or subtract from own settings."""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Protocol

from ottla.base.config import ConfigType, sendable
from ottla.broker.config import BrokerConfig
from ottla.broker.handlers.altered import Asked, alter_all, check_access, check_names, check_values
from ottla.broker.handlers.table import RequestContext
from ottla.broker.metadata.image import BROKER_RESOURCE
from ottla.broker.metadata.rules import RefusedError
from ottla.broker.ports.access import HasAccess
from ottla.broker.ports.identity import HasIdentity
from ottla.broker.ports.settings import HasConfig
from ottla.broker.ports.slices import HasSlices
from ottla.broker.ports.topics import HasImage, HasTopics
from ottla.broker.resources import Resource
from ottla.broker.topic_config import render
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

_SET, _DELETE, _APPEND, _SUBTRACT = 0, 1, 2, 3


class _Node(HasAccess, HasConfig, HasIdentity, HasImage, HasSlices, HasTopics, Protocol):
    """What this handler touches."""


def handle(
    node: _Node, request: IncrementalAlterConfigsRequest, context: RequestContext
) -> "asyncio.Future[IncrementalAlterConfigsResponse]":
    """Each resource is changed as a whole or not at all. A resource that is named twice is not changed."""
    return node.topics.change(partial(_alter_all, node, request, context))


async def _alter_all(
    node: _Node, request: IncrementalAlterConfigsRequest, context: RequestContext
) -> IncrementalAlterConfigsResponse:
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
        is_idle=partial(_removes_nothing, node),
    )
    responses = await slices.collect(AlterConfigsResourceResponse(*each) for each in results)
    return IncrementalAlterConfigsResponse(responses=tuple(responses))


def _removes_nothing(node: _Node, kind: int, name: str, operations: Sequence[AlterableConfig]) -> bool:
    """Whether settings are to be removed that this broker, or all brokers together, have not got while they run.

    kafka-reassign-partitions does so with its throttles whenever it has verified or cancelled something.
    """
    if kind != BROKER_RESOURCE or name not in ("", str(node.identity.node_id)):
        return False
    check_names(each.name for each in operations)
    own = node.image.own_configs(kind, name)
    return all(each.config_operation == _DELETE and each.name not in own for each in operations)


def _changed(
    config: BrokerConfig, resource: Resource, own: Mapping[str, str], operations: Sequence[AlterableConfig]
) -> dict[str, str | None]:
    changes = _changes(config, resource, own, operations)
    after = dict(own) | changes
    resource.check(config, {key: value for key, value in after.items() if value is not None})
    return changes


def _changes(
    config: BrokerConfig, resource: Resource, own: Mapping[str, str], operations: Sequence[AlterableConfig]
) -> dict[str, str | None]:
    check_names(each.name for each in operations)
    check_values(each.name for each in operations if each.value is None and each.config_operation != _DELETE)
    changes = {each.name: _operate(config, resource, own, each) for each in operations}
    # Removing a setting that does not exist is no error, so the key need not be known either.
    return {name: value for name, value in changes.items() if value is not None or name in own}


def _operate(
    config: BrokerConfig, resource: Resource, own: Mapping[str, str], operation: AlterableConfig
) -> str | None:
    name, value, kind = operation.name, operation.value, operation.config_operation
    if kind == _DELETE:
        return None
    if kind == _SET:
        return value
    if kind not in (_APPEND, _SUBTRACT):
        raise RefusedError(ErrorCode.INVALID_REQUEST, f"Unknown operation {kind} for {name}")
    key = resource.keys.keys.get(name)
    if key is None or key.type is not ConfigType.LIST:
        said = "APPEND" if kind == _APPEND else "SUBTRACT"
        raise RefusedError(ErrorCode.INVALID_CONFIG, f"Can't {said} to key {name} because its type is not LIST.")
    present = own[name] if name in own else render(resource.default(config, name)) or ""
    words = [word for word in present.split(",") if word]
    named = [word.strip() for word in (value or "").split(",") if word.strip()]
    if kind == _SUBTRACT:
        gone = set(named)
        return ",".join(word for word in words if word not in gone)
    there = set(words)
    after = ",".join(words + [word for word in named if word not in there])
    # A start could not read a longer one; neither could a client that asks for it.
    problem = sendable(after)
    if problem is not None:
        raise RefusedError(ErrorCode.INVALID_CONFIG, f"Can't APPEND to {name}: the value {problem}")
    return after
