"""Metadata, versions 0–13: brokers and topics; a missing topic is created when both sides allow it.

Topics by id from version 12 on (KIP-516). Version 0 has no null list: an empty one means all topics.
"""

import asyncio
from collections.abc import Collection, Iterable, Sequence
from functools import partial
from typing import Protocol

from ottla.base.topic_names import topic_name_problem
from ottla.broker.handlers.authorized import on_cluster
from ottla.broker.handlers.parts import PART_NAMES
from ottla.broker.handlers.table import RequestContext
from ottla.broker.metadata.image import TopicImage
from ottla.broker.metadata.names import INTERNAL_TOPICS, SHARE_TOPIC
from ottla.broker.ports.access import HasAccess
from ottla.broker.ports.identity import HasIdentity
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


class _Node(HasAccess, HasIdentity, HasImage, HasSlices, HasTopics, Protocol):
    """What this handler touches."""


def handle(
    node: _Node, request: MetadataRequest, context: RequestContext
) -> "MetadataResponse | asyncio.Future[MetadataResponse]":
    """What the cluster looks like; once the topics are made that this request is the first to name."""
    if node.access.is_on and len(node.image.topics if request.topics is None else request.topics) > PART_NAMES:
        return node.slices.start(_handle_many(node, request, context), "metadata of many topics")
    names, is_told = _named(node, request, context)
    refused = node.access.refused(context, AclOperation.DESCRIBE, ResourceType.TOPIC, names, told=is_told)
    missing = _missing(node, request, refused)
    uncreatable: frozenset[str] = frozenset()
    if missing and not node.access.covers(context, AclOperation.CREATE, ResourceType.TOPIC, missing):
        uncreatable = node.access.refused(context, AclOperation.CREATE, ResourceType.TOPIC, missing)
    return _made(node, request, context, refused | uncreatable, [each for each in missing if each not in uncreatable])


async def _handle_many(node: _Node, request: MetadataRequest, context: RequestContext) -> MetadataResponse:
    """The same, while others are served: each name is a decision, and perhaps a line of the audit log."""
    of_many, slices = node.access.refused_of_many, node.slices
    names, is_told = _named(node, request, context)
    decided = dict.fromkeys(names)
    refused = await of_many(slices, context, AclOperation.DESCRIBE, ResourceType.TOPIC, decided, told=is_told)
    late = [name for name in _named(node, request, context)[0] if name not in decided]  # made meanwhile
    refused |= node.access.refused(context, AclOperation.DESCRIBE, ResourceType.TOPIC, late, told=is_told)
    missing = _missing(node, request, refused)
    uncreatable: frozenset[str] = frozenset()
    if missing and not node.access.covers(context, AclOperation.CREATE, ResourceType.TOPIC, missing):
        uncreatable = await of_many(slices, context, AclOperation.CREATE, ResourceType.TOPIC, missing)
    missing = [name for name in missing if name not in uncreatable]
    answer = _made(node, request, context, refused | uncreatable, missing)
    return answer if isinstance(answer, MetadataResponse) else await answer


def _made(
    node: _Node, request: MetadataRequest, context: RequestContext, refused: frozenset[str], missing: list[str]
) -> "MetadataResponse | asyncio.Future[MetadataResponse]":
    """The answer, once the missing topics are made."""
    charge = context.charge
    if missing and charge is not None:  # what there is no room for is told to be missing, and asked for again
        partitions = node.topics.auto_created_partitions
        missing = [name for name in missing if charge.changes(partitions, strict=True, is_told=False)]
    if not missing:
        return _answer(node, request, context, refused)
    making = node.topics.change(partial(node.topics.auto_create_all, missing))
    made: asyncio.Future[MetadataResponse] = then(making, lambda _: _answer(node, request, context, refused))
    return made


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


def _missing(node: _Node, request: MetadataRequest, refused: Collection[str]) -> list[str]:
    """The topics that are to be made."""
    if not (request.topics and request.allow_auto_topic_creation):
        return []
    if any(each.topic_id != NULL_UUID for each in request.topics):
        return []
    topics = node.image.topics
    names = dict.fromkeys(each.name for each in request.topics if each.name not in topics and each.name not in refused)
    may = node.topics.may_auto_create
    return [name for name in names if name is not None and name != SHARE_TOPIC and may(name) and _is_valid(name)]


def _answer(
    node: _Node, request: MetadataRequest, context: RequestContext, hidden: Collection[str]
) -> MetadataResponse:
    named = request.topics or ()
    by_id = any(each.name is None or each.topic_id != NULL_UUID for each in named)
    if by_id and context.api_version < _ANSWERS_IDS_FROM:
        refused = (MetadataResponseTopic(ErrorCode.INVALID_REQUEST, each.name or "", each.topic_id) for each in named)
        return MetadataResponse(topics=tuple(refused))
    if _wants_all(request, context):  # nobody learns names that he may not describe
        topics = [_describe(topic) for name, topic in node.image.topics.items() if name not in hidden]
    else:
        topics = _asked(node, named, hidden)
    if request.include_topic_authorized_operations:
        topics = [
            topic
            if topic.name is None or topic.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
            else topic._replace(
                topic_authorized_operations=node.access.operations(context, ResourceType.TOPIC, topic.name)
            )
            for topic in topics
        ]
    me = node.identity
    host, port = me.told[context.session.listener]
    return MetadataResponse(
        brokers=(MetadataResponseBroker(me.node_id, host, port, me.rack),),
        cluster_id=me.cluster_id,
        controller_id=me.node_id,
        topics=tuple(topics),
        cluster_authorized_operations=on_cluster(
            node.access, context, asked=request.include_cluster_authorized_operations
        ),
    )


def _asked(node: _Node, topics: Sequence[MetadataRequestTopic], hidden: Collection[str]) -> list[MetadataResponseTopic]:
    """Each topic once. If any topic is asked for by id, names are ignored."""
    by_id = [each for each in topics if each.topic_id != NULL_UUID]
    if by_id:
        return [_find_id(node, topic_id, hidden) for topic_id in dict.fromkeys(each.topic_id for each in by_id)]
    names = dict.fromkeys(each.name for each in topics)
    return [_find(node, name, hidden) for name in names]


def _find_id(node: _Node, topic_id: bytes, hidden: Collection[str]) -> MetadataResponseTopic:
    topic = node.image.topics_by_id.get(topic_id)
    if topic is None:
        return MetadataResponseTopic(ErrorCode.UNKNOWN_TOPIC_ID, None, topic_id)
    if topic.name in hidden:
        return MetadataResponseTopic(ErrorCode.TOPIC_AUTHORIZATION_FAILED, None, topic_id)
    return _describe(topic)


def _is_valid(name: str) -> bool:
    return topic_name_problem(name) is None


def _find(node: _Node, name: str | None, hidden: Collection[str]) -> MetadataResponseTopic:
    if name in hidden:
        return MetadataResponseTopic(ErrorCode.TOPIC_AUTHORIZATION_FAILED, name)
    if name is None or not _is_valid(name):
        return MetadataResponseTopic(ErrorCode.INVALID_TOPIC_EXCEPTION, name)
    topic = node.image.topics.get(name)
    if topic is None:
        return MetadataResponseTopic(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name, is_internal=name in INTERNAL_TOPICS)
    return _describe(topic)


def _describe(topic: TopicImage) -> MetadataResponseTopic:
    partitions = tuple(
        MetadataResponsePartition(0, number, each.leader, each.leader_epoch, each.replicas, each.replicas)
        for number, each in enumerate(topic.partitions)
    )
    return MetadataResponseTopic(0, topic.name, topic.topic_id, topic.internal, partitions)
