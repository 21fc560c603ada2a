"""Metadata and FindCoordinator: a broker answers from its own image of the cluster, which may be out of date."""

from typing import TYPE_CHECKING

from ottla.wire.errors import ErrorCode
from ottla.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from ottla.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from sim.cluster.controller import NO_LEADER, Topic
from sim.cluster.coordinators import INTERNAL_TOPICS, OFFSETS_TOPIC, TRANSACTIONS_TOPIC, partition_of
from sim.cluster.server import Answer, Context

if TYPE_CHECKING:
    from sim.cluster.node import Node

_GROUP = 0


def metadata(node: "Node", request: MetadataRequest, context: Context, answer: Answer) -> None:
    """All topics, or those that the request has by name or id."""
    image, cluster = node.image, node.cluster
    topics: list[MetadataResponseTopic] = []
    if request.topics is None:
        topics = [_topic(node, topic) for topic in image.topics.values()]
    for asked in request.topics or ():
        name = asked.name or image.name_of(asked.topic_id)
        found = image.topics.get(name or "")
        if found is not None:
            topics.append(_topic(node, found))
        elif asked.name:
            topics.append(MetadataResponseTopic(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, asked.name))
        else:
            topics.append(MetadataResponseTopic(ErrorCode.UNKNOWN_TOPIC_ID, None, asked.topic_id))
    brokers = tuple(MetadataResponseBroker(n, cluster.nodes[n].host, 9092) for n in image.live)
    answer(MetadataResponse(0, brokers, "simulated", min(image.live, default=-1), tuple(topics)))


def _topic(node: "Node", topic: Topic) -> MetadataResponseTopic:
    partitions = []
    for tp, state in node.image.partitions.items():
        if tp.topic == topic.name:
            error = ErrorCode.LEADER_NOT_AVAILABLE if state.leader == NO_LEADER else ErrorCode.NONE
            partitions.append(
                MetadataResponsePartition(
                    error, tp.partition, state.leader, state.leader_epoch, state.replicas, state.isr
                )
            )
    internal = topic.name in INTERNAL_TOPICS
    return MetadataResponseTopic(ErrorCode.NONE, topic.name, topic.topic_id, internal, tuple(partitions))


def find_coordinator(node: "Node", request: FindCoordinatorRequest, context: Context, answer: Answer) -> None:
    """From version 4 on: several keys at once."""
    topic = OFFSETS_TOPIC if request.key_type == _GROUP else TRANSACTIONS_TOPIC
    found = []
    for key in request.coordinator_keys:
        state = node.image.partitions.get(partition_of(topic, key))
        if state is None or state.leader not in node.image.live:
            found.append(Coordinator(key, -1, "", -1, ErrorCode.COORDINATOR_NOT_AVAILABLE, "no leader"))
        else:
            found.append(Coordinator(key, state.leader, node.cluster.nodes[state.leader].host, 9092, 0, None))
    answer(FindCoordinatorResponse(coordinators=tuple(found)))
