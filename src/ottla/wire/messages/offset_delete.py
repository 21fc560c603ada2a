"""offset_delete messages. Written by tools/gen_messages.py from kio 0.6.5; do not edit."""

from typing import NamedTuple

from ottla.wire.schema import LATEST, Field, declare


class OffsetDeleteRequestPartition(NamedTuple):
    partition_index: int = 0


class OffsetDeleteRequestTopic(NamedTuple):
    name: str = ""
    partitions: tuple[OffsetDeleteRequestPartition, ...] = ()


class OffsetDeleteRequest(NamedTuple):
    group_id: str = ""
    topics: tuple[OffsetDeleteRequestTopic, ...] = ()


class OffsetDeleteResponsePartition(NamedTuple):
    partition_index: int = 0
    error_code: int = 0


class OffsetDeleteResponseTopic(NamedTuple):
    name: str = ""
    partitions: tuple[OffsetDeleteResponsePartition, ...] = ()


class OffsetDeleteResponse(NamedTuple):
    error_code: int = 0
    throttle_time_ms: int = 0
    topics: tuple[OffsetDeleteResponseTopic, ...] = ()


declare(
    OffsetDeleteRequestPartition,
    (Field("partition_index", "int32", 0, LATEST),),
    flexible_from=LATEST,
)
declare(
    OffsetDeleteRequestTopic,
    (
        Field("name", "string", 0, LATEST),
        Field("partitions", [OffsetDeleteRequestPartition], 0, LATEST),
    ),
    flexible_from=LATEST,
)
declare(
    OffsetDeleteRequest,
    (
        Field("group_id", "string", 0, LATEST),
        Field("topics", [OffsetDeleteRequestTopic], 0, LATEST),
    ),
    flexible_from=LATEST,
)
declare(
    OffsetDeleteResponsePartition,
    (
        Field("partition_index", "int32", 0, LATEST),
        Field("error_code", "int16", 0, LATEST),
    ),
    flexible_from=LATEST,
)
declare(
    OffsetDeleteResponseTopic,
    (
        Field("name", "string", 0, LATEST),
        Field("partitions", [OffsetDeleteResponsePartition], 0, LATEST),
    ),
    flexible_from=LATEST,
)
declare(
    OffsetDeleteResponse,
    (
        Field("error_code", "int16", 0, LATEST),
        Field("throttle_time_ms", "int32", 0, LATEST),
        Field("topics", [OffsetDeleteResponseTopic], 0, LATEST),
    ),
    flexible_from=LATEST,
)
