"""CreateTopics, versions 2–7. One node holds every replica, so a replication factor above 1 is refused.

KIP-525: the answer carries the settings (version 5 on); KIP-464: -1 asks for the broker's defaults.
"""

import asyncio
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from functools import partial
from typing import Protocol

from ottla.base.errors import StorageError
from ottla.broker.config import BrokerConfig
from ottla.broker.handlers.configs import topic_entries
from ottla.broker.handlers.mutations import count_change
from ottla.broker.handlers.table import RequestContext
from ottla.broker.metadata.image import TopicImage
from ottla.broker.metadata.names import METADATA_TOPIC, TopicNames
from ottla.broker.metadata.rules import (
    RefusedError,
    check_configs,
    check_name,
    check_partitions,
    check_replicas,
    check_total_partitions,
)
from ottla.broker.ports.access import HasAccess
from ottla.broker.ports.identity import HasIdentity
from ottla.broker.ports.settings import HasConfig
from ottla.broker.ports.slices import HasSlices
from ottla.broker.ports.topics import HasImage, HasTopics, NewTopic
from ottla.wire.acls import AclOperation, ResourceType
from ottla.wire.codec import NULL_UUID
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

#: From here on a client knows THROTTLING_QUOTA_EXCEEDED.
_KNOWS_QUOTAS_FROM = 6
_UNAUTHORIZED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


class _Node(HasAccess, HasConfig, HasIdentity, HasImage, HasSlices, HasTopics, Protocol):
    """What this handler touches."""


def handle(
    node: _Node, request: CreateTopicsRequest, context: RequestContext
) -> "asyncio.Future[CreateTopicsResponse]":
    """Make each topic that can be made."""
    return node.slices.start(_create(node, request, context), "creating topics")


async def _create(node: _Node, request: CreateTopicsRequest, context: RequestContext) -> CreateTopicsResponse:
    """What is refused waits for no other change, and is given up with its connection."""
    refused = await _refused(node, request, context)
    told = await node.slices.collect(
        CreatableTopicResult(name, error_code=_UNAUTHORIZED, error_message="Authorization failed.")
        for name in sorted(refused)
    )
    request = request._replace(topics=tuple(topic for topic in request.topics if topic.name not in refused))
    if not request.topics:
        return CreateTopicsResponse(topics=tuple(told))
    response: CreateTopicsResponse = await node.topics.change(partial(_create_all, node, request, context))
    return response._replace(topics=(*told, *response.topics))


async def _create_all(node: _Node, request: CreateTopicsRequest, context: RequestContext) -> CreateTopicsResponse:
    counts = Counter([topic.name for topic in request.topics])
    asked = await node.slices.collect(_asked_partitions(node, topic) for topic in request.topics)
    try:
        check_total_partitions(asked)
    except RefusedError as many:
        told = CreatableTopicResult(error_code=many.error, error_message=str(many))
        refused = await node.slices.collect(told._replace(name=each) for each in counts)
        return CreateTopicsResponse(topics=tuple(refused))
    results: list[CreatableTopicResult] = []
    wanted: dict[str, NewTopic] = {}
    hidden = await node.access.refused_of_many(
        node.slices, context, AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, counts, told=False
    )
    await node.slices.run(_check_all(node, request, counts, hidden, context, wanted, results))
    made = {} if request.validate_only else await node.topics.create_all(tuple(wanted.values()))
    topics = await node.slices.collect(_told(result, made.get(result.name)) for result in results)
    return CreateTopicsResponse(topics=tuple(topics))


async def _refused(node: _Node, request: CreateTopicsRequest, context: RequestContext) -> frozenset[str]:
    """The names that may not be made topics of. What can be no topic anyway is told so instead."""
    counts = Counter([topic.name for topic in request.topics])
    names = [name for name, count in counts.items() if count == 1 and name != METADATA_TOPIC]
    if await node.access.covers_many(node.slices, context, AclOperation.CREATE, ResourceType.TOPIC, names):
        return frozenset()
    return await node.access.refused_of_many(node.slices, context, AclOperation.CREATE, ResourceType.TOPIC, names)


def _check_all(
    node: _Node,
    request: CreateTopicsRequest,
    counts: Mapping[str, int],
    hidden: Collection[str],
    context: RequestContext,
    wanted: dict[str, NewTopic],
    results: list[CreatableTopicResult],
) -> Iterator[None]:
    """Check a topic in each step. Those that are good go into `wanted`, and what is known of each into `results`."""
    coming, entries = TopicNames(), _Entries(node.config)
    for topic in {each.name: each for each in request.topics}.values():
        try:
            if counts[topic.name] > 1:
                raise RefusedError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            new = _check(node, topic, coming)
            count_change(context, new.partitions, strict_from=_KNOWS_QUOTAS_FROM)
            wanted[topic.name] = new
            coming.add(topic.name)
            results.append(_good(new, hidden, entries))
        except RefusedError as refused:
            results.append(CreatableTopicResult(topic.name, error_code=refused.error, error_message=str(refused)))
        yield


def _told(result: CreatableTopicResult, made: TopicImage | StorageError | None) -> CreatableTopicResult:
    """What became of a topic; None of one that was refused before."""
    if isinstance(made, TopicImage):
        return result._replace(topic_id=made.topic_id)
    if made is None:
        return result
    return CreatableTopicResult(result.name, error_code=ErrorCode.KAFKA_STORAGE_ERROR, error_message=str(made))


def _check(node: _Node, topic: CreatableTopic, coming: TopicNames) -> NewTopic:
    check_name(topic.name, node.image, coming)
    partitions = _partitions(node, topic)
    configs = check_configs(node.config, {each.name: each.value for each in topic.configs})
    return NewTopic(topic.name, partitions, configs)


class _Entries:
    """What topics are told of their settings. It is made once for all that have the same: some forty structs."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._made: dict[frozenset[tuple[str, str]], tuple[CreatableTopicConfigs, ...]] = {}

    def of(self, configs: Mapping[str, str]) -> tuple[CreatableTopicConfigs, ...]:
        """Of a topic with these settings of its own."""
        key = frozenset(configs.items())
        if key not in self._made:
            self._made[key] = tuple(
                CreatableTopicConfigs(each.name, each.value, False, each.source, False)
                for each in topic_entries(self._config, configs)
            )
        return self._made[key]


def _good(new: NewTopic, hidden: Collection[str], entries: _Entries) -> CreatableTopicResult:
    if new.name in hidden:  # whoever made it may not see its settings
        return CreatableTopicResult(new.name, topic_config_error_code=_UNAUTHORIZED)
    return CreatableTopicResult(new.name, NULL_UUID, 0, None, 0, new.partitions, 1, entries.of(new.configs))


def _asked_partitions(node: _Node, topic: CreatableTopic) -> int:
    """How many partitions are asked for; perhaps not a number that a topic can have."""
    if topic.assignments:
        return len(topic.assignments)
    return node.config.int("num.partitions") if topic.num_partitions == -1 else topic.num_partitions


def _partitions(node: _Node, topic: CreatableTopic) -> int:
    """How many partitions. RefusedError for a wrong number, and for replicas on nodes that do not exist."""
    if not topic.assignments:
        check_replicas(node.config.int("default.replication.factor"), topic.replication_factor)
        return check_partitions(_asked_partitions(node, topic))
    if topic.num_partitions != -1 or topic.replication_factor != -1:
        raise RefusedError(
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, so numPartitions and replicationFactor must be -1.",
        )
    if sorted(each.partition_index for each in topic.assignments) != list(range(len(topic.assignments))):
        raise RefusedError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partitions should be a consecutive 0-based integer sequence"
        )
    if any(each.broker_ids != (node.identity.node_id,) for each in topic.assignments):
        raise RefusedError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"the only broker is {node.identity.node_id}")
    return check_partitions(len(topic.assignments))
