"""offset_commit messages. Written by tools/gen_messages.py from kio 0.6.5; do not edit."""

from typing import NamedTuple

from ottla.wire.codec import NULL_UUID
from ottla.wire.schema import LATEST, Field, declare


class OffsetCommitRequestPartition(NamedTuple):
    partition_index: int = 0
    committed_offset: int = 0
    committed_leader_epoch: int = -1
    committed_metadata: str | None = ""


class OffsetCommitRequestTopic(NamedTuple):
    topic_id: bytes = NULL_UUID
    name: str = ""
    partitions: tuple[OffsetCommitRequestPartition, ...] = ()


class OffsetCommitRequest(NamedTuple):
    group_id: str = ""
    generation_id_or_member_epoch: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
    retention_time_ms: int = -1
    topics: tuple[OffsetCommitRequestTopic, ...] = ()


class OffsetCommitResponsePartition(NamedTuple):
    partition_index: int = 0
    error_code: int = 0


class OffsetCommitResponseTopic(NamedTuple):
    topic_id: bytes = NULL_UUID
    name: str = ""
    partitions: tuple[OffsetCommitResponsePartition, ...] = ()


class OffsetCommitResponse(NamedTuple):
    throttle_time_ms: int = 0
    topics: tuple[OffsetCommitResponseTopic, ...] = ()


declare(
    OffsetCommitRequestPartition,
    (
        Field("partition_index", "int32", 0, LATEST),
        Field("committed_offset", "int64", 0, LATEST),
        Field("committed_leader_epoch", "int32", 6, LATEST),
        Field("committed_metadata", "string", 0, LATEST, null_first=2, null_last=LATEST),
    ),
    flexible_from=8,
)
declare(
    OffsetCommitRequestTopic,
    (
        Field("topic_id", "uuid", 10, LATEST),
        Field("name", "string", 0, 9),
        Field("partitions", [OffsetCommitRequestPartition], 0, LATEST),
    ),
    flexible_from=8,
)
declare(
    OffsetCommitRequest,
    (
        Field("group_id", "string", 0, LATEST),
        Field("generation_id_or_member_epoch", "int32", 0, LATEST),
        Field("member_id", "string", 0, LATEST),
        Field("group_instance_id", "string", 7, LATEST, null_first=7, null_last=LATEST, ignorable=False),
        Field("retention_time_ms", "int64", 0, 4),
        Field("topics", [OffsetCommitRequestTopic], 0, LATEST),
    ),
    flexible_from=8,
)
declare(
    OffsetCommitResponsePartition,
    (
        Field("partition_index", "int32", 0, LATEST),
        Field("error_code", "int16", 0, LATEST),
    ),
    flexible_from=8,
)
declare(
    OffsetCommitResponseTopic,
    (
        Field("topic_id", "uuid", 10, LATEST),
        Field("name", "string", 0, 9),
        Field("partitions", [OffsetCommitResponsePartition], 0, LATEST),
    ),
    flexible_from=8,
)
declare(
    OffsetCommitResponse,
    (
        Field("throttle_time_ms", "int32", 3, LATEST),
        Field("topics", [OffsetCommitResponseTopic], 0, LATEST),
    ),
    flexible_from=8,
)
