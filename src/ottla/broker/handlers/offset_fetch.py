"""OffsetFetch, versions 1–10: one group, or several from version 8 on (KIP-709); topics by id from version 10 on."""

from typing import Protocol

from ottla.broker.handlers.table import RequestContext
from ottla.broker.ports.groups import HasGroups
from ottla.broker.ports.topics import HasImage
from ottla.coordinator.offsets.fetch import groups_of, response_of
from ottla.wire.codec import NULL_UUID
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)

_TOPIC_IDS_FROM = 10


class _Node(HasGroups, HasImage, Protocol):
    """What this handler touches."""


def handle(node: _Node, request: OffsetFetchRequest, context: RequestContext) -> OffsetFetchResponse:
    """What each group has committed."""
    by_id = context.api_version >= _TOPIC_IDS_FROM
    groups = tuple(_fetch(node, each, request.require_stable, by_id=by_id) for each in groups_of(request))
    return response_of(request, groups)


def _fetch(
    node: _Node, asked: OffsetFetchRequestGroup, require_stable: bool, *, by_id: bool
) -> OffsetFetchResponseGroup:
    runner = node.groups.find(asked.group_id)
    if isinstance(runner, ErrorCode):
        return OffsetFetchResponseGroup(asked.group_id, (), runner)
    if not by_id:
        return runner.shard.fetch_offsets(asked, require_stable=require_stable)
    image = node.image
    unknown: list[OffsetFetchResponseTopics] = []
    if asked.topics is not None:
        named = []
        for topic in asked.topics:
            found = image.topics_by_id.get(topic.topic_id)
            if found is None:
                unknown.append(_unknown(topic))
            else:
                named.append(topic._replace(name=found.name))
        asked = asked._replace(topics=tuple(named))
    answer = runner.shard.fetch_offsets(asked, require_stable=require_stable)
    known = []
    for each in answer.topics:
        there = image.topics.get(each.name)
        if each.topic_id != NULL_UUID:
            known.append(each)
        elif there is not None:
            known.append(each._replace(topic_id=there.topic_id))
    return answer._replace(topics=(*known, *unknown))


def _unknown(topic: OffsetFetchRequestTopics) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        topic.topic_id,
        topic.name,
        tuple(
            OffsetFetchResponsePartitions(
                index, committed_offset=-1, metadata="", error_code=ErrorCode.UNKNOWN_TOPIC_ID
            )
            for index in topic.partition_indexes
        ),
    )
