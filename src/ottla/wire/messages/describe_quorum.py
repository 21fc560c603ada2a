"""describe_quorum messages. Written by tools/gen_messages.py from kio 0.6.5; do not edit."""

from typing import NamedTuple

from ottla.wire.codec import NULL_UUID
from ottla.wire.schema import LATEST, Field, declare


class PartitionData(NamedTuple):
    partition_index: int = 0


class TopicData(NamedTuple):
    topic_name: str = ""
    partitions: tuple[PartitionData, ...] = ()


class DescribeQuorumRequest(NamedTuple):
    topics: tuple[TopicData, ...] = ()


class ReplicaState(NamedTuple):
    replica_id: int = 0
    replica_directory_id: bytes = NULL_UUID
    log_end_offset: int = 0
    last_fetch_timestamp: int = -1
    last_caught_up_timestamp: int = -1


class QuorumPartition(NamedTuple):
    partition_index: int = 0
    error_code: int = 0
    error_message: str | None = ""
    leader_id: int = 0
    leader_epoch: int = 0
    high_watermark: int = 0
    current_voters: tuple[ReplicaState, ...] = ()
    observers: tuple[ReplicaState, ...] = ()


class QuorumTopic(NamedTuple):
    topic_name: str = ""
    partitions: tuple[QuorumPartition, ...] = ()


class Listener(NamedTuple):
    name: str = ""
    host: str = ""
    port: int = 0


class Node(NamedTuple):
    node_id: int = 0
    listeners: tuple[Listener, ...] = ()


class DescribeQuorumResponse(NamedTuple):
    error_code: int = 0
    error_message: str | None = ""
    topics: tuple[QuorumTopic, ...] = ()
    nodes: tuple[Node, ...] = ()


declare(
    PartitionData,
    (Field("partition_index", "int32", 0, LATEST),),
    flexible_from=0,
)
declare(
    TopicData,
    (
        Field("topic_name", "string", 0, LATEST),
        Field("partitions", [PartitionData], 0, LATEST),
    ),
    flexible_from=0,
)
declare(
    DescribeQuorumRequest,
    (Field("topics", [TopicData], 0, LATEST),),
    flexible_from=0,
)
declare(
    ReplicaState,
    (
        Field("replica_id", "int32", 0, LATEST),
        Field("replica_directory_id", "uuid", 2, LATEST),
        Field("log_end_offset", "int64", 0, LATEST),
        Field("last_fetch_timestamp", "int64", 1, LATEST),
        Field("last_caught_up_timestamp", "int64", 1, LATEST),
    ),
    flexible_from=0,
)
declare(
    QuorumPartition,
    (
        Field("partition_index", "int32", 0, LATEST),
        Field("error_code", "int16", 0, LATEST),
        Field("error_message", "string", 2, LATEST, null_first=2, null_last=LATEST),
        Field("leader_id", "int32", 0, LATEST),
        Field("leader_epoch", "int32", 0, LATEST),
        Field("high_watermark", "int64", 0, LATEST),
        Field("current_voters", [ReplicaState], 0, LATEST),
        Field("observers", [ReplicaState], 0, LATEST),
    ),
    flexible_from=0,
)
declare(
    QuorumTopic,
    (
        Field("topic_name", "string", 0, LATEST),
        Field("partitions", [QuorumPartition], 0, LATEST),
    ),
    flexible_from=0,
)
declare(
    Listener,
    (
        Field("name", "string", 0, LATEST),
        Field("host", "string", 0, LATEST),
        Field("port", "uint16", 0, LATEST),
    ),
    flexible_from=2,
)
declare(
    Node,
    (
        Field("node_id", "int32", 0, LATEST),
        Field("listeners", [Listener], 0, LATEST),
    ),
    flexible_from=2,
)
declare(
    DescribeQuorumResponse,
    (
        Field("error_code", "int16", 0, LATEST),
        Field("error_message", "string", 2, LATEST, null_first=2, null_last=LATEST),
        Field("topics", [QuorumTopic], 0, LATEST),
        Field("nodes", [Node], 2, LATEST),
    ),
    flexible_from=0,
)
