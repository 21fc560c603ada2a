"""DescribeTopicPartitions, version 0 (KIP-966): topics in the order of their names, page by page."""

import asyncio
from collections.abc import Iterable, Iterator
from typing import Protocol

from ottla.base.topic_names import topic_name_problem
from ottla.broker.handlers.table import RequestContext
from ottla.broker.metadata.image import TopicImage
from ottla.broker.ports.access import HasAccess
from ottla.broker.ports.quotas import counted
from ottla.broker.ports.settings import HasConfig
from ottla.broker.ports.slices import HasSlices
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


class _Node(HasAccess, HasConfig, HasImage, HasSlices, Protocol):
    """What this handler touches."""


#: A topic of a page, or where the next page begins.
_Told = DescribeTopicPartitionsResponseTopic | Cursor


def handle(
    node: _Node, request: DescribeTopicPartitionsRequest, context: RequestContext
) -> "asyncio.Future[DescribeTopicPartitionsResponse]":
    """One page, and where the next begins."""
    return node.slices.start(_slowly(node, request, context), "describing topics")


async def _slowly(
    node: _Node, request: DescribeTopicPartitionsRequest, context: RequestContext
) -> DescribeTopicPartitionsResponse:
    wanted = {topic.name for topic in request.topics}
    cursor = request.cursor or Cursor("", 0)
    if request.cursor is not None and (cursor.partition_index < 0 or (wanted and cursor.topic_name not in wanted)):
        refused = tuple(
            DescribeTopicPartitionsResponseTopic(ErrorCode.INVALID_REQUEST, topic.name) for topic in request.topics
        )
        return DescribeTopicPartitionsResponse(topics=refused)
    left = min(max(request.response_partition_limit, 1), node.config.int("max.request.partition.size.limit"))
    names = [name for name in sorted(wanted or node.image.topics) if name >= cursor.topic_name]
    if wanted:
        hidden = await node.access.refused_of_many(
            node.slices, context, AclOperation.DESCRIBE, ResourceType.TOPIC, names
        )
        shown: Iterable[str | None] = [name for name in names if name not in hidden]
    else:  # whoever asks for all learns no name that may not be described
        hidden, sees = frozenset(), node.access.sees(context)
        shown = (name if sees(name) else None for name in names)
    page = _page(node, shown, cursor, left, tells_missing=bool(wanted))
    told = await node.slices.collect(counted(context, _with_operations(node, context, page)))
    topics = [each for each in told if isinstance(each, DescribeTopicPartitionsResponseTopic)]
    topics += [
        DescribeTopicPartitionsResponseTopic(ErrorCode.TOPIC_AUTHORIZATION_FAILED, name)
        for name in names
        if name in hidden
    ]
    next_cursor = next((each for each in told if isinstance(each, Cursor)), None)
    return DescribeTopicPartitionsResponse(topics=tuple(topics), next_cursor=next_cursor)


def _with_operations(node: _Node, context: RequestContext, page: Iterable[_Told | None]) -> Iterator[_Told | None]:
    for each in page:
        if isinstance(each, DescribeTopicPartitionsResponseTopic):
            operations = node.access.operations(context, ResourceType.TOPIC, each.name or "")
            yield each._replace(topic_authorized_operations=operations)
        else:
            yield each


def _page(
    node: _Node, names: Iterable[str | None], cursor: Cursor, left: int, *, tells_missing: bool
) -> Iterator[_Told | None]:
    """These topics up to so many partitions, beginning at the cursor; None in the place of one that is not shown."""
    for name in names:
        topic = None if name is None else node.image.topics.get(name)
        if name is None or topic is None:
            yield _missing(name) if name is not None and tells_missing else None
            continue
        begin = min(cursor.partition_index, len(topic.partitions)) if name == cursor.topic_name else 0
        if left == 0:
            yield Cursor(name, begin)
            return
        end = min(begin + left, len(topic.partitions))
        left -= end - begin
        yield _describe(topic, begin, end)
        if end < len(topic.partitions):
            yield Cursor(name, end)
            return


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
