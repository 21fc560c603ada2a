"""IncrementalAlterConfigs, versions 0–1 (KIP-339): set, delete, append to or subtract from a topic's settings."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from ottla.base.errors import StorageError
from ottla.broker.handlers.table import RequestContext
from ottla.broker.metadata.rules import RefusedError, check_configs
from ottla.broker.topic_config import TOPIC_CONFIG, default_value, render
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from ottla.broker.node import Node

_SET, _DELETE, _APPEND, _SUBTRACT = 0, 1, 2, 3
#: Keys whose value is a list, so that it can be added to.
_LISTS: Final = (
    "cleanup.policy",
    "leader.replication.throttled.replicas",
    "follower.replication.throttled.replicas",
)


def handle(
    node: "Node", request: IncrementalAlterConfigsRequest, context: RequestContext
) -> IncrementalAlterConfigsResponse:
    """Each resource is changed as a whole or not at all."""
    return IncrementalAlterConfigsResponse(
        responses=tuple(_alter(node, each, validate_only=request.validate_only) for each in request.resources)
    )


def _alter(node: "Node", resource: AlterConfigsResource, *, validate_only: bool) -> AlterConfigsResourceResponse:
    kind, name = resource.resource_type, resource.resource_name
    try:
        node.check_alterable(kind, name)
        changes = _changes(node, name, resource.configs)
        own = dict(node.metadata.image.topic_configs(name)) | changes
        check_configs(node.config, {key: value for key, value in own.items() if value is not None})
        if not validate_only:
            node.alter_topic(name, changes)
    except RefusedError as refused:
        return AlterConfigsResourceResponse(refused.error, str(refused), kind, name)
    except StorageError as fault:
        return AlterConfigsResourceResponse(ErrorCode.KAFKA_STORAGE_ERROR, str(fault), kind, name)
    return AlterConfigsResourceResponse(0, None, kind, name)


def _changes(node: "Node", topic: str, operations: Iterable[AlterableConfig]) -> dict[str, str | None]:
    changes: dict[str, str | None] = {}
    for each in operations:
        if each.name in changes:
            raise RefusedError(ErrorCode.INVALID_REQUEST, f"{each.name} is named twice")
        changes[each.name] = _operate(node, topic, each)
    return changes


def _operate(node: "Node", topic: str, operation: AlterableConfig) -> str | None:
    name, value = operation.name, operation.value
    if operation.config_operation == _DELETE:
        if name not in TOPIC_CONFIG.keys:
            raise RefusedError(ErrorCode.INVALID_CONFIG, TOPIC_CONFIG.unknown(name))
        return None
    if operation.config_operation in (_APPEND, _SUBTRACT):
        if name not in _LISTS:
            raise RefusedError(ErrorCode.INVALID_CONFIG, f"Can't append to or subtract from {name}: it is no list.")
        own = node.metadata.image.topic_configs(topic).get(name) or render(default_value(node.config, name)) or ""
        words = [word for word in own.split(",") if word]
        named = [word.strip() for word in (value or "").split(",") if word.strip()]
        if operation.config_operation == _APPEND:
            words += [word for word in named if word not in words]
        else:
            words = [word for word in words if word not in named]
        value = ",".join(words)
    elif operation.config_operation != _SET:
        raise RefusedError(ErrorCode.INVALID_REQUEST, f"Unknown operation {operation.config_operation} for {name}")
    return value
