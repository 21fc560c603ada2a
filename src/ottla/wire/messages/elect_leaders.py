"""elect_leaders messages. Written by tools/gen_messages.py from kio 0.6.5; do not edit."""

from typing import NamedTuple

from ottla.wire.schema import LATEST, Field, declare


class TopicPartitions(NamedTuple):
    topic: str = ""
    partitions: tuple[int, ...] = ()


class ElectLeadersRequest(NamedTuple):
    election_type: int = 0
    topic_partitions: tuple[TopicPartitions, ...] | None = ()
    timeout_ms: int = 60000


class PartitionResult(NamedTuple):
    partition_id: int = 0
    error_code: int = 0
    error_message: str | None = ""


class ReplicaElectionResult(NamedTuple):
    topic: str = ""
    partition_result: tuple[PartitionResult, ...] = ()


class ElectLeadersResponse(NamedTuple):
    throttle_time_ms: int = 0
    error_code: int = 0
    replica_election_results: tuple[ReplicaElectionResult, ...] = ()


declare(
    TopicPartitions,
    (
        Field("topic", "string", 0, LATEST),
        Field("partitions", ["int32"], 0, LATEST),
    ),
    flexible_from=2,
)
declare(
    ElectLeadersRequest,
    (
        Field("election_type", "int8", 1, LATEST),
        Field("topic_partitions", [TopicPartitions], 0, LATEST, null_first=0, null_last=LATEST),
        Field("timeout_ms", "int32", 0, LATEST),
    ),
    flexible_from=2,
)
declare(
    PartitionResult,
    (
        Field("partition_id", "int32", 0, LATEST),
        Field("error_code", "int16", 0, LATEST),
        Field("error_message", "string", 0, LATEST, null_first=0, null_last=LATEST),
    ),
    flexible_from=2,
)
declare(
    ReplicaElectionResult,
    (
        Field("topic", "string", 0, LATEST),
        Field("partition_result", [PartitionResult], 0, LATEST),
    ),
    flexible_from=2,
)
declare(
    ElectLeadersResponse,
    (
        Field("throttle_time_ms", "int32", 0, LATEST),
        Field("error_code", "int16", 1, LATEST),
        Field("replica_election_results", [ReplicaElectionResult], 0, LATEST),
    ),
    flexible_from=2,
)
