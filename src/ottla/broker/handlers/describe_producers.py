"""DescribeProducers, version 0 (KIP-664): who writes to a partition, and whose transaction is open there."""

import asyncio
from collections.abc import Collection, Generator, Iterator
from itertools import islice
from typing import Final, Protocol

from ottla.base.topic_names import topic_name_problem
from ottla.broker.handlers.parts import PART_NAMES
from ottla.broker.handlers.table import RequestContext
from ottla.broker.ports.access import HasAccess
from ottla.broker.ports.partitions import HasPartitions
from ottla.broker.ports.slices import HasSlices
from ottla.broker.ports.topics import HasImage
from ottla.wire.acls import AclOperation, ResourceType
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)

#: Producers that are described in one step.
_AT_ONCE: Final = 1_000


class _Node(HasAccess, HasImage, HasPartitions, HasSlices, Protocol):
    """What this handler touches."""


def handle(
    node: _Node, request: DescribeProducersRequest, context: RequestContext
) -> "DescribeProducersResponse | asyncio.Future[DescribeProducersResponse]":
    """The producers that each partition remembers."""
    return node.slices.start(_slowly(node, request, context), "producers of many partitions")


async def _slowly(node: _Node, request: DescribeProducersRequest, context: RequestContext) -> DescribeProducersResponse:
    """A partition may remember any number of producers."""
    names = (topic.name for topic in request.topics if topic_name_problem(topic.name) is None)
    refused = await node.access.refused_of_many(node.slices, context, AclOperation.READ, ResourceType.TOPIC, names)
    topics: list[TopicResponse] = []
    await node.slices.run(_steps(node, request, refused, topics))
    return DescribeProducersResponse(topics=tuple(topics))


def _steps(
    node: _Node, request: DescribeProducersRequest, refused: Collection[str], topics: list[TopicResponse]
) -> Iterator[None]:
    is_large = sum(len(topic.partition_indexes) for topic in request.topics) > PART_NAMES
    told: set[tuple[str, int]] = set()
    for topic in request.topics:
        described = []
        for index in topic.partition_indexes:
            if not (is_large and (topic.name, index) in told):  # each may have any number of producers
                told.add((topic.name, index))
                described.append((yield from _describe(node, topic.name, index, refused)))
            yield
        if described or not topic.partition_indexes:
            topics.append(TopicResponse(topic.name, tuple(described)))


def _describe(
    node: _Node, topic: str, index: int, refused: Collection[str]
) -> Generator[None, None, PartitionResponse]:
    if topic in refused:
        return PartitionResponse(index, ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed.")
    partition = node.partitions.find(topic, index)
    if partition is None:
        problem = topic_name_problem(topic)
        if problem is not None:
            return PartitionResponse(index, ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {problem}")
        # Kafka has a message for a topic that is not there, and none for a partition that its topic does not have.
        message = None if topic in node.image.topics else "This server does not host this topic-partition."
        return PartitionResponse(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
    producers, states = partition.log.active_producers(), list[ProducerState]()
    while part := [ProducerState(*each) for each in islice(producers, _AT_ONCE)]:
        states += part
        yield
    return PartitionResponse(index, active_producers=tuple(states))
