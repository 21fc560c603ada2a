"""alter_replica_log_dirs messages. Written by tools/gen_messages.py from kio 0.6.5; do not edit."""

from typing import NamedTuple

from ottla.wire.schema import LATEST, Field, declare


class AlterReplicaLogDirTopic(NamedTuple):
    name: str = ""
    partitions: tuple[int, ...] = ()


class AlterReplicaLogDir(NamedTuple):
    path: str = ""
    topics: tuple[AlterReplicaLogDirTopic, ...] = ()


class AlterReplicaLogDirsRequest(NamedTuple):
    dirs: tuple[AlterReplicaLogDir, ...] = ()


class AlterReplicaLogDirPartitionResult(NamedTuple):
    partition_index: int = 0
    error_code: int = 0


class AlterReplicaLogDirTopicResult(NamedTuple):
    topic_name: str = ""
    partitions: tuple[AlterReplicaLogDirPartitionResult, ...] = ()


class AlterReplicaLogDirsResponse(NamedTuple):
    throttle_time_ms: int = 0
    results: tuple[AlterReplicaLogDirTopicResult, ...] = ()


declare(
    AlterReplicaLogDirTopic,
    (
        Field("name", "string", 0, LATEST),
        Field("partitions", ["int32"], 0, LATEST),
    ),
    flexible_from=2,
)
declare(
    AlterReplicaLogDir,
    (
        Field("path", "string", 0, LATEST),
        Field("topics", [AlterReplicaLogDirTopic], 0, LATEST),
    ),
    flexible_from=2,
)
declare(
    AlterReplicaLogDirsRequest,
    (Field("dirs", [AlterReplicaLogDir], 0, LATEST),),
    flexible_from=2,
)
declare(
    AlterReplicaLogDirPartitionResult,
    (
        Field("partition_index", "int32", 0, LATEST),
        Field("error_code", "int16", 0, LATEST),
    ),
    flexible_from=2,
)
declare(
    AlterReplicaLogDirTopicResult,
    (
        Field("topic_name", "string", 0, LATEST),
        Field("partitions", [AlterReplicaLogDirPartitionResult], 0, LATEST),
    ),
    flexible_from=2,
)
declare(
    AlterReplicaLogDirsResponse,
    (
        Field("throttle_time_ms", "int32", 0, LATEST),
        Field("results", [AlterReplicaLogDirTopicResult], 0, LATEST),
    ),
    flexible_from=2,
)
