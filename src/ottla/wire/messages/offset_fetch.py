"""offset_fetch messages. Written by tools/gen_messages.py from kio 0.6.5; do not edit."""

from typing import NamedTuple

from ottla.wire.codec import NULL_UUID
from ottla.wire.schema import LATEST, Field, declare


class OffsetFetchRequestTopic(NamedTuple):
    name: str = ""
    partition_indexes: tuple[int, ...] = ()


class OffsetFetchRequestTopics(NamedTuple):
    topic_id: bytes = NULL_UUID
    name: str = ""
    partition_indexes: tuple[int, ...] = ()


class OffsetFetchRequestGroup(NamedTuple):
    group_id: str = ""
    member_id: str | None = None
    member_epoch: int = -1
    topics: tuple[OffsetFetchRequestTopics, ...] | None = ()


class OffsetFetchRequest(NamedTuple):
    groups: tuple[OffsetFetchRequestGroup, ...] = ()
    group_id: str = ""
    topics: tuple[OffsetFetchRequestTopic, ...] | None = ()
    require_stable: bool = False


class OffsetFetchResponsePartition(NamedTuple):
    partition_index: int = 0
    committed_offset: int = 0
    committed_leader_epoch: int = -1
    metadata: str | None = ""
    error_code: int = 0


class OffsetFetchResponseTopic(NamedTuple):
    name: str = ""
    partitions: tuple[OffsetFetchResponsePartition, ...] = ()


class OffsetFetchResponsePartitions(NamedTuple):
    partition_index: int = 0
    committed_offset: int = 0
    committed_leader_epoch: int = -1
    metadata: str | None = ""
    error_code: int = 0


class OffsetFetchResponseTopics(NamedTuple):
    topic_id: bytes = NULL_UUID
    name: str = ""
    partitions: tuple[OffsetFetchResponsePartitions, ...] = ()


class OffsetFetchResponseGroup(NamedTuple):
    group_id: str = ""
    topics: tuple[OffsetFetchResponseTopics, ...] = ()
    error_code: int = 0


class OffsetFetchResponse(NamedTuple):
    throttle_time_ms: int = 0
    groups: tuple[OffsetFetchResponseGroup, ...] = ()
    topics: tuple[OffsetFetchResponseTopic, ...] = ()
    error_code: int = 0


declare(
    OffsetFetchRequestTopic,
    (
        Field("name", "string", 0, LATEST),
        Field("partition_indexes", ["int32"], 0, LATEST),
    ),
    flexible_from=6,
)
declare(
    OffsetFetchRequestTopics,
    (
        Field("topic_id", "uuid", 10, LATEST),
        Field("name", "string", 0, 9),
        Field("partition_indexes", ["int32"], 0, LATEST),
    ),
    flexible_from=8,
)
declare(
    OffsetFetchRequestGroup,
    (
        Field("group_id", "string", 0, LATEST),
        Field("member_id", "string", 9, LATEST, null_first=9, null_last=LATEST),
        Field("member_epoch", "int32", 9, LATEST),
        Field("topics", [OffsetFetchRequestTopics], 0, LATEST, null_first=8, null_last=LATEST),
    ),
    flexible_from=8,
)
declare(
    OffsetFetchRequest,
    (
        Field("groups", [OffsetFetchRequestGroup], 8, LATEST),
        Field("group_id", "string", 0, 7),
        Field("topics", [OffsetFetchRequestTopic], 0, 7, null_first=2, null_last=LATEST),
        Field("require_stable", "bool", 7, LATEST, ignorable=False),
    ),
    flexible_from=6,
)
declare(
    OffsetFetchResponsePartition,
    (
        Field("partition_index", "int32", 0, LATEST),
        Field("committed_offset", "int64", 0, LATEST),
        Field("committed_leader_epoch", "int32", 5, LATEST),
        Field("metadata", "string", 0, LATEST, null_first=1, null_last=LATEST),
        Field("error_code", "int16", 0, LATEST),
    ),
    flexible_from=6,
)
declare(
    OffsetFetchResponseTopic,
    (
        Field("name", "string", 0, LATEST),
        Field("partitions", [OffsetFetchResponsePartition], 0, LATEST),
    ),
    flexible_from=6,
)
declare(
    OffsetFetchResponsePartitions,
    (
        Field("partition_index", "int32", 0, LATEST),
        Field("committed_offset", "int64", 0, LATEST),
        Field("committed_leader_epoch", "int32", 0, LATEST),
        Field("metadata", "string", 0, LATEST, null_first=8, null_last=LATEST),
        Field("error_code", "int16", 0, LATEST),
    ),
    flexible_from=8,
)
declare(
    OffsetFetchResponseTopics,
    (
        Field("topic_id", "uuid", 10, LATEST),
        Field("name", "string", 0, 9),
        Field("partitions", [OffsetFetchResponsePartitions], 0, LATEST),
    ),
    flexible_from=8,
)
declare(
    OffsetFetchResponseGroup,
    (
        Field("group_id", "string", 0, LATEST),
        Field("topics", [OffsetFetchResponseTopics], 0, LATEST),
        Field("error_code", "int16", 0, LATEST),
    ),
    flexible_from=8,
)
declare(
    OffsetFetchResponse,
    (
        Field("throttle_time_ms", "int32", 3, LATEST),
        Field("groups", [OffsetFetchResponseGroup], 8, LATEST),
        Field("topics", [OffsetFetchResponseTopic], 0, 7),
        Field("error_code", "int16", 2, 7),
    ),
    flexible_from=6,
)
