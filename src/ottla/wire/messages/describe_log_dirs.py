"""describe_log_dirs messages. Written by tools/gen_messages.py from kio 0.6.5; do not edit."""

from typing import NamedTuple

from ottla.wire.schema import LATEST, Field, declare


class DescribableLogDirTopic(NamedTuple):
    topic: str = ""
    partitions: tuple[int, ...] = ()


class DescribeLogDirsRequest(NamedTuple):
    topics: tuple[DescribableLogDirTopic, ...] | None = ()


class DescribeLogDirsPartition(NamedTuple):
    partition_index: int = 0
    partition_size: int = 0
    offset_lag: int = 0
    is_future_key: bool = False


class DescribeLogDirsTopic(NamedTuple):
    name: str = ""
    partitions: tuple[DescribeLogDirsPartition, ...] = ()


class DescribeLogDirsResult(NamedTuple):
    error_code: int = 0
    log_dir: str = ""
    topics: tuple[DescribeLogDirsTopic, ...] = ()
    total_bytes: int = -1
    usable_bytes: int = -1
    is_cordoned: bool = False


class DescribeLogDirsResponse(NamedTuple):
    throttle_time_ms: int = 0
    error_code: int = 0
    results: tuple[DescribeLogDirsResult, ...] = ()


declare(
    DescribableLogDirTopic,
    (
        Field("topic", "string", 0, LATEST),
        Field("partitions", ["int32"], 0, LATEST),
    ),
    flexible_from=2,
)
declare(
    DescribeLogDirsRequest,
    (Field("topics", [DescribableLogDirTopic], 0, LATEST, null_first=1, null_last=LATEST),),
    flexible_from=2,
)
declare(
    DescribeLogDirsPartition,
    (
        Field("partition_index", "int32", 0, LATEST),
        Field("partition_size", "int64", 0, LATEST),
        Field("offset_lag", "int64", 0, LATEST),
        Field("is_future_key", "bool", 0, LATEST),
    ),
    flexible_from=2,
)
declare(
    DescribeLogDirsTopic,
    (
        Field("name", "string", 0, LATEST),
        Field("partitions", [DescribeLogDirsPartition], 0, LATEST),
    ),
    flexible_from=2,
)
declare(
    DescribeLogDirsResult,
    (
        Field("error_code", "int16", 0, LATEST),
        Field("log_dir", "string", 0, LATEST),
        Field("topics", [DescribeLogDirsTopic], 0, LATEST),
        Field("total_bytes", "int64", 4, LATEST),
        Field("usable_bytes", "int64", 4, LATEST),
        Field("is_cordoned", "bool", 5, LATEST),
    ),
    flexible_from=2,
)
declare(
    DescribeLogDirsResponse,
    (
        Field("throttle_time_ms", "int32", 0, LATEST),
        Field("error_code", "int16", 3, LATEST),
        Field("results", [DescribeLogDirsResult], 0, LATEST),
    ),
    flexible_from=2,
)
