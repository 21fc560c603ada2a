"""ListOffsets and OffsetForLeaderEpoch."""

from typing import TYPE_CHECKING

from ottla.base.types import TopicPartition
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from ottla.wire.records import decode_batch
from sim.cluster.fetch import epoch_error
from sim.cluster.server import Answer, Context

if TYPE_CHECKING:
    from sim.cluster.node import Node
    from sim.cluster.replica import Replica

_LATEST, _EARLIEST = -1, -2


def list_offsets(node: "Node", request: ListOffsetsRequest, context: Context, answer: Answer) -> None:
    """The end (which depends on the isolation level), the beginning, or the first record at or after a time."""
    answer(
        ListOffsetsResponse(
            0,
            tuple(
                ListOffsetsTopicResponse(
                    topic.name,
                    tuple(_one(node, topic.name, part, request.isolation_level) for part in topic.partitions),
                )
                for topic in request.topics
            ),
        )
    )


def _one(node: "Node", topic: str, asked: ListOffsetsPartition, isolation: int) -> ListOffsetsPartitionResponse:
    tp = TopicPartition(topic, asked.partition_index)
    if tp not in node.image.partitions:
        return ListOffsetsPartitionResponse(tp.partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    replica = node.replica(tp)
    error = epoch_error(replica, asked.current_leader_epoch)
    end = replica.log.stable_offset(replica.high_watermark) if isolation else replica.high_watermark
    if error is ErrorCode.NONE and asked.timestamp != _EARLIEST and not replica.knows_end:
        error = ErrorCode.OFFSET_NOT_AVAILABLE
    if error is not ErrorCode.NONE:
        return ListOffsetsPartitionResponse(tp.partition, error)
    if asked.timestamp == _LATEST:
        return ListOffsetsPartitionResponse(tp.partition, ErrorCode.NONE, -1, end, replica.leader_epoch)
    if asked.timestamp == _EARLIEST:
        return ListOffsetsPartitionResponse(tp.partition, ErrorCode.NONE, -1, 0, 0)
    return _by_time(replica, tp.partition, asked.timestamp, end)


def _by_time(replica: "Replica", number: int, timestamp_ms: int, end: int) -> ListOffsetsPartitionResponse:
    for entry in replica.log.entries:
        if entry.header.is_control or entry.header.max_timestamp_ms < timestamp_ms or entry.base_offset >= end:
            continue
        for record in decode_batch(entry.payload):
            if record.timestamp_ms >= timestamp_ms and record.offset < end:
                return ListOffsetsPartitionResponse(
                    number, ErrorCode.NONE, record.timestamp_ms, record.offset, entry.epoch
                )
    return ListOffsetsPartitionResponse(number, ErrorCode.NONE)


def offset_for_leader_epoch(
    node: "Node", request: OffsetForLeaderEpochRequest, context: Context, answer: Answer
) -> None:
    """The end offset of a leader epoch."""

    def one(topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
        tp = TopicPartition(topic, asked.partition)
        if tp not in node.image.partitions:
            return EpochEndOffset(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, tp.partition)
        replica = node.replica(tp)
        error = epoch_error(replica, asked.current_leader_epoch)
        if error is not ErrorCode.NONE:
            return EpochEndOffset(error, tp.partition)
        if asked.leader_epoch == replica.leader_epoch:
            return EpochEndOffset(ErrorCode.NONE, tp.partition, asked.leader_epoch, replica.log.end_offset)
        if asked.leader_epoch > replica.leader_epoch:
            return EpochEndOffset(ErrorCode.NONE, tp.partition)
        return EpochEndOffset(ErrorCode.NONE, tp.partition, *replica.log.end_of_epoch(asked.leader_epoch))

    answer(
        OffsetForLeaderEpochResponse(
            0,
            tuple(
                OffsetForLeaderTopicResult(topic.topic, tuple(one(topic.topic, part) for part in topic.partitions))
                for topic in request.topics
            ),
        )
    )
