"""create_topics messages. Written by tools/gen_messages.py from kio 0.6.5; do not edit."""

from typing import NamedTuple

from ottla.wire.codec import NULL_UUID
from ottla.wire.schema import LATEST, Field, declare


class CreatableReplicaAssignment(NamedTuple):
    partition_index: int = 0
    broker_ids: tuple[int, ...] = ()


class CreatableTopicConfig(NamedTuple):
    name: str = ""
    value: str | None = ""


class CreatableTopic(NamedTuple):
    name: str = ""
    num_partitions: int = 0
    replication_factor: int = 0
    assignments: tuple[CreatableReplicaAssignment, ...] = ()
    configs: tuple[CreatableTopicConfig, ...] = ()


class CreateTopicsRequest(NamedTuple):
    topics: tuple[CreatableTopic, ...] = ()
    timeout_ms: int = 60000
    validate_only: bool = False


class CreatableTopicConfigs(NamedTuple):
    name: str = ""
    value: str | None = ""
    read_only: bool = False
    config_source: int = -1
    is_sensitive: bool = False


class CreatableTopicResult(NamedTuple):
    name: str = ""
    topic_id: bytes = NULL_UUID
    error_code: int = 0
    error_message: str | None = ""
    topic_config_error_code: int = 0
    num_partitions: int = -1
    replication_factor: int = -1
    configs: tuple[CreatableTopicConfigs, ...] | None = ()


class CreateTopicsResponse(NamedTuple):
    throttle_time_ms: int = 0
    topics: tuple[CreatableTopicResult, ...] = ()


declare(
    CreatableReplicaAssignment,
    (
        Field("partition_index", "int32", 0, LATEST),
        Field("broker_ids", ["int32"], 0, LATEST),
    ),
    flexible_from=5,
)
declare(
    CreatableTopicConfig,
    (
        Field("name", "string", 0, LATEST),
        Field("value", "string", 0, LATEST, null_first=2, null_last=LATEST),
    ),
    flexible_from=5,
)
declare(
    CreatableTopic,
    (
        Field("name", "string", 0, LATEST),
        Field("num_partitions", "int32", 0, LATEST),
        Field("replication_factor", "int16", 0, LATEST),
        Field("assignments", [CreatableReplicaAssignment], 0, LATEST),
        Field("configs", [CreatableTopicConfig], 0, LATEST),
    ),
    flexible_from=5,
)
declare(
    CreateTopicsRequest,
    (
        Field("topics", [CreatableTopic], 0, LATEST),
        Field("timeout_ms", "int32", 0, LATEST),
        Field("validate_only", "bool", 0, LATEST),
    ),
    flexible_from=5,
)
declare(
    CreatableTopicConfigs,
    (
        Field("name", "string", 0, LATEST),
        Field("value", "string", 0, LATEST, null_first=5, null_last=LATEST),
        Field("read_only", "bool", 0, LATEST),
        Field("config_source", "int8", 0, LATEST),
        Field("is_sensitive", "bool", 0, LATEST),
    ),
    flexible_from=5,
)
declare(
    CreatableTopicResult,
    (
        Field("name", "string", 0, LATEST),
        Field("topic_id", "uuid", 7, LATEST),
        Field("error_code", "int16", 0, LATEST),
        Field("error_message", "string", 0, LATEST, null_first=2, null_last=LATEST),
        Field("topic_config_error_code", "int16", 5, LATEST, tag=0),
        Field("num_partitions", "int32", 5, LATEST),
        Field("replication_factor", "int16", 5, LATEST),
        Field("configs", [CreatableTopicConfigs], 5, LATEST, null_first=5, null_last=LATEST),
    ),
    flexible_from=5,
)
declare(
    CreateTopicsResponse,
    (
        Field("throttle_time_ms", "int32", 0, LATEST),
        Field("topics", [CreatableTopicResult], 0, LATEST),
    ),
    flexible_from=5,
)
