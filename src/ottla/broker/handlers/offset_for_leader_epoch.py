"""OffsetForLeaderEpoch, versions 2–4 (KIP-320): where an epoch ends, so that a reader notices a log that was cut."""

from collections.abc import Collection
from typing import Protocol

from ottla.broker.handlers.table import RequestContext
from ottla.broker.ports.access import HasAccess
from ottla.broker.ports.partitions import HasPartitions
from ottla.wire.acls import AclOperation, ResourceType
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)


class _Node(HasAccess, HasPartitions, Protocol):
    """What this handler touches."""


def handle(node: _Node, request: OffsetForLeaderEpochRequest, context: RequestContext) -> OffsetForLeaderEpochResponse:
    """The largest epoch that is not above the one asked for, and where it ends."""
    refused: Collection[str] = ()
    if not node.access.allows_cluster(context, AclOperation.CLUSTER_ACTION, told=False):
        names = (topic.topic for topic in request.topics)
        refused = node.access.refused(context, AclOperation.DESCRIBE, ResourceType.TOPIC, names)
    return OffsetForLeaderEpochResponse(
        topics=tuple(
            OffsetForLeaderTopicResult(
                topic.topic, tuple(_one(node, topic.topic, each, refused) for each in topic.partitions)
            )
            for topic in request.topics
        )
    )


def _one(node: _Node, topic: str, asked: OffsetForLeaderPartition, refused: Collection[str]) -> EpochEndOffset:
    if topic in refused:
        return EpochEndOffset(ErrorCode.TOPIC_AUTHORIZATION_FAILED, asked.partition)
    partition = node.partitions.find(topic, asked.partition)
    if partition is None:
        return EpochEndOffset(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, asked.partition)
    error = partition.check_leader_epoch(asked.current_leader_epoch)
    if error is not ErrorCode.NONE:
        return EpochEndOffset(error, asked.partition)
    end = partition.log.end_offset_for_epoch(asked.leader_epoch)
    return EpochEndOffset(0, asked.partition, end.leader_epoch, end.end_offset)
