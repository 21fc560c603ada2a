"""OffsetDelete, version 0 (KIP-496)."""

from collections.abc import Collection, Mapping
from typing import Any, Protocol

from ottla.broker.handlers.table import RequestContext
from ottla.broker.ports.access import HasAccess
from ottla.broker.ports.groups import HasGroups
from ottla.broker.ports.topics import HasImage
from ottla.broker.runtime.answers import then
from ottla.wire.acls import AclOperation, ResourceType
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


class _Node(HasAccess, HasGroups, HasImage, Protocol):
    """What this handler touches."""


def handle(node: _Node, request: OffsetDeleteRequest, context: RequestContext) -> Any:
    """Forget a group's offsets of partitions it does not read. Offsets of partitions that do not exist stay."""
    if not node.access.allows(context, AclOperation.DELETE, ResourceType.GROUP, request.group_id):
        return OffsetDeleteResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if not request.group_id:
        return OffsetDeleteResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    runner = node.groups.find(request.group_id)
    if isinstance(runner, ErrorCode):
        return OffsetDeleteResponse(error_code=runner)
    shard = runner.shard
    topics = node.image.topics
    names = [each.name for each in request.topics]
    refused = node.access.refused(context, AclOperation.READ, ResourceType.TOPIC, names)
    there = {name: len(topics[name].partitions) for name in names if name in topics and name not in refused}
    known = request._replace(topics=tuple(_known(topic, there.get(topic.name, 0)) for topic in request.topics))
    return then(
        runner.submit(lambda token, now_ms: shard.delete_offsets(token, known)),
        lambda answer: answer if answer.error_code else _with_unknown(request, answer, there, refused),
    )


def _known(topic: OffsetDeleteRequestTopic, count: int) -> OffsetDeleteRequestTopic:
    """What is asked of partitions that exist."""
    return topic._replace(partitions=tuple(each for each in topic.partitions if 0 <= each.partition_index < count))


def _with_unknown(
    request: OffsetDeleteRequest, answer: OffsetDeleteResponse, there: Mapping[str, int], refused: Collection[str]
) -> OffsetDeleteResponse:
    """The answer, with errors for partitions that do not exist, in the order of the request."""
    codes = {
        (topic.name, each.partition_index): each.error_code for topic in answer.topics for each in topic.partitions
    }
    told = []
    for topic in request.topics:
        is_refused = topic.name in refused
        other = ErrorCode.TOPIC_AUTHORIZATION_FAILED if is_refused else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        partitions = tuple(
            OffsetDeleteResponsePartition(index, codes.get((topic.name, index), other)) for (index,) in topic.partitions
        )
        if partitions or topic.name not in there:  # Kafka leaves out a topic that is there when nothing is asked of it
            told.append(OffsetDeleteResponseTopic(topic.name, partitions))
    return answer._replace(topics=tuple(told))
