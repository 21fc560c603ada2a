"""AlterConfigs, versions 0–2: the older way, which replaces all own settings of a topic or group by those given."""

from typing import Protocol

from ottla.base.errors import StorageError
from ottla.broker.handlers.table import RequestContext
from ottla.broker.metadata.rules import RefusedError
from ottla.broker.ports.settings import HasConfig
from ottla.broker.ports.topics import HasImage, HasTopics
from ottla.broker.resources import ALTERABLE
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)


class _Node(HasConfig, HasImage, HasTopics, Protocol):
    """What this handler touches."""


def handle(node: _Node, request: AlterConfigsRequest, context: RequestContext) -> AlterConfigsResponse:
    """Each resource is changed as a whole or not at all."""
    return AlterConfigsResponse(
        responses=tuple(_alter(node, each, validate_only=request.validate_only) for each in request.resources)
    )


def _alter(node: _Node, resource: AlterConfigsResource, *, validate_only: bool) -> AlterConfigsResourceResponse:
    kind, name = resource.resource_type, resource.resource_name
    try:
        node.topics.check_alterable(kind, name)
        nulls = [each.name for each in resource.configs if each.value is None]
        if nulls:
            raise RefusedError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {','.join(nulls)}")
        given = ALTERABLE[kind].check(node.config, {each.name: each.value for each in resource.configs})
        gone: dict[str, str | None] = dict.fromkeys(node.image.own_configs(kind, name), None)
        if not validate_only:
            node.topics.alter(kind, name, gone | given)
    except RefusedError as refused:
        return AlterConfigsResourceResponse(refused.error, str(refused), kind, name)
    except StorageError as fault:
        return AlterConfigsResourceResponse(ErrorCode.KAFKA_STORAGE_ERROR, str(fault), kind, name)
    return AlterConfigsResourceResponse(0, None, kind, name)
