"""OffsetForLeaderEpoch, versions 2–4 (KIP-320): where an epoch ends, so that a reader notices a log that was cut."""

from typing import TYPE_CHECKING

from ottla.broker.handlers.table import RequestContext
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)

if TYPE_CHECKING:
    from ottla.broker.node import Node


def handle(node: "Node", request: OffsetForLeaderEpochRequest, context: RequestContext) -> OffsetForLeaderEpochResponse:
    """The largest epoch up to the one asked for, and its end."""
    return OffsetForLeaderEpochResponse(
        topics=tuple(
            OffsetForLeaderTopicResult(topic.topic, tuple(_one(node, topic.topic, each) for each in topic.partitions))
            for topic in request.topics
        )
    )


def _one(node: "Node", topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    partition = node.partitions.find(topic, asked.partition)
    if partition is None:
        return EpochEndOffset(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, asked.partition)
    error = node.check_leader_epoch(partition, asked.current_leader_epoch)
    if error is not ErrorCode.NONE:
        return EpochEndOffset(error, asked.partition)
    end = partition.log.end_offset_for_epoch(asked.leader_epoch)
    return EpochEndOffset(0, asked.partition, end.leader_epoch, end.end_offset)
