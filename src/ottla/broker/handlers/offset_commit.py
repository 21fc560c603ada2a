"""OffsetCommit, versions 2–10. Topics by id from version 10 on (KIP-848); unknown topics and partitions are refused."""

from collections.abc import Collection
from typing import Any, Protocol

from ottla.broker.handlers.table import RequestContext
from ottla.broker.ports.access import HasAccess
from ottla.broker.ports.groups import HasGroups
from ottla.broker.ports.topics import HasImage
from ottla.broker.runtime.answers import then
from ottla.coordinator.offsets.commit import refuse_commit
from ottla.wire.acls import AclOperation, ResourceType
from ottla.wire.codec import NULL_UUID
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

_TOPIC_IDS_FROM = 10
_REPORTS_MISSING_FROM = 9


class _Node(HasAccess, HasGroups, HasImage, Protocol):
    """What this handler touches."""


def handle(node: _Node, request: OffsetCommitRequest, context: RequestContext) -> Any:
    """Commit the offsets of topics that exist. The answers keep the request's order."""
    if not node.access.allows(context, AclOperation.READ, ResourceType.GROUP, request.group_id):
        return refuse_commit(request, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    runner = node.groups.find(request.group_id)
    if isinstance(runner, ErrorCode):
        return refuse_commit(request, runner)
    by_id = context.api_version >= _TOPIC_IDS_FROM
    named = tuple(_named(node, topic, by_id=by_id) for topic in request.topics)
    names = (topic.name for topic in named if topic.name or not by_id)
    refused = node.access.refused(context, AclOperation.READ, ResourceType.TOPIC, names)
    allowed = (topic for topic in named if topic.name not in refused)
    known = request._replace(topics=tuple(topic for topic in (_known(node, each) for each in allowed) if topic))
    shard = runner.shard
    reports = context.api_version >= _REPORTS_MISSING_FROM
    answered = runner.submit(lambda token, now_ms: shard.commit_offsets(token, known, now_ms, report_missing=reports))
    return then(answered, lambda response: _merge(named, response, refused, by_id=by_id))


def _named(node: _Node, topic: OffsetCommitRequestTopic, *, by_id: bool) -> OffsetCommitRequestTopic:
    """The topic with both its name and its id. What the request does not give stays empty if it is not known."""
    image = node.image
    found = image.topics_by_id.get(topic.topic_id) if by_id else image.topics.get(topic.name)
    return topic if found is None else topic._replace(name=found.name, topic_id=found.topic_id)


def _known(node: _Node, topic: OffsetCommitRequestTopic) -> OffsetCommitRequestTopic | None:
    there = node.image.topics.get(topic.name)
    if there is None:
        return None
    count = len(there.partitions)
    partitions = tuple(each for each in topic.partitions if 0 <= each.partition_index < count)
    return topic._replace(partitions=partitions) if partitions else None


def _merge(
    named: tuple[OffsetCommitRequestTopic, ...],
    response: OffsetCommitResponse,
    refused: Collection[str],
    *,
    by_id: bool,
) -> OffsetCommitResponse:
    errors = {
        (topic.name, partition.partition_index): partition.error_code
        for topic in response.topics
        for partition in topic.partitions
    }
    topics = []
    for topic in named:
        if topic.name and topic.topic_id != NULL_UUID and not topic.partitions:
            continue  # Kafka leaves out a topic that is there when nothing is committed of it
        missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if by_id and not topic.name:
            missing = ErrorCode.UNKNOWN_TOPIC_ID
        if topic.name in refused:
            missing = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        partitions = tuple(
            OffsetCommitResponsePartition(each.partition_index, errors.get((topic.name, each.partition_index), missing))
            for each in topic.partitions
        )
        topics.append(OffsetCommitResponseTopic(topic.topic_id, topic.name, partitions))
    return OffsetCommitResponse(topics=tuple(topics))
