"""Metadata, versions 0–13: brokers and topics; a missing topic is created when both sides allow it.

Topics by id from version 12 on (KIP-516). Version 0 has no null list: an empty one means all topics.
"""

import asyncio
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Protocol

from ottla.base.topic_names import topic_name_problem
from ottla.base.words import shown
from ottla.broker.handlers.authorized import on_cluster
from ottla.broker.handlers.parts import PART_NAMES
from ottla.broker.handlers.table import RequestContext
from ottla.broker.metadata.image import MetadataImage, TopicImage
from ottla.broker.metadata.names import INTERNAL_TOPICS, SHARE_TOPIC
from ottla.broker.ports.access import HasAccess
from ottla.broker.ports.identity import HasIdentity
from ottla.broker.ports.quotas import counted
from ottla.broker.ports.refusals import HasRefusals
from ottla.broker.ports.slices import HasSlices
from ottla.broker.ports.topics import HasImage, HasTopics
from ottla.broker.runtime.answers import then
from ottla.wire.acls import AclOperation, ResourceType
from ottla.wire.codec import NULL_UUID
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

#: Versions 10 and 11 have topic ids in their answers but do not take them in requests yet.
_ANSWERS_IDS_FROM = 12


#: An answer with more partitions is made in slices: it is a millisecond or two for a thousand.
_PARTITIONS_AT_ONCE = 1_000


class _Node(HasAccess, HasIdentity, HasImage, HasRefusals, HasSlices, HasTopics, Protocol):
    """What this handler touches."""


def handle(
    node: _Node, request: MetadataRequest, context: RequestContext
) -> "MetadataResponse | asyncio.Future[MetadataResponse]":
    """What the cluster looks like; once the topics are made that this request is the first to name."""
    if _is_large(node, request, context):
        return node.slices.start(_handle_large(node, request, context), "metadata of much")
    names, is_told = _named(node, request, context)
    refused = node.access.refused(context, AclOperation.DESCRIBE, ResourceType.TOPIC, names, told=is_told)
    missing = list(filter(None, _missing(node, request, refused))) if _may_make(request) else []
    if missing and not node.access.covers(context, AclOperation.CREATE, ResourceType.TOPIC, missing):
        uncreatable = node.access.refused(context, AclOperation.CREATE, ResourceType.TOPIC, missing)
        missing, refused = [name for name in missing if name not in uncreatable], refused | uncreatable
    making = _making(node, context, missing)
    if making is None:
        return _answer(node, request, context, _topics(node, request, context, refused))
    made: asyncio.Future[MetadataResponse] = then(
        making, lambda _: _answer(node, request, context, _topics(node, request, context, refused))
    )
    return made


def _is_large(node: _Node, request: MetadataRequest, context: RequestContext) -> bool:
    """Whether many topics or partitions are asked for."""
    image, named, wants_all = node.image, request.topics or (), _wants_all(request, context)
    if len(image.topics if wants_all else named) > PART_NAMES:
        return True
    topics = image.topics.values() if wants_all else (_topic(image, each) for each in named)
    return sum(len(topic.partitions) for topic in topics if topic is not None) > _PARTITIONS_AT_ONCE


def _topic(image: MetadataImage, named: MetadataRequestTopic) -> TopicImage | None:
    by_id = image.topics_by_id.get(named.topic_id)
    return by_id if named.name is None else image.topics.get(named.name)


async def _handle_large(node: _Node, request: MetadataRequest, context: RequestContext) -> MetadataResponse:
    """The same, while others are served: each name is a decision, and perhaps a line of the audit log."""
    access, slices, of = node.access, node.slices, (AclOperation.DESCRIBE, ResourceType.TOPIC)
    names, is_told = _named(node, request, context)
    decided = dict.fromkeys(names) if access.is_on else {}
    refused = await access.refused_of_many(slices, context, *of, decided, told=is_told)
    looked_at = await slices.collect(_missing(node, request, refused)) if _may_make(request) else ()
    missing = list(filter(None, looked_at))
    if missing and not await access.covers_many(slices, context, AclOperation.CREATE, ResourceType.TOPIC, missing):
        uncreatable = await access.refused_of_many(slices, context, AclOperation.CREATE, ResourceType.TOPIC, missing)
        missing, refused = [name for name in missing if name not in uncreatable], refused | uncreatable
    making = _making(node, context, missing)
    if making is not None:
        await making
    late = _late(node, request, context, decided)
    while len(late) > PART_NAMES:
        refused |= await access.refused_of_many(slices, context, *of, late, told=is_told)
        decided |= dict.fromkeys(late)
        late = _late(node, request, context, decided)
    refused |= access.refused(context, *of, late, told=is_told)  # nothing comes in between any more
    topics = _topics(node, request, context, refused)
    return _answer(node, request, context, await slices.collect(counted(context, topics)))


def _late(node: _Node, request: MetadataRequest, context: RequestContext, decided: Collection[str]) -> list[str]:
    """What is asked for and was not `decided` on: made meanwhile."""
    names, _ = _named(node, request, context)
    return [name for name in names if name not in decided] if node.access.is_on else []


def _making(node: _Node, context: RequestContext, missing: list[str]) -> "asyncio.Future[object] | None":
    """The missing topics are being made, as far as the client's quota goes; None if there are none."""
    charge = context.charge
    if missing and charge is not None:  # what there is no room for is told to be missing, and asked for again
        partitions = node.topics.auto_created_partitions
        missing = [name for name in missing if charge.changes(partitions, strict=True, is_told=False)]
    told = partial(_tell_left_out, node, context)
    return node.topics.change(partial(node.topics.auto_create_all, missing, told)) if missing else None


def _tell_left_out(node: _Node, context: RequestContext, name: str, why: str) -> None:
    node.refusals.tell(context.session.client_host, context.client_id, f"Metadata of {shown(name)}: not made: {why}")


def _named(node: _Node, request: MetadataRequest, context: RequestContext) -> tuple[Iterable[str], bool]:
    """The names of the topics that are asked for or, if all are, of all that exist; and whether a refusal is told."""
    image = node.image
    if _wants_all(request, context):
        return image.topics, False
    ids = [each.topic_id for each in request.topics or () if each.topic_id != NULL_UUID]
    by_id = (image.topics_by_id[each].name for each in ids if each in image.topics_by_id)
    return by_id if ids else (each.name for each in request.topics or () if each.name is not None), True


def _wants_all(request: MetadataRequest, context: RequestContext) -> bool:
    return request.topics is None or (context.api_version == 0 and not request.topics)


def _may_make(request: MetadataRequest) -> bool:
    """Whether the client has topics made that it names and that are not there."""
    named = request.topics or ()
    return bool(named) and request.allow_auto_topic_creation and all(each.topic_id == NULL_UUID for each in named)


def _missing(node: _Node, request: MetadataRequest, refused: Collection[str]) -> Iterator[str | None]:
    """The topics that are to be made, or None for a name that needs none."""
    may = node.topics.may_auto_create
    for name in dict.fromkeys(each.name for each in request.topics or ()):
        if name is None or name in node.image.topics or name in refused or name == SHARE_TOPIC:
            yield None
        else:
            yield name if may(name) and _is_valid(name) else None


def _answer(
    node: _Node, request: MetadataRequest, context: RequestContext, topics: Iterable[MetadataResponseTopic | None]
) -> MetadataResponse:
    me, told = node.identity, tuple(topic for topic in topics if topic is not None)
    if _is_by_id(request) and context.api_version < _ANSWERS_IDS_FROM:
        return MetadataResponse(topics=told)
    host, port = me.told[context.session.listener]
    return MetadataResponse(
        brokers=(MetadataResponseBroker(me.node_id, host, port, me.rack),),
        cluster_id=me.cluster_id,
        controller_id=me.node_id,
        topics=told,
        cluster_authorized_operations=on_cluster(
            node.access, context, asked=request.include_cluster_authorized_operations
        ),
    )


def _is_by_id(request: MetadataRequest) -> bool:
    return any(each.name is None or each.topic_id != NULL_UUID for each in request.topics or ())


def _topics(
    node: _Node, request: MetadataRequest, context: RequestContext, hidden: Collection[str]
) -> Iterator[MetadataResponseTopic | None]:
    """What is told of each topic, one in a step; None in others. Topics that are made meanwhile are not told of."""
    named = request.topics or ()
    if _is_by_id(request) and context.api_version < _ANSWERS_IDS_FROM:
        return (MetadataResponseTopic(ErrorCode.INVALID_REQUEST, each.name or "", each.topic_id) for each in named)
    if _wants_all(request, context):  # nobody learns names that he may not describe
        shown = [topic for name, topic in node.image.topics.items() if name not in hidden]
        topics = chain.from_iterable(_describe(topic) for topic in shown)
    else:
        topics = chain.from_iterable(_asked(node, named, hidden))
    return _with_operations(node, context, topics) if request.include_topic_authorized_operations else topics


def _with_operations(
    node: _Node, context: RequestContext, topics: Iterable[MetadataResponseTopic | None]
) -> Iterator[MetadataResponseTopic | None]:
    for topic in topics:
        if topic is None or topic.name is None or topic.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            yield topic
        else:
            operations = node.access.operations(context, ResourceType.TOPIC, topic.name)
            yield topic._replace(topic_authorized_operations=operations)


def _asked(
    node: _Node, topics: Sequence[MetadataRequestTopic], hidden: Collection[str]
) -> Iterator[Iterable[MetadataResponseTopic | None]]:
    """Each topic once, in steps. If any topic is asked for by id, names are ignored."""
    by_id = [each for each in topics if each.topic_id != NULL_UUID]
    if by_id:  # as they are now: it was decided on those that are there
        ids = dict.fromkeys(each.topic_id for each in by_id)
        found = [(topic_id, node.image.topics_by_id.get(topic_id)) for topic_id in ids]
        return (_found(topic_id, topic, hidden) for topic_id, topic in found)
    return _each(node, topics, hidden)


def _each(
    node: _Node, topics: Sequence[MetadataRequestTopic], hidden: Collection[str]
) -> Iterator[Iterable[MetadataResponseTopic | None]]:
    yield (None,)
    for name in dict.fromkeys(each.name for each in topics):
        yield _find(node, name, hidden)


def _found(
    topic_id: bytes, topic: TopicImage | None, hidden: Collection[str]
) -> Iterable[MetadataResponseTopic | None]:
    if topic is None:
        return (MetadataResponseTopic(ErrorCode.UNKNOWN_TOPIC_ID, None, topic_id),)
    if topic.name in hidden:
        return (MetadataResponseTopic(ErrorCode.TOPIC_AUTHORIZATION_FAILED, None, topic_id),)
    return _describe(topic)


def _is_valid(name: str) -> bool:
    return topic_name_problem(name) is None


def _find(node: _Node, name: str | None, hidden: Collection[str]) -> Iterable[MetadataResponseTopic | None]:
    if name in hidden:
        return (MetadataResponseTopic(ErrorCode.TOPIC_AUTHORIZATION_FAILED, name),)
    if name is None or not _is_valid(name):
        return (MetadataResponseTopic(ErrorCode.INVALID_TOPIC_EXCEPTION, name),)
    topic = node.image.topics.get(name)
    if topic is None:
        is_internal, missing = name in INTERNAL_TOPICS, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return (MetadataResponseTopic(missing, name, is_internal=is_internal),)
    return _describe(topic)


def _describe(topic: TopicImage) -> Iterator[MetadataResponseTopic | None]:
    """The topic at last, and None between two steps before that."""
    changes = topic.changes
    if topic.told is not None and topic.told[0] == changes:
        yield topic.told[1]
        return
    there, partitions = tuple(topic.partitions), list[MetadataResponsePartition]()
    for begin in range(0, len(there), _PARTITIONS_AT_ONCE):
        if begin:
            yield None
        part = there[begin : begin + _PARTITIONS_AT_ONCE]
        partitions += [
            MetadataResponsePartition(0, number, each.leader, each.leader_epoch, each.replicas, each.replicas)
            for number, each in enumerate(part, begin)
        ]
    told = MetadataResponseTopic(0, topic.name, topic.topic_id, topic.internal, tuple(partitions))
    topic.told = changes, told
    yield told
