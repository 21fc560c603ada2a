"""offset_for_leader_epoch messages. Written by tools/gen_messages.py from kio 0.6.5; do not edit."""

from typing import NamedTuple

from ottla.wire.schema import LATEST, Field, declare


class OffsetForLeaderPartition(NamedTuple):
    partition: int = 0
    current_leader_epoch: int = -1
    leader_epoch: int = 0


class OffsetForLeaderTopic(NamedTuple):
    topic: str = ""
    partitions: tuple[OffsetForLeaderPartition, ...] = ()


class OffsetForLeaderEpochRequest(NamedTuple):
    replica_id: int = -2
    topics: tuple[OffsetForLeaderTopic, ...] = ()


class EpochEndOffset(NamedTuple):
    error_code: int = 0
    partition: int = 0
    leader_epoch: int = -1
    end_offset: int = -1


class OffsetForLeaderTopicResult(NamedTuple):
    topic: str = ""
    partitions: tuple[EpochEndOffset, ...] = ()


class OffsetForLeaderEpochResponse(NamedTuple):
    throttle_time_ms: int = 0
    topics: tuple[OffsetForLeaderTopicResult, ...] = ()


declare(
    OffsetForLeaderPartition,
    (
        Field("partition", "int32", 0, LATEST),
        Field("current_leader_epoch", "int32", 0, LATEST),
        Field("leader_epoch", "int32", 0, LATEST),
    ),
    flexible_from=4,
)
declare(
    OffsetForLeaderTopic,
    (
        Field("topic", "string", 0, LATEST),
        Field("partitions", [OffsetForLeaderPartition], 0, LATEST),
    ),
    flexible_from=4,
)
declare(
    OffsetForLeaderEpochRequest,
    (
        Field("replica_id", "int32", 3, LATEST),
        Field("topics", [OffsetForLeaderTopic], 0, LATEST),
    ),
    flexible_from=4,
)
declare(
    EpochEndOffset,
    (
        Field("error_code", "int16", 0, LATEST),
        Field("partition", "int32", 0, LATEST),
        Field("leader_epoch", "int32", 0, LATEST),
        Field("end_offset", "int64", 0, LATEST),
    ),
    flexible_from=4,
)
declare(
    OffsetForLeaderTopicResult,
    (
        Field("topic", "string", 0, LATEST),
        Field("partitions", [EpochEndOffset], 0, LATEST),
    ),
    flexible_from=4,
)
declare(
    OffsetForLeaderEpochResponse,
    (
        Field("throttle_time_ms", "int32", 0, LATEST),
        Field("topics", [OffsetForLeaderTopicResult], 0, LATEST),
    ),
    flexible_from=4,
)
