"""AlterConfigs, versions 0–2: the older way, which replaces all of a topic's own settings by those given."""

from typing import TYPE_CHECKING

from ottla.base.errors import StorageError
from ottla.broker.handlers.table import RequestContext
from ottla.broker.metadata.rules import RefusedError, check_configs
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)

if TYPE_CHECKING:
    from ottla.broker.node import Node


def handle(node: "Node", request: AlterConfigsRequest, context: RequestContext) -> AlterConfigsResponse:
    """Each resource is changed as a whole or not at all."""
    return AlterConfigsResponse(
        responses=tuple(_alter(node, each, validate_only=request.validate_only) for each in request.resources)
    )


def _alter(node: "Node", resource: AlterConfigsResource, *, validate_only: bool) -> AlterConfigsResourceResponse:
    kind, name = resource.resource_type, resource.resource_name
    try:
        node.check_alterable(kind, name)
        nulls = [each.name for each in resource.configs if each.value is None]
        if nulls:
            raise RefusedError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {','.join(nulls)}")
        given = check_configs(node.config, {each.name: each.value for each in resource.configs})
        gone: dict[str, str | None] = dict.fromkeys(node.metadata.image.topic_configs(name), None)
        if not validate_only:
            node.alter_topic(name, gone | given)
    except RefusedError as refused:
        return AlterConfigsResourceResponse(refused.error, str(refused), kind, name)
    except StorageError as fault:
        return AlterConfigsResourceResponse(ErrorCode.KAFKA_STORAGE_ERROR, str(fault), kind, name)
    return AlterConfigsResourceResponse(0, None, kind, name)
