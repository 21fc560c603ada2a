"""CreateTopics, versions 2–7. One node holds every replica, so a replication factor above 1 is refused.

KIP-525: the answer carries the settings (version 5 on); KIP-464: -1 asks for the broker's defaults.
"""

from collections import Counter
from typing import Protocol

from ottla.base.errors import StorageError
from ottla.broker.handlers.configs import topic_entries
from ottla.broker.handlers.table import RequestContext
from ottla.broker.metadata.rules import RefusedError, check_configs, check_name, check_partitions, check_replicas
from ottla.broker.ports.identity import HasIdentity
from ottla.broker.ports.settings import HasConfig
from ottla.broker.ports.topics import HasImage, HasTopics
from ottla.wire.codec import NULL_UUID
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)


class _Node(HasConfig, HasIdentity, HasImage, HasTopics, Protocol):
    """What this handler touches."""


def handle(node: _Node, request: CreateTopicsRequest, context: RequestContext) -> CreateTopicsResponse:
    """Make each topic that can be made."""
    counts = Counter(topic.name for topic in request.topics)
    results = []
    for name, count in counts.items():
        topic = next(each for each in request.topics if each.name == name)
        try:
            if count > 1:
                raise RefusedError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            results.append(_create(node, topic, validate_only=request.validate_only))
        except RefusedError as refused:
            results.append(CreatableTopicResult(name, error_code=refused.error, error_message=str(refused)))
        except StorageError as fault:
            results.append(
                CreatableTopicResult(name, error_code=ErrorCode.KAFKA_STORAGE_ERROR, error_message=str(fault))
            )
    return CreateTopicsResponse(topics=tuple(results))


def _create(node: _Node, topic: CreatableTopic, *, validate_only: bool) -> CreatableTopicResult:
    check_name(topic.name, node.image)
    partitions = _partitions(node, topic)
    configs = check_configs(node.config, {each.name: each.value for each in topic.configs})
    topic_id = NULL_UUID
    if not validate_only:
        topic_id = node.topics.create(topic.name, partitions, configs).topic_id
    entries = tuple(
        CreatableTopicConfigs(each.name, each.value, False, each.source, False)
        for each in topic_entries(node.config, configs)
    )
    return CreatableTopicResult(topic.name, topic_id, 0, None, 0, partitions, 1, entries)


def _partitions(node: _Node, topic: CreatableTopic) -> int:
    """How many partitions. RefusedError for a wrong number, and for replicas on nodes that do not exist."""
    if not topic.assignments:
        wanted = topic.num_partitions
        check_replicas(node.config.int("default.replication.factor"), topic.replication_factor)
        return check_partitions(node.config.int("num.partitions") if wanted == -1 else wanted)
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
