"""DescribeConfigs, versions 1–4: settings of topics and of the broker, with synonyms and documentation on request."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ottla.broker.handlers.configs import CONFIG_TYPES, ConfigEntry, broker_entries, topic_entries
from ottla.broker.handlers.table import RequestContext
from ottla.broker.metadata.image import BROKER_RESOURCE, TOPIC_RESOURCE
from ottla.broker.metadata.names import name_problem
from ottla.broker.metadata.rules import RefusedError
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

if TYPE_CHECKING:
    from ottla.broker.node import Node

#: Resources that exist in Kafka and never have settings here: broker loggers, client metrics, groups.
_WITHOUT_SETTINGS = (8, 16, 32)


def handle(node: "Node", request: DescribeConfigsRequest, context: RequestContext) -> DescribeConfigsResponse:
    """Each resource's settings, or why not."""
    return DescribeConfigsResponse(results=tuple(_describe(node, request, each) for each in request.resources))


def _describe(
    node: "Node", request: DescribeConfigsRequest, resource: DescribeConfigsResource
) -> DescribeConfigsResult:
    kind, name = resource.resource_type, resource.resource_name
    try:
        entries = _entries(node, kind, name)
    except RefusedError as refused:
        return DescribeConfigsResult(refused.error, str(refused), kind, name)
    wanted = resource.configuration_keys
    told = (each for each in entries if wanted is None or each.name in wanted)
    return DescribeConfigsResult(0, None, kind, name, tuple(_tell(request, each) for each in told))


def _entries(node: "Node", kind: int, name: str) -> Iterator[ConfigEntry]:
    if kind == TOPIC_RESOURCE:
        problem = name_problem(name)
        if problem is not None:
            raise RefusedError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
        if name not in node.metadata.image.topics:
            raise RefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name} does not exist")
        return topic_entries(node.config, node.metadata.image.topic_configs(name))
    if kind == BROKER_RESOURCE:
        if name not in ("", str(node.node_id)):
            raise RefusedError(
                ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected {node.node_id} or empty string, got {name}"
            )
        return broker_entries(node.config)
    if kind in _WITHOUT_SETTINGS:
        return iter(())
    raise RefusedError(ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {kind}")


def _tell(request: DescribeConfigsRequest, entry: ConfigEntry) -> DescribeConfigsResourceResult:
    synonyms: tuple[DescribeConfigsSynonym, ...] = ()
    if request.include_synonyms:
        synonyms = tuple(DescribeConfigsSynonym(each.name, each.value, each.source) for each in entry.synonyms)
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        is_sensitive=entry.key.sensitive,
        synonyms=synonyms,
        config_type=CONFIG_TYPES.get(entry.key.type, 0),
        documentation=entry.key.doc if request.include_documentation else None,
    )
