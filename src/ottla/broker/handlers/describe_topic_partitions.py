"""DescribeTopicPartitions, version 0 (KIP-966): topics in the order of their names, page by page."""

from collections.abc import Iterator, Sequence
from typing import Protocol

from ottla.base.topic_names import topic_name_problem
from ottla.broker.handlers.table import RequestContext
from ottla.broker.metadata.image import TopicImage
from ottla.broker.ports.access import HasAccess
from ottla.broker.ports.settings import HasConfig
from ottla.broker.ports.topics import HasImage
from ottla.wire.acls import AclOperation, ResourceType
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)


class _Node(HasAccess, HasConfig, HasImage, Protocol):
    """What this handler touches."""


def handle(
    node: _Node, request: DescribeTopicPartitionsRequest, context: RequestContext
) -> DescribeTopicPartitionsResponse:
    """One page, and where the next begins."""
    wanted = {topic.name for topic in request.topics}
    cursor = request.cursor or Cursor("", 0)
    if request.cursor is not None and (cursor.partition_index < 0 or (wanted and cursor.topic_name not in wanted)):
        refused = tuple(
            DescribeTopicPartitionsResponseTopic(ErrorCode.INVALID_REQUEST, topic.name) for topic in request.topics
        )
        return DescribeTopicPartitionsResponse(topics=refused)
    left = min(max(request.response_partition_limit, 1), node.config.int("max.request.partition.size.limit"))
    names = [name for name in sorted(wanted or node.image.topics) if name >= cursor.topic_name]
    hidden = node.access.refused(context, AclOperation.DESCRIBE, ResourceType.TOPIC, names, told=bool(wanted))
    page = _page(node, [name for name in names if name not in hidden], cursor, left)
    told = [
        each._replace(topic_authorized_operations=node.access.operations(context, ResourceType.TOPIC, each.name or ""))
        for each in page.topics
    ]
    if wanted:  # whoever asks for all learns no name that may not be described
        told += [
            DescribeTopicPartitionsResponseTopic(ErrorCode.TOPIC_AUTHORIZATION_FAILED, name)
            for name in names
            if name in hidden
        ]
    return page._replace(topics=tuple(told))


def _page(node: _Node, names: Sequence[str], cursor: Cursor, left: int) -> DescribeTopicPartitionsResponse:
    """These topics up to so many partitions, beginning at the cursor."""
    topics = []
    for name in names:
        topic = node.image.topics.get(name)
        if topic is None:
            topics.append(_missing(name))
            continue
        begin = min(cursor.partition_index, len(topic.partitions)) if name == cursor.topic_name else 0
        if left == 0:
            return DescribeTopicPartitionsResponse(topics=tuple(topics), next_cursor=Cursor(name, begin))
        end = min(begin + left, len(topic.partitions))
        left -= end - begin
        topics.append(_describe(topic, begin, end))
        if end < len(topic.partitions):
            return DescribeTopicPartitionsResponse(topics=tuple(topics), next_cursor=Cursor(name, end))
    return DescribeTopicPartitionsResponse(topics=tuple(topics))


def _missing(name: str) -> DescribeTopicPartitionsResponseTopic:
    legal = topic_name_problem(name) is None
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
