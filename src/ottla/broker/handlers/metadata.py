"""Metadata, versions 0–13: brokers and topics; a missing topic is created when both sides allow it.

Topics by id from version 12 on (KIP-516). Version 0 has no null list: an empty one means all topics.
"""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Protocol

from ottla.base.topic_names import topic_name_problem
from ottla.broker.handlers.authorized import NOT_ASKED, ON_CLUSTER, ON_TOPIC
from ottla.broker.handlers.table import RequestContext
from ottla.broker.metadata.image import TopicImage
from ottla.broker.metadata.names import INTERNAL_TOPICS, SHARE_TOPIC
from ottla.broker.ports.identity import HasIdentity
from ottla.broker.ports.topics import HasImage, HasTopics
from ottla.broker.runtime.answers import then
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


class _Node(HasIdentity, HasImage, HasTopics, Protocol):
    """What this handler touches."""


def handle(
    node: _Node, request: MetadataRequest, context: RequestContext
) -> "MetadataResponse | asyncio.Future[MetadataResponse]":
    """What the cluster looks like; once the topics are made that this request is the first to name."""
    missing = _missing(node, request)
    if not missing:
        return _answer(node, request, context)
    making = node.topics.change(partial(node.topics.auto_create_all, missing))
    made: asyncio.Future[MetadataResponse] = then(making, lambda _: _answer(node, request, context))
    return made


def _missing(node: _Node, request: MetadataRequest) -> list[str]:
    """The topics that are to be made."""
    if not (request.topics and request.allow_auto_topic_creation):
        return []
    if any(each.topic_id != NULL_UUID for each in request.topics):
        return []
    topics = node.image.topics
    names = dict.fromkeys(each.name for each in request.topics if each.name not in topics)
    may = node.topics.may_auto_create
    return [name for name in names if name is not None and name != SHARE_TOPIC and may(name) and _is_valid(name)]


def _answer(node: _Node, request: MetadataRequest, context: RequestContext) -> MetadataResponse:
    named = request.topics or ()
    by_id = any(each.name is None or each.topic_id != NULL_UUID for each in named)
    if by_id and context.api_version < _ANSWERS_IDS_FROM:
        refused = (MetadataResponseTopic(ErrorCode.INVALID_REQUEST, each.name or "", each.topic_id) for each in named)
        return MetadataResponse(topics=tuple(refused))
    if request.topics is None or (context.api_version == 0 and not request.topics):
        topics = [_describe(topic) for topic in node.image.topics.values()]
    else:
        topics = _asked(node, request, request.topics)
    if request.include_topic_authorized_operations:
        topics = [
            topic if topic.name is None else topic._replace(topic_authorized_operations=ON_TOPIC) for topic in topics
        ]
    me = node.identity
    return MetadataResponse(
        brokers=(MetadataResponseBroker(me.node_id, me.host, me.port, me.rack),),
        cluster_id=me.cluster_id,
        controller_id=me.node_id,
        topics=tuple(topics),
        cluster_authorized_operations=ON_CLUSTER if request.include_cluster_authorized_operations else NOT_ASKED,
    )


def _asked(
    node: _Node, request: MetadataRequest, topics: Sequence[MetadataRequestTopic]
) -> list[MetadataResponseTopic]:
    """Each topic once. If any topic is asked for by id, names are ignored."""
    by_id = [each for each in topics if each.topic_id != NULL_UUID]
    if by_id:
        return [_find_id(node, topic_id) for topic_id in dict.fromkeys(each.topic_id for each in by_id)]
    names = dict.fromkeys(each.name for each in topics)
    return [_find(node, name) for name in names]


def _find_id(node: _Node, topic_id: bytes) -> MetadataResponseTopic:
    topic = node.image.topics_by_id.get(topic_id)
    if topic is None:
        return MetadataResponseTopic(ErrorCode.UNKNOWN_TOPIC_ID, None, topic_id)
    return _describe(topic)


def _is_valid(name: str) -> bool:
    return topic_name_problem(name) is None


def _find(node: _Node, name: str | None) -> MetadataResponseTopic:
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
