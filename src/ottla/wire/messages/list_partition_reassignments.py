"""list_partition_reassignments messages. Written by tools/gen_messages.py from kio 0.6.5; do not edit."""

from typing import NamedTuple

from ottla.wire.schema import LATEST, Field, declare


class ListPartitionReassignmentsTopics(NamedTuple):
    name: str = ""
    partition_indexes: tuple[int, ...] = ()


class ListPartitionReassignmentsRequest(NamedTuple):
    timeout_ms: int = 60000
    topics: tuple[ListPartitionReassignmentsTopics, ...] | None = ()


class OngoingPartitionReassignment(NamedTuple):
    partition_index: int = 0
    replicas: tuple[int, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()


class OngoingTopicReassignment(NamedTuple):
    name: str = ""
    partitions: tuple[OngoingPartitionReassignment, ...] = ()


class ListPartitionReassignmentsResponse(NamedTuple):
    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ""
    topics: tuple[OngoingTopicReassignment, ...] = ()


declare(
    ListPartitionReassignmentsTopics,
    (
        Field("name", "string", 0, LATEST),
        Field("partition_indexes", ["int32"], 0, LATEST),
    ),
    flexible_from=0,
)
declare(
    ListPartitionReassignmentsRequest,
    (
        Field("timeout_ms", "int32", 0, LATEST),
        Field("topics", [ListPartitionReassignmentsTopics], 0, LATEST, null_first=0, null_last=LATEST),
    ),
    flexible_from=0,
)
declare(
    OngoingPartitionReassignment,
    (
        Field("partition_index", "int32", 0, LATEST),
        Field("replicas", ["int32"], 0, LATEST),
        Field("adding_replicas", ["int32"], 0, LATEST),
        Field("removing_replicas", ["int32"], 0, LATEST),
    ),
    flexible_from=0,
)
declare(
    OngoingTopicReassignment,
    (
        Field("name", "string", 0, LATEST),
        Field("partitions", [OngoingPartitionReassignment], 0, LATEST),
    ),
    flexible_from=0,
)
declare(
    ListPartitionReassignmentsResponse,
    (
        Field("throttle_time_ms", "int32", 0, LATEST),
        Field("error_code", "int16", 0, LATEST),
        Field("error_message", "string", 0, LATEST, null_first=0, null_last=LATEST),
        Field("topics", [OngoingTopicReassignment], 0, LATEST),
    ),
    flexible_from=0,
)
