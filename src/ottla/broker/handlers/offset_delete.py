"""OffsetDelete, version 0 (KIP-496)."""

from typing import Any, Protocol

from ottla.broker.handlers.table import RequestContext
from ottla.broker.ports.groups import HasGroups
from ottla.broker.ports.topics import HasImage
from ottla.broker.runtime.answers import then
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse


class _Node(HasGroups, HasImage, Protocol):
    """What this handler touches."""


def handle(node: _Node, request: OffsetDeleteRequest, context: RequestContext) -> Any:
    """Forget a group's offsets of partitions it does not read."""
    if not request.group_id:
        return OffsetDeleteResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    runner = node.groups.find(request.group_id)
    if isinstance(runner, ErrorCode):
        return OffsetDeleteResponse(error_code=runner)
    shard = runner.shard
    return then(
        runner.submit(lambda token, now_ms: shard.delete_offsets(token, request)),
        lambda answer: _with_unknown(node, answer),
    )


def _with_unknown(node: _Node, answer: OffsetDeleteResponse) -> OffsetDeleteResponse:
    """The answer with errors for partitions that do not exist. Their offsets, if any, are deleted nevertheless."""
    topics = node.image.topics
    told = []
    for topic in answer.topics:
        count = len(topics[topic.name].partitions) if topic.name in topics else 0
        partitions = tuple(
            each
            if 0 <= each.partition_index < count
            else each._replace(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            for each in topic.partitions
        )
        if partitions or topic.name not in topics:  # Kafka leaves out a topic that is there when nothing is asked of it
            told.append(topic._replace(partitions=partitions))
    return answer._replace(topics=tuple(told))
