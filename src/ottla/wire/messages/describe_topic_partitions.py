"""describe_topic_partitions messages. Written by tools/gen_messages.py from kio 0.6.5; do not edit."""

from typing import NamedTuple

from ottla.wire.codec import NULL_UUID
from ottla.wire.schema import LATEST, Field, declare


class TopicRequest(NamedTuple):
    name: str = ""


class Cursor(NamedTuple):
    topic_name: str = ""
    partition_index: int = 0


class DescribeTopicPartitionsRequest(NamedTuple):
    topics: tuple[TopicRequest, ...] = ()
    response_partition_limit: int = 2000
    cursor: Cursor | None = None


class DescribeTopicPartitionsResponsePartition(NamedTuple):
    error_code: int = 0
    partition_index: int = 0
    leader_id: int = 0
    leader_epoch: int = -1
    replica_nodes: tuple[int, ...] = ()
    isr_nodes: tuple[int, ...] = ()
    eligible_leader_replicas: tuple[int, ...] | None = None
    last_known_elr: tuple[int, ...] | None = None
    offline_replicas: tuple[int, ...] = ()


class DescribeTopicPartitionsResponseTopic(NamedTuple):
    error_code: int = 0
    name: str | None = ""
    topic_id: bytes = NULL_UUID
    is_internal: bool = False
    partitions: tuple[DescribeTopicPartitionsResponsePartition, ...] = ()
    topic_authorized_operations: int = -2147483648


class DescribeTopicPartitionsResponse(NamedTuple):
    throttle_time_ms: int = 0
    topics: tuple[DescribeTopicPartitionsResponseTopic, ...] = ()
    next_cursor: Cursor | None = None


declare(
    TopicRequest,
    (Field("name", "string", 0, LATEST),),
    flexible_from=0,
)
declare(
    Cursor,
    (
        Field("topic_name", "string", 0, LATEST),
        Field("partition_index", "int32", 0, LATEST),
    ),
    flexible_from=0,
)
declare(
    DescribeTopicPartitionsRequest,
    (
        Field("topics", [TopicRequest], 0, LATEST),
        Field("response_partition_limit", "int32", 0, LATEST),
        Field("cursor", Cursor, 0, LATEST, null_first=0, null_last=LATEST),
    ),
    flexible_from=0,
)
declare(
    DescribeTopicPartitionsResponsePartition,
    (
        Field("error_code", "int16", 0, LATEST),
        Field("partition_index", "int32", 0, LATEST),
        Field("leader_id", "int32", 0, LATEST),
        Field("leader_epoch", "int32", 0, LATEST),
        Field("replica_nodes", ["int32"], 0, LATEST),
        Field("isr_nodes", ["int32"], 0, LATEST),
        Field("eligible_leader_replicas", ["int32"], 0, LATEST, null_first=0, null_last=LATEST),
        Field("last_known_elr", ["int32"], 0, LATEST, null_first=0, null_last=LATEST),
        Field("offline_replicas", ["int32"], 0, LATEST),
    ),
    flexible_from=0,
)
declare(
    DescribeTopicPartitionsResponseTopic,
    (
        Field("error_code", "int16", 0, LATEST),
        Field("name", "string", 0, LATEST, null_first=0, null_last=LATEST),
        Field("topic_id", "uuid", 0, LATEST),
        Field("is_internal", "bool", 0, LATEST),
        Field("partitions", [DescribeTopicPartitionsResponsePartition], 0, LATEST),
        Field("topic_authorized_operations", "int32", 0, LATEST),
    ),
    flexible_from=0,
)
declare(
    DescribeTopicPartitionsResponse,
    (
        Field("throttle_time_ms", "int32", 0, LATEST),
        Field("topics", [DescribeTopicPartitionsResponseTopic], 0, LATEST),
        Field("next_cursor", Cursor, 0, LATEST, null_first=0, null_last=LATEST),
    ),
    flexible_from=0,
)
