"""CreatePartitions, versions 0–3 (KIP-195): a topic grows; it never shrinks."""

from collections import Counter
from typing import Protocol

from ottla.base.errors import StorageError
from ottla.broker.handlers.table import RequestContext
from ottla.broker.metadata.rules import RefusedError, check_partitions
from ottla.broker.ports.identity import HasIdentity
from ottla.broker.ports.topics import HasImage, HasTopics
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)


class _Node(HasIdentity, HasImage, HasTopics, Protocol):
    """What this handler touches."""


def handle(node: _Node, request: CreatePartitionsRequest, context: RequestContext) -> CreatePartitionsResponse:
    """Each topic is grown or refused."""
    counts = Counter(topic.name for topic in request.topics)
    results = []
    for topic in {each.name: each for each in request.topics}.values():
        try:
            if counts[topic.name] > 1:
                raise RefusedError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            _grow(node, topic, validate_only=request.validate_only)
            results.append(CreatePartitionsTopicResult(topic.name))
        except RefusedError as refused:
            results.append(CreatePartitionsTopicResult(topic.name, refused.error, str(refused)))
        except StorageError as fault:
            results.append(CreatePartitionsTopicResult(topic.name, ErrorCode.KAFKA_STORAGE_ERROR, str(fault)))
    return CreatePartitionsResponse(results=tuple(results))


def _grow(node: _Node, wanted: CreatePartitionsTopic, *, validate_only: bool) -> None:
    topic = node.image.topics.get(wanted.name)
    if topic is None:
        raise RefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")
    have, want = len(topic.partitions), wanted.count
    if want == have:
        raise RefusedError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {have} partition(s).")
    if want < have:
        raise RefusedError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {topic.name} currently has {have} partition(s); {want} would not be an increase.",
        )
    check_partitions(want - have)
    if topic.internal:
        # A group's or transactional id's coordinator depends on this number. Kafka's documentation forbids changing it.
        raise RefusedError(ErrorCode.INVALID_REQUEST, f"The partitions of {topic.name} cannot be changed.")
    if wanted.assignments is not None:
        if len(wanted.assignments) != want - have:
            raise RefusedError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"{want - have} additional partition(s) need as many assignments, got {len(wanted.assignments)}.",
            )
        if any(each.broker_ids != (node.identity.node_id,) for each in wanted.assignments):
            raise RefusedError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"the only broker is {node.identity.node_id}")
    if not validate_only:
        node.topics.add_partitions(topic, want)
