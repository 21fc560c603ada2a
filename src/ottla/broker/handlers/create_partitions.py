"""CreatePartitions, versions 0–3 (KIP-195): a topic grows; it never shrinks."""

import asyncio
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from functools import partial
from typing import Protocol

from ottla.base.errors import StorageError
from ottla.broker.handlers.mutations import count_change
from ottla.broker.handlers.table import RequestContext
from ottla.broker.metadata.rules import RefusedError, check_total_partitions
from ottla.broker.ports.access import HasAccess
from ottla.broker.ports.identity import HasIdentity
from ottla.broker.ports.slices import HasSlices
from ottla.broker.ports.topics import HasImage, HasTopics
from ottla.wire.acls import AclOperation, ResourceType
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

#: From here on a client knows THROTTLING_QUOTA_EXCEEDED.
_KNOWS_QUOTAS_FROM = 3


class _Node(HasAccess, HasIdentity, HasImage, HasSlices, HasTopics, Protocol):
    """What this handler touches."""


def handle(
    node: _Node, request: CreatePartitionsRequest, context: RequestContext
) -> "asyncio.Future[CreatePartitionsResponse]":
    """Each topic is grown or refused."""
    return node.slices.start(_grow(node, request, context), "growing topics")


async def _grow(node: _Node, request: CreatePartitionsRequest, context: RequestContext) -> CreatePartitionsResponse:
    """Rights are asked for before it is this change's turn: they are given up with the connection."""
    counts = Counter(topic.name for topic in request.topics)
    once = (name for name, count in counts.items() if count == 1)
    refused = await node.access.refused_of_many(node.slices, context, AclOperation.ALTER, ResourceType.TOPIC, once)
    change = partial(_grow_all, node, request, counts, refused, context)
    response: CreatePartitionsResponse = await node.topics.change(change)
    return response


async def _grow_all(
    node: _Node,
    request: CreatePartitionsRequest,
    counts: Mapping[str, int],
    refused_names: Collection[str],
    context: RequestContext,
) -> CreatePartitionsResponse:
    results: list[CreatePartitionsTopicResult] = []
    wanted: dict[str, int] = {}
    await node.slices.run(_check_all(node, request, counts, refused_names, context, wanted, results))
    topics = node.image.topics
    try:
        check_total_partitions(count - len(topics[name].partitions) for name, count in wanted.items())
    except RefusedError as refused:
        message = str(refused)
        return CreatePartitionsResponse(
            results=tuple(CreatePartitionsTopicResult(name, refused.error, message) for name in counts)
        )
    faults = {} if request.validate_only else await node.topics.grow_all(wanted)
    if faults:
        results = await node.slices.collect(_told(each, faults.get(each.name)) for each in results)
    return CreatePartitionsResponse(results=tuple(results))


def _told(result: CreatePartitionsTopicResult, fault: StorageError | None) -> CreatePartitionsTopicResult:
    if fault is None:
        return result
    return CreatePartitionsTopicResult(result.name, ErrorCode.KAFKA_STORAGE_ERROR, str(fault))


def _check_all(
    node: _Node,
    request: CreatePartitionsRequest,
    counts: Mapping[str, int],
    unauthorized: Collection[str],
    context: RequestContext,
    wanted: dict[str, int],
    results: list[CreatePartitionsTopicResult],
) -> Iterator[None]:
    """Check a topic in each step. Those that are good go into `wanted`, and what is known of each into `results`."""
    for topic in {each.name: each for each in request.topics}.values():
        try:
            if counts[topic.name] > 1:
                raise RefusedError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            if topic.name in unauthorized:
                results.append(CreatePartitionsTopicResult(topic.name, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
            else:
                more = _check(node, topic)
                count_change(context, more, strict_from=_KNOWS_QUOTAS_FROM)
                results.append(CreatePartitionsTopicResult(topic.name))
                wanted[topic.name] = topic.count
        except RefusedError as refused:
            results.append(CreatePartitionsTopicResult(topic.name, refused.error, str(refused)))
        yield


def _check(node: _Node, wanted: CreatePartitionsTopic) -> int:
    """How many partitions are to be added."""
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
    return want - have
