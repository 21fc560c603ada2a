"""OffsetFetch, versions 1–10: one group, or several from version 8 on (KIP-709); topics by id from version 10 on."""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from ottla.broker.handlers.parts import PART_PARTITIONS, PART_TOPICS, cut, weight
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


def handle(
    node: _Node, request: OffsetFetchRequest, context: RequestContext
) -> "OffsetFetchResponse | asyncio.Future[OffsetFetchResponse]":
    """What each group has committed."""
    groups = groups_of(request)
    at_once = PART_TOPICS if node.access.is_on else PART_PARTITIONS
    if sum(_count(node, each) for each in groups) > at_once:
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
        return weight(asked.topics, "partition_indexes")
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
    shard = _shard(node, asked, context)
    yield
    if isinstance(shard, OffsetFetchResponseGroup):
        answers.append(shard)
        return
    wanted = (yield from shard.topics_of(asked.group_id)) if asked.topics is None else asked.topics
    topics, left_out = list[OffsetFetchResponseTopics](), list[OffsetFetchResponseTopics]()
    for part, goes_on in cut(wanted, "partition_indexes"):
        named, without = _named(node, part, asked, context)
        answer = shard.fetch_offsets(asked._replace(topics=named), require_stable=require_stable)
        if answer.error_code:
            answers.append(answer)
            return
        by_id = context.api_version >= _TOPIC_IDS_FROM
        _add(topics, _with_ids(node, answer.topics) if by_id else answer.topics, goes_on=goes_on)
        _add(left_out, without, goes_on=goes_on)
        yield
    answers.append(OffsetFetchResponseGroup(asked.group_id, (*topics, *left_out)))


def _shard(
    node: _Node, asked: OffsetFetchRequestGroup, context: RequestContext
) -> GroupShard | OffsetFetchResponseGroup:
    """Where the group's offsets are, or why they are not told."""
    if not node.access.allows(context, AclOperation.DESCRIBE, ResourceType.GROUP, asked.group_id):
        return _refuse_group(asked, with_topics=context.api_version < _GROUP_ERROR_FROM)
    runner = node.groups.find(asked.group_id)
    return OffsetFetchResponseGroup(asked.group_id, (), runner) if isinstance(runner, ErrorCode) else runner.shard


def _named(
    node: _Node, part: Sequence[OffsetFetchRequestTopics], asked: OffsetFetchRequestGroup, context: RequestContext
) -> tuple[tuple[OffsetFetchRequestTopics, ...], tuple[OffsetFetchResponseTopics, ...]]:
    """The topics of a part with their names, and what is answered of those that are not told; each in their order."""
    known: Sequence[OffsetFetchRequestTopics | None] = part
    if asked.topics is not None and context.api_version >= _TOPIC_IDS_FROM:
        known = [_by_name(node, each) for each in part]
    names = (each.name for each in known if each is not None)
    refused = node.access.refused(context, AclOperation.DESCRIBE, ResourceType.TOPIC, names)
    named, left_out = list[OffsetFetchRequestTopics](), list[OffsetFetchResponseTopics]()
    for topic, each in zip(part, known, strict=True):
        if each is None:
            left_out.append(_without_offsets(topic, ErrorCode.UNKNOWN_TOPIC_ID))
        elif each.name not in refused:
            named.append(each)
        elif asked.topics is not None:  # who asks for all is not told that there are more
            left_out.append(_without_offsets(each, _REFUSED))
    return tuple(named), tuple(left_out)


def _by_name(node: _Node, topic: OffsetFetchRequestTopics) -> OffsetFetchRequestTopics | None:
    """A topic that is asked for by its id, with its name; None if there is none."""
    found = node.image.topics_by_id.get(topic.topic_id)
    return None if found is None else topic._replace(name=found.name)


def _add(topics: list[OffsetFetchResponseTopics], more: Sequence[OffsetFetchResponseTopics], *, goes_on: bool) -> None:
    """Put a part behind those before it. Its first topic may be their last one, gone on with."""
    if goes_on and topics and more and _is_same(topics[-1], more[0]):
        topics[-1] = topics[-1]._replace(partitions=topics[-1].partitions + more[0].partitions)
        more = more[1:]
    topics.extend(more)


def _is_same(one: OffsetFetchResponseTopics, other: OffsetFetchResponseTopics) -> bool:
    return (one.topic_id, one.name) == (other.topic_id, other.name)


def _refuse_group(asked: OffsetFetchRequestGroup, *, with_topics: bool) -> OffsetFetchResponseGroup:
    """An answer of version 1 has no error of its own: each partition has it."""
    error = ErrorCode.GROUP_AUTHORIZATION_FAILED
    topics = tuple(_without_offsets(topic, error) for topic in asked.topics or ()) if with_topics else ()
    return OffsetFetchResponseGroup(asked.group_id, topics, error)


def _with_ids(node: _Node, topics: Iterable[OffsetFetchResponseTopics]) -> list[OffsetFetchResponseTopics]:
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
