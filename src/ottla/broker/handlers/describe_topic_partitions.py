"""DescribeTopicPartitions, version 0 (KIP-966): topics in the order of their names, page by page."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ottla.base.limits import MAX_DESCRIBED_PARTITIONS
from ottla.broker.handlers.table import RequestContext
from ottla.broker.metadata.image import TopicImage
from ottla.broker.metadata.names import name_problem
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)

if TYPE_CHECKING:
    from ottla.broker.node import Node


def handle(
    node: "Node", request: DescribeTopicPartitionsRequest, context: RequestContext
) -> DescribeTopicPartitionsResponse:
    """One page, and where the next begins."""
    names = sorted({topic.name for topic in request.topics} or node.metadata.image.topics)
    first_name, first_partition = "", 0
    if request.cursor is not None:
        first_name, first_partition = request.cursor.topic_name, request.cursor.partition_index
    left = min(max(request.response_partition_limit, 1), MAX_DESCRIBED_PARTITIONS)
    topics = []
    for name in names:
        if name < first_name:
            continue
        topic = node.metadata.image.topics.get(name)
        if topic is None:
            topics.append(_missing(name))
            continue
        begin = min(max(first_partition, 0), len(topic.partitions)) if name == first_name else 0
        if left == 0:
            return DescribeTopicPartitionsResponse(topics=tuple(topics), next_cursor=Cursor(name, begin))
        end = min(begin + left, len(topic.partitions))
        left -= end - begin
        topics.append(_describe(topic, begin, end))
        if end < len(topic.partitions):
            return DescribeTopicPartitionsResponse(topics=tuple(topics), next_cursor=Cursor(name, end))
    return DescribeTopicPartitionsResponse(topics=tuple(topics))


def _missing(name: str) -> DescribeTopicPartitionsResponseTopic:
    legal = name_problem(name) is None
    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if legal else ErrorCode.INVALID_TOPIC_EXCEPTION
    return DescribeTopicPartitionsResponseTopic(error, name)


def _describe(topic: TopicImage, begin: int, end: int) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        0, topic.name, topic.topic_id, topic.internal, tuple(_partitions(topic, begin, end))
    )


def _partitions(topic: TopicImage, begin: int, end: int) -> Iterator[DescribeTopicPartitionsResponsePartition]:
    for number in range(begin, end):
        each = topic.partitions[number]
        yield DescribeTopicPartitionsResponsePartition(
            partition_index=number,
            leader_id=each.leader,
            leader_epoch=each.leader_epoch,
            replica_nodes=each.replicas,
            isr_nodes=each.replicas,
            eligible_leader_replicas=(),
            last_known_elr=(),
        )
