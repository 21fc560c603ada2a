"""Metadata, versions 0–13: brokers and topics; a missing topic is created when both sides allow it.

Topics by id from version 10 on (KIP-516). Version 0 has no null list: an empty one means all topics.
"""

from typing import TYPE_CHECKING

from ottla.broker.handlers.table import RequestContext
from ottla.broker.metadata.image import TopicImage
from ottla.broker.metadata.names import name_problem
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

if TYPE_CHECKING:
    from ottla.broker.node import Node


def handle(node: "Node", request: MetadataRequest, context: RequestContext) -> MetadataResponse:
    """What the cluster looks like."""
    wants_all = request.topics is None or (context.api_version == 0 and not request.topics)
    if wants_all or request.topics is None:
        topics = tuple(_describe(topic) for topic in node.metadata.image.topics.values())
    else:
        may_create = request.allow_auto_topic_creation
        topics = tuple(_find(node, wanted, may_create) for wanted in request.topics)
    broker = MetadataResponseBroker(node.node_id, node.host, node.port, node.rack)
    return MetadataResponse(brokers=(broker,), cluster_id=node.cluster_id, controller_id=node.node_id, topics=topics)


def _find(node: "Node", wanted: MetadataRequestTopic, may_create: bool) -> MetadataResponseTopic:
    if wanted.topic_id != NULL_UUID:
        topic = node.metadata.image.topics_by_id.get(wanted.topic_id)
        if topic is None:
            return MetadataResponseTopic(ErrorCode.UNKNOWN_TOPIC_ID, wanted.name, wanted.topic_id)
        return _describe(topic)
    name = wanted.name
    if name is None or name_problem(name) is not None:
        return MetadataResponseTopic(ErrorCode.INVALID_TOPIC_EXCEPTION, name)
    topic = node.metadata.image.topics.get(name)
    if topic is None and may_create:
        topic = node.auto_create_topic(name)
    if topic is None:
        return MetadataResponseTopic(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name)
    return _describe(topic)


def _describe(topic: TopicImage) -> MetadataResponseTopic:
    partitions = tuple(
        MetadataResponsePartition(0, number, each.leader, each.leader_epoch, each.replicas, each.replicas)
        for number, each in enumerate(topic.partitions)
    )
    return MetadataResponseTopic(0, topic.name, topic.topic_id, topic.internal, partitions)
