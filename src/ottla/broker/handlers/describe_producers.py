"""DescribeProducers, version 0 (KIP-664): who writes to a partition, and whose transaction is open there.

A partition may remember any number of producers. So what is told counts in the memory for answers, and of many
partitions one that is named again is told once.
"""

import asyncio
from collections.abc import Collection, Generator, Iterator
from itertools import islice
from typing import Final, Protocol

from ottla.base.errors import kept
from ottla.base.topic_names import topic_name_problem
from ottla.base.words import cut
from ottla.broker.handlers.parts import PART_NAMES
from ottla.broker.handlers.table import RequestContext
from ottla.broker.ports.access import HasAccess
from ottla.broker.ports.answers import HasAnswers
from ottla.broker.ports.partitions import HasPartitions
from ottla.broker.ports.slices import HasSlices
from ottla.broker.ports.topics import HasImage
from ottla.broker.runtime.encoding import AnswerTooLargeError, MadeAnswer
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
#: What one takes in memory until the answer is encoded: a tuple and its numbers.
PRODUCER_BYTES: Final = 200


class _Node(HasAccess, HasAnswers, HasImage, HasPartitions, HasSlices, Protocol):
    """What this handler touches."""


def handle(
    node: _Node, request: DescribeProducersRequest, context: RequestContext
) -> "asyncio.Future[DescribeProducersResponse | AnswerTooLargeError]":
    """The producers that each partition remembers."""
    return node.slices.start(_slowly(node, request, context), "producers of many partitions")


async def _slowly(
    node: _Node, request: DescribeProducersRequest, context: RequestContext
) -> DescribeProducersResponse | AnswerTooLargeError:
    names = (topic.name for topic in request.topics if topic_name_problem(topic.name) is None)
    refused = await node.access.refused_of_many(node.slices, context, AclOperation.READ, ResourceType.TOPIC, names)
    topics: list[TopicResponse] = []
    made = node.answers.begin(context.api_key, context.api_version, context.client_id)
    try:
        await node.slices.run(_steps(node, request, refused, topics, made))
    except AnswerTooLargeError as fault:
        return kept(fault)
    finally:
        made.end()
    return DescribeProducersResponse(topics=tuple(topics))


def _steps(
    node: _Node,
    request: DescribeProducersRequest,
    refused: Collection[str],
    topics: list[TopicResponse],
    made: MadeAnswer,
) -> Iterator[None]:
    is_large = sum(len(topic.partition_indexes) for topic in request.topics) > PART_NAMES
    told: dict[tuple[str, int], PartitionResponse] = {}
    for topic in request.topics:
        described = []
        for index in topic.partition_indexes:
            before = told.get((topic.name, index))
            if before is None:
                told[topic.name, index] = partition = yield from _describe(node, topic.name, index, refused, made)
                described.append(partition)
            elif not is_large:
                made.take(len(before.active_producers) * PRODUCER_BYTES)
                described.append(before)
            yield
        if described or not topic.partition_indexes:
            topics.append(TopicResponse(topic.name, tuple(described)))


def _describe(
    node: _Node, topic: str, index: int, refused: Collection[str], made: MadeAnswer
) -> Generator[None, None, PartitionResponse]:
    if topic in refused:
        return PartitionResponse(index, ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed.")
    partition = node.partitions.find(topic, index)
    if partition is None:
        problem = topic_name_problem(topic)
        if problem is not None:
            invalid = ErrorCode.INVALID_TOPIC_EXCEPTION
            return PartitionResponse(index, invalid, cut(f"Topic name is invalid: {problem}"))
        # Kafka has a message for a topic that is not there, and none for a partition that its topic does not have.
        message = None if topic in node.image.topics else "This server does not host this topic-partition."
        return PartitionResponse(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
    producers, states = partition.log.producers.active(), list[ProducerState]()
    while part := [ProducerState(*each) for each in islice(producers, _AT_ONCE)]:
        made.take(len(part) * PRODUCER_BYTES)
        states += part
        yield
    return PartitionResponse(index, active_producers=tuple(states))
