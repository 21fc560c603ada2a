"""OffsetForLeaderEpoch, versions 2–4 (KIP-320): where an epoch ends, so that a reader notices a log that was cut."""

from ottla.broker.handlers.table import RequestContext
from ottla.broker.ports.partitions import HasPartitions
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)


def handle(
    node: HasPartitions, request: OffsetForLeaderEpochRequest, context: RequestContext
) -> OffsetForLeaderEpochResponse:
    """The largest epoch that is not above the one asked for, and where it ends."""
    return OffsetForLeaderEpochResponse(
        topics=tuple(
            OffsetForLeaderTopicResult(topic.topic, tuple(_one(node, topic.topic, each) for each in topic.partitions))
            for topic in request.topics
        )
    )


def _one(node: HasPartitions, topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    partition = node.partitions.find(topic, asked.partition)
    if partition is None:
        return EpochEndOffset(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, asked.partition)
    error = partition.check_leader_epoch(asked.current_leader_epoch)
    if error is not ErrorCode.NONE:
        return EpochEndOffset(error, asked.partition)
    end = partition.log.end_offset_for_epoch(asked.leader_epoch)
    return EpochEndOffset(0, asked.partition, end.leader_epoch, end.end_offset)
