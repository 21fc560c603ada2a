"""delete_records messages. Written by tools/gen_messages.py from kio 0.6.5; do not edit."""

from typing import NamedTuple

from ottla.wire.schema import LATEST, Field, declare


class DeleteRecordsPartition(NamedTuple):
    partition_index: int = 0
    offset: int = 0


class DeleteRecordsTopic(NamedTuple):
    name: str = ""
    partitions: tuple[DeleteRecordsPartition, ...] = ()


class DeleteRecordsRequest(NamedTuple):
    topics: tuple[DeleteRecordsTopic, ...] = ()
    timeout_ms: int = 0


class DeleteRecordsPartitionResult(NamedTuple):
    partition_index: int = 0
    low_watermark: int = 0
    error_code: int = 0


class DeleteRecordsTopicResult(NamedTuple):
    name: str = ""
    partitions: tuple[DeleteRecordsPartitionResult, ...] = ()


class DeleteRecordsResponse(NamedTuple):
    throttle_time_ms: int = 0
    topics: tuple[DeleteRecordsTopicResult, ...] = ()


declare(
    DeleteRecordsPartition,
    (
        Field("partition_index", "int32", 0, LATEST),
        Field("offset", "int64", 0, LATEST),
    ),
    flexible_from=2,
)
declare(
    DeleteRecordsTopic,
    (
        Field("name", "string", 0, LATEST),
        Field("partitions", [DeleteRecordsPartition], 0, LATEST),
    ),
    flexible_from=2,
)
declare(
    DeleteRecordsRequest,
    (
        Field("topics", [DeleteRecordsTopic], 0, LATEST),
        Field("timeout_ms", "int32", 0, LATEST),
    ),
    flexible_from=2,
)
declare(
    DeleteRecordsPartitionResult,
    (
        Field("partition_index", "int32", 0, LATEST),
        Field("low_watermark", "int64", 0, LATEST),
        Field("error_code", "int16", 0, LATEST),
    ),
    flexible_from=2,
)
declare(
    DeleteRecordsTopicResult,
    (
        Field("name", "string", 0, LATEST),
        Field("partitions", [DeleteRecordsPartitionResult], 0, LATEST),
    ),
    flexible_from=2,
)
declare(
    DeleteRecordsResponse,
    (
        Field("throttle_time_ms", "int32", 0, LATEST),
        Field("topics", [DeleteRecordsTopicResult], 0, LATEST),
    ),
    flexible_from=2,
)
