"""OffsetFetch, versions 1–10: one group, or several from version 8 on (KIP-709); topics by id from version 10 on."""

import asyncio
from collections.abc import Iterator
from typing import NamedTuple, Protocol

from ottla.broker.handlers.parts import PART_PARTITIONS, cut
from ottla.broker.handlers.table import RequestContext
from ottla.broker.ports.access import HasAccess
from ottla.broker.ports.groups import HasGroups
from ottla.broker.ports.slices import HasSlices
from ottla.broker.ports.topics import HasImage
from ottla.coordinator.group.shard import GroupShard
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


class _Node(HasAccess, HasGroups, HasImage, HasSlices, Protocol):
    """What this handler touches."""


class _Asked(NamedTuple):
    """What is asked of a group's shard, by name, and what the answer says besides."""

    shard: GroupShard
    group: OffsetFetchRequestGroup
    left_out: list[OffsetFetchResponseTopics]


def handle(
    node: _Node, request: OffsetFetchRequest, context: RequestContext
) -> "OffsetFetchResponse | asyncio.Future[OffsetFetchResponse]":
    """What each group has committed."""
    groups = groups_of(request)
    if sum(_count(node, each) for each in groups) > PART_PARTITIONS:
        return node.slices.start(_slowly(node, request, context), "offsets of many partitions")
    answers: list[OffsetFetchResponseGroup] = []
    for each in groups:
        for _ in _group(node, each, request.require_stable, context, answers):
            pass
    return response_of(request, tuple(answers))


async def _slowly(node: _Node, request: OffsetFetchRequest, context: RequestContext) -> OffsetFetchResponse:
    """With others served in between: each partition as it is when its part is looked at."""
    answers: list[OffsetFetchResponseGroup] = []
    for each in groups_of(request):
        await node.slices.run(_group(node, each, request.require_stable, context, answers))
    return response_of(request, tuple(answers))


def _count(node: _Node, asked: OffsetFetchRequestGroup) -> int:
    if asked.topics is not None:
        return sum(len(topic.partition_indexes) for topic in asked.topics)
    runner = node.groups.find(asked.group_id)
    return 0 if isinstance(runner, ErrorCode) else runner.shard.count_offsets(asked.group_id)


def _group(
    node: _Node,
    asked: OffsetFetchRequestGroup,
    require_stable: bool,
    context: RequestContext,
    answers: list[OffsetFetchResponseGroup],
) -> Iterator[None]:
    """Put one group's answer behind the others, in steps."""
    found = _found(node, asked, context)
    yield
    if isinstance(found, OffsetFetchResponseGroup):
        answers.append(found)
        return
    topics: list[OffsetFetchResponseTopics] = []
    for part, goes_on in cut(found.group.topics or (), "partition_indexes"):
        answer = found.shard.fetch_offsets(found.group._replace(topics=part), require_stable=require_stable)
        if answer.error_code:
            answers.append(answer)
            return
        more = answer.topics
        if goes_on:
            topics[-1] = topics[-1]._replace(partitions=topics[-1].partitions + more[0].partitions)
            more = more[1:]
        topics.extend(more)
        yield
    if context.api_version >= _TOPIC_IDS_FROM:
        topics = _with_ids(node, topics)
    answers.append(OffsetFetchResponseGroup(asked.group_id, (*topics, *found.left_out)))


def _found(node: _Node, asked: OffsetFetchRequestGroup, context: RequestContext) -> _Asked | OffsetFetchResponseGroup:
    """Which partitions are to be looked at, or why none is."""
    if not node.access.allows(context, AclOperation.DESCRIBE, ResourceType.GROUP, asked.group_id):
        return _refuse_group(asked, with_topics=context.api_version < _GROUP_ERROR_FROM)
    runner = node.groups.find(asked.group_id)
    if isinstance(runner, ErrorCode):
        return OffsetFetchResponseGroup(asked.group_id, (), runner)
    shard, by_id = runner.shard, context.api_version >= _TOPIC_IDS_FROM
    left_out: list[OffsetFetchResponseTopics] = []
    if asked.topics is None:
        named = shard.topics_of(asked.group_id)
    else:
        named = []
        for topic in asked.topics:
            found = node.image.topics_by_id.get(topic.topic_id) if by_id else None
            if by_id and found is None:
                left_out.append(_without_offsets(topic, ErrorCode.UNKNOWN_TOPIC_ID))
            else:
                named.append(topic if found is None else topic._replace(name=found.name))
    # The topics whose offsets may not be seen. Who asks for all is not told that there are more.
    refused = node.access.refused(context, AclOperation.DESCRIBE, ResourceType.TOPIC, (each.name for each in named))
    if asked.topics is not None:
        left_out += [_without_offsets(each, _REFUSED) for each in named if each.name in refused]
    wanted = tuple(each for each in named if each.name not in refused)
    return _Asked(shard, asked._replace(topics=wanted), left_out)


def _refuse_group(asked: OffsetFetchRequestGroup, *, with_topics: bool) -> OffsetFetchResponseGroup:
    """An answer of version 1 has no error of its own: each partition has it."""
    error = ErrorCode.GROUP_AUTHORIZATION_FAILED
    topics = tuple(_without_offsets(topic, error) for topic in asked.topics or ()) if with_topics else ()
    return OffsetFetchResponseGroup(asked.group_id, topics, error)


def _with_ids(node: _Node, topics: list[OffsetFetchResponseTopics]) -> list[OffsetFetchResponseTopics]:
    """Those that have an id: the one that was asked for, or the one of their name."""
    known = []
    for each in topics:
        there = node.image.topics.get(each.name)
        if each.topic_id != NULL_UUID:
            known.append(each)
        elif there is not None:
            known.append(each._replace(topic_id=there.topic_id))
    return known


def _without_offsets(topic: OffsetFetchRequestTopics, error: ErrorCode) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        topic.topic_id,
        topic.name,
        tuple(
            OffsetFetchResponsePartitions(index, committed_offset=-1, metadata="", error_code=error)
            for index in topic.partition_indexes
        ),
    )
