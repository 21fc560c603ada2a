"""DescribeConfigs, versions 1–4: settings of topics and of the broker, with synonyms and documentation on request."""

import asyncio
from collections.abc import Iterable, Iterator
from typing import Any, Protocol

from ottla.base.topic_names import topic_name_problem
from ottla.broker.handlers.authorized import UNAUTHORIZED, UNAUTHORIZED_TEXT
from ottla.broker.handlers.configs import CONFIG_TYPES, ConfigEntry, broker_entries, group_entries, topic_entries
from ottla.broker.handlers.table import RequestContext
from ottla.broker.metadata.image import BROKER_RESOURCE, GROUP_RESOURCE, TOPIC_RESOURCE
from ottla.broker.metadata.rules import RefusedError
from ottla.broker.ports.access import HasAccess
from ottla.broker.ports.identity import HasIdentity
from ottla.broker.ports.quotas import counted
from ottla.broker.ports.settings import HasConfig
from ottla.broker.ports.slices import HasSlices
from ottla.broker.ports.topics import HasImage
from ottla.wire.acls import CLUSTER_NAME, AclOperation, ResourceType
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

#: Resources that exist in Kafka and never have settings here: broker loggers, client metrics.
_WITHOUT_SETTINGS = (8, 16)
#: More resources than these are described in slices: a topic has some forty settings, a broker two hundred.
_AT_ONCE = 3
#: Of more than these, one that is named again is answered once.
_DISTINCT_BEYOND = 10
_KINDS = (TOPIC_RESOURCE, BROKER_RESOURCE, GROUP_RESOURCE, *_WITHOUT_SETTINGS)

#: What is not here belongs to the cluster.
_NEEDED = {TOPIC_RESOURCE: ResourceType.TOPIC, GROUP_RESOURCE: ResourceType.GROUP}


class _Node(HasAccess, HasConfig, HasIdentity, HasImage, HasSlices, Protocol):
    """What this handler touches."""


def handle(
    node: _Node, request: DescribeConfigsRequest, context: RequestContext
) -> "DescribeConfigsResponse | asyncio.Future[DescribeConfigsResponse]":
    """Each resource's settings, or an error. An unknown kind of resource is an error for the whole request."""
    unknown = [each.resource_type for each in request.resources if each.resource_type not in _KINDS]
    if unknown:
        problem = f"Unexpected resource type {unknown[0]}"
        refused = (
            DescribeConfigsResult(ErrorCode.INVALID_REQUEST, problem, each.resource_type, each.resource_name)
            for each in request.resources
        )
        return DescribeConfigsResponse(results=tuple(refused))
    if len(request.resources) > _AT_ONCE:
        return node.slices.start(_describe_many(node, request, context), "settings of many resources")
    tell = _Tell(request)
    return DescribeConfigsResponse(results=tuple(_describe(node, tell, each, context) for each in request.resources))


async def _describe_many(
    node: _Node, request: DescribeConfigsRequest, context: RequestContext
) -> DescribeConfigsResponse:
    results: list[DescribeConfigsResult] = []
    tell = _Tell(request)

    def steps() -> Iterator[None]:
        wanted: Iterable[DescribeConfigsResource] = request.resources
        if len(request.resources) > _DISTINCT_BEYOND:
            resources: dict[tuple[int, str], dict[str, None] | None] = {}
            for each in request.resources:
                _want(resources, each)
                yield
            wanted = (
                DescribeConfigsResource(kind, name, None if keys is None else tuple(keys))
                for (kind, name), keys in resources.items()
            )
        for each in wanted:
            results.append(_describe(node, tell, each, context))
            yield

    await node.slices.run(counted(context, steps()))
    return DescribeConfigsResponse(results=tuple(results))


def _want(resources: dict[tuple[int, str], dict[str, None] | None], resource: DescribeConfigsResource) -> None:
    """Add a resource. One that is named again is answered once, with all the keys that are asked of it (None: all it
    has): a few bytes for each name would be answered with kilobytes."""
    place, keys = (resource.resource_type, resource.resource_name), resource.configuration_keys
    before = resources.get(place, {})
    if before is None or not keys:
        resources[place] = None
    else:
        before.update(dict.fromkeys(keys))
        resources[place] = before


def _describe(
    node: _Node, tell: "_Tell", resource: DescribeConfigsResource, context: RequestContext
) -> DescribeConfigsResult:
    kind, name = resource.resource_type, resource.resource_name
    needed = _NEEDED.get(kind, ResourceType.CLUSTER)
    about = CLUSTER_NAME if needed is ResourceType.CLUSTER else name
    if not node.access.allows(context, AclOperation.DESCRIBE_CONFIGS, needed, about):
        return DescribeConfigsResult(UNAUTHORIZED[needed], UNAUTHORIZED_TEXT[needed], kind, name)
    try:
        entries = _entries(node, kind, name)
    except RefusedError as refused:
        return DescribeConfigsResult(refused.error, str(refused), kind, name)
    wanted = frozenset(resource.configuration_keys or ())
    told = (each for each in entries if not wanted or each.name in wanted)
    return DescribeConfigsResult(0, "", kind, name, tuple(map(tell, told)))


def _entries(node: _Node, kind: int, name: str) -> Iterator[ConfigEntry]:
    if kind == TOPIC_RESOURCE:
        problem = topic_name_problem(name)
        if problem is not None:
            raise RefusedError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
        if name not in node.image.topics:
            raise RefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name} does not exist")
        return topic_entries(node.config, node.image.topic_configs(name))
    if kind == GROUP_RESOURCE:
        if not name:
            raise RefusedError(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
        return group_entries(node.config, node.image.own_configs(kind, name))
    if kind == BROKER_RESOURCE:
        own_id = str(node.identity.node_id)
        if name not in ("", own_id):
            raise RefusedError(
                ErrorCode.INVALID_REQUEST,
                f"Unexpected broker id, expected {own_id} or empty string, got {name}",
            )
        # A request without an id asks for what was set for all brokers while they ran. That is nothing.
        return broker_entries(node.config) if name else iter(())
    return iter(())


class _Tell:
    """What is told of a setting. Equal settings are one struct: thousands of topics have forty each, nearly all equal,
    and to free so many structs takes long."""

    def __init__(self, request: DescribeConfigsRequest) -> None:
        self._request = request
        self._told: dict[Any, DescribeConfigsResourceResult] = {}

    def __call__(self, entry: ConfigEntry) -> DescribeConfigsResourceResult:
        known = id(entry.key), entry.read_only, entry.name, entry.value, entry.synonyms
        if known not in self._told:
            self._told[known] = self._new(entry)
        return self._told[known]

    def _new(self, entry: ConfigEntry) -> DescribeConfigsResourceResult:
        synonyms: tuple[DescribeConfigsSynonym, ...] = ()
        if self._request.include_synonyms:
            synonyms = tuple(DescribeConfigsSynonym(each.name, each.value, each.source) for each in entry.synonyms)
        return DescribeConfigsResourceResult(
            name=entry.name,
            value=entry.value,
            read_only=entry.read_only,
            config_source=entry.source,
            is_sensitive=entry.key.sensitive,
            synonyms=synonyms,
            config_type=CONFIG_TYPES.get(entry.key.type, 0),
            documentation=entry.key.doc if self._request.include_documentation else None,
        )
