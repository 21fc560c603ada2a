"""OffsetFetch, versions 1–10: one group, or several from version 8 on (KIP-709); topics by id from version 10 on."""

from collections.abc import Iterable
from typing import Protocol

from ottla.broker.handlers.table import RequestContext
from ottla.broker.ports.access import HasAccess
from ottla.broker.ports.groups import HasGroups
from ottla.broker.ports.topics import HasImage
from ottla.coordinator.offsets.fetch import groups_of, response_of
from ottla.wire.acls import AclOperation, ResourceType
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
#: The first version whose answer has room for an error of the whole group.
_GROUP_ERROR_FROM = 2
_REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


class _Node(HasAccess, HasGroups, HasImage, Protocol):
    """What this handler touches."""


def handle(node: _Node, request: OffsetFetchRequest, context: RequestContext) -> OffsetFetchResponse:
    """What each group has committed."""
    by_id = context.api_version >= _TOPIC_IDS_FROM
    groups = []
    for each in groups_of(request):
        if node.access.allows(context, AclOperation.DESCRIBE, ResourceType.GROUP, each.group_id):
            groups.append(_fetch(node, each, request.require_stable, context, by_id=by_id))
        else:
            groups.append(_refuse_group(each, with_topics=context.api_version < _GROUP_ERROR_FROM))
    return response_of(request, tuple(groups))


def _refuse_group(asked: OffsetFetchRequestGroup, *, with_topics: bool) -> OffsetFetchResponseGroup:
    """An answer of version 1 has no error of its own: each partition has it."""
    error = ErrorCode.GROUP_AUTHORIZATION_FAILED
    topics = tuple(_without_offsets(topic, error) for topic in asked.topics or ()) if with_topics else ()
    return OffsetFetchResponseGroup(asked.group_id, topics, error)


def _fetch(
    node: _Node, asked: OffsetFetchRequestGroup, require_stable: bool, context: RequestContext, *, by_id: bool
) -> OffsetFetchResponseGroup:
    runner = node.groups.find(asked.group_id)
    if isinstance(runner, ErrorCode):
        return OffsetFetchResponseGroup(asked.group_id, (), runner)
    image = node.image
    left_out: list[OffsetFetchResponseTopics] = []
    if asked.topics is not None:
        named = []
        for topic in asked.topics:
            found = image.topics_by_id.get(topic.topic_id) if by_id else None
            if by_id and found is None:
                left_out.append(_without_offsets(topic, ErrorCode.UNKNOWN_TOPIC_ID))
            else:
                named.append(topic if found is None else topic._replace(name=found.name))
        refused = _hidden(node, context, (topic.name for topic in named))
        left_out += [_without_offsets(each, _REFUSED) for each in named if each.name in refused]
        asked = asked._replace(topics=tuple(each for each in named if each.name not in refused))
    answer = runner.shard.fetch_offsets(asked, require_stable=require_stable)
    if asked.topics is None:
        refused = _hidden(node, context, (topic.name for topic in answer.topics))
        answer = answer._replace(topics=tuple(each for each in answer.topics if each.name not in refused))
    if not by_id:
        return answer._replace(topics=(*answer.topics, *left_out)) if left_out else answer
    known = []
    for each in answer.topics:
        there = image.topics.get(each.name)
        if each.topic_id != NULL_UUID:
            known.append(each)
        elif there is not None:
            known.append(each._replace(topic_id=there.topic_id))
    return answer._replace(topics=(*known, *left_out))


def _hidden(node: _Node, context: RequestContext, names: Iterable[str]) -> frozenset[str]:
    """The topics whose offsets may not be seen."""
    return node.access.refused(context, AclOperation.DESCRIBE, ResourceType.TOPIC, names)


def _without_offsets(topic: OffsetFetchRequestTopics, error: ErrorCode) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        topic.topic_id,
        topic.name,
        tuple(
            OffsetFetchResponsePartitions(index, committed_offset=-1, metadata="", error_code=error)
            for index in topic.partition_indexes
        ),
    )
