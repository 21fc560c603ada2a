"""list_offsets messages. Written by tools/gen_messages.py from kio 0.6.5; do not edit."""

from typing import NamedTuple

from ottla.wire.schema import LATEST, Field, declare


class ListOffsetsPartition(NamedTuple):
    partition_index: int = 0
    current_leader_epoch: int = -1
    timestamp: int = 0


class ListOffsetsTopic(NamedTuple):
    name: str = ""
    partitions: tuple[ListOffsetsPartition, ...] = ()


class ListOffsetsRequest(NamedTuple):
    replica_id: int = 0
    isolation_level: int = 0
    topics: tuple[ListOffsetsTopic, ...] = ()
    timeout_ms: int = 0


class ListOffsetsPartitionResponse(NamedTuple):
    partition_index: int = 0
    error_code: int = 0
    timestamp: int = -1
    offset: int = -1
    leader_epoch: int = -1


class ListOffsetsTopicResponse(NamedTuple):
    name: str = ""
    partitions: tuple[ListOffsetsPartitionResponse, ...] = ()


class ListOffsetsResponse(NamedTuple):
    throttle_time_ms: int = 0
    topics: tuple[ListOffsetsTopicResponse, ...] = ()


declare(
    ListOffsetsPartition,
    (
        Field("partition_index", "int32", 0, LATEST),
        Field("current_leader_epoch", "int32", 4, LATEST),
        Field("timestamp", "int64", 0, LATEST),
    ),
    flexible_from=6,
)
declare(
    ListOffsetsTopic,
    (
        Field("name", "string", 0, LATEST),
        Field("partitions", [ListOffsetsPartition], 0, LATEST),
    ),
    flexible_from=6,
)
declare(
    ListOffsetsRequest,
    (
        Field("replica_id", "int32", 0, LATEST),
        Field("isolation_level", "int8", 2, LATEST, ignorable=False),
        Field("topics", [ListOffsetsTopic], 0, LATEST),
        Field("timeout_ms", "int32", 10, LATEST),
    ),
    flexible_from=6,
)
declare(
    ListOffsetsPartitionResponse,
    (
        Field("partition_index", "int32", 0, LATEST),
        Field("error_code", "int16", 0, LATEST),
        Field("timestamp", "int64", 0, LATEST),
        Field("offset", "int64", 0, LATEST),
        Field("leader_epoch", "int32", 4, LATEST),
    ),
    flexible_from=6,
)
declare(
    ListOffsetsTopicResponse,
    (
        Field("name", "string", 0, LATEST),
        Field("partitions", [ListOffsetsPartitionResponse], 0, LATEST),
    ),
    flexible_from=6,
)
declare(
    ListOffsetsResponse,
    (
        Field("throttle_time_ms", "int32", 2, LATEST),
        Field("topics", [ListOffsetsTopicResponse], 0, LATEST),
    ),
    flexible_from=6,
)
