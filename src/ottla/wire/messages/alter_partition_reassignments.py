"""alter_partition_reassignments messages. Written by tools/gen_messages.py from kio 0.6.5; do not edit."""

from typing import NamedTuple

from ottla.wire.schema import LATEST, Field, declare


class ReassignablePartition(NamedTuple):
    partition_index: int = 0
    replicas: tuple[int, ...] | None = None


class ReassignableTopic(NamedTuple):
    name: str = ""
    partitions: tuple[ReassignablePartition, ...] = ()


class AlterPartitionReassignmentsRequest(NamedTuple):
    timeout_ms: int = 60000
    allow_replication_factor_change: bool = True
    topics: tuple[ReassignableTopic, ...] = ()


class ReassignablePartitionResponse(NamedTuple):
    partition_index: int = 0
    error_code: int = 0
    error_message: str | None = ""


class ReassignableTopicResponse(NamedTuple):
    name: str = ""
    partitions: tuple[ReassignablePartitionResponse, ...] = ()


class AlterPartitionReassignmentsResponse(NamedTuple):
    throttle_time_ms: int = 0
    allow_replication_factor_change: bool = True
    error_code: int = 0
    error_message: str | None = ""
    responses: tuple[ReassignableTopicResponse, ...] = ()


declare(
    ReassignablePartition,
    (
        Field("partition_index", "int32", 0, LATEST),
        Field("replicas", ["int32"], 0, LATEST, null_first=0, null_last=LATEST),
    ),
    flexible_from=0,
)
declare(
    ReassignableTopic,
    (
        Field("name", "string", 0, LATEST),
        Field("partitions", [ReassignablePartition], 0, LATEST),
    ),
    flexible_from=0,
)
declare(
    AlterPartitionReassignmentsRequest,
    (
        Field("timeout_ms", "int32", 0, LATEST),
        Field("allow_replication_factor_change", "bool", 1, LATEST),
        Field("topics", [ReassignableTopic], 0, LATEST),
    ),
    flexible_from=0,
)
declare(
    ReassignablePartitionResponse,
    (
        Field("partition_index", "int32", 0, LATEST),
        Field("error_code", "int16", 0, LATEST),
        Field("error_message", "string", 0, LATEST, null_first=0, null_last=LATEST),
    ),
    flexible_from=0,
)
declare(
    ReassignableTopicResponse,
    (
        Field("name", "string", 0, LATEST),
        Field("partitions", [ReassignablePartitionResponse], 0, LATEST),
    ),
    flexible_from=0,
)
declare(
    AlterPartitionReassignmentsResponse,
    (
        Field("throttle_time_ms", "int32", 0, LATEST),
        Field("allow_replication_factor_change", "bool", 1, LATEST),
        Field("error_code", "int16", 0, LATEST),
        Field("error_message", "string", 0, LATEST, null_first=0, null_last=LATEST),
        Field("responses", [ReassignableTopicResponse], 0, LATEST),
    ),
    flexible_from=0,
)
