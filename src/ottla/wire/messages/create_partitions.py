"""create_partitions messages. Written by tools/gen_messages.py from kio 0.6.5; do not edit."""

from typing import NamedTuple

from ottla.wire.schema import LATEST, Field, declare


class CreatePartitionsAssignment(NamedTuple):
    broker_ids: tuple[int, ...] = ()


class CreatePartitionsTopic(NamedTuple):
    name: str = ""
    count: int = 0  # type: ignore[assignment]
    assignments: tuple[CreatePartitionsAssignment, ...] | None = ()


class CreatePartitionsRequest(NamedTuple):
    topics: tuple[CreatePartitionsTopic, ...] = ()
    timeout_ms: int = 0
    validate_only: bool = False


class CreatePartitionsTopicResult(NamedTuple):
    name: str = ""
    error_code: int = 0
    error_message: str | None = None


class CreatePartitionsResponse(NamedTuple):
    throttle_time_ms: int = 0
    results: tuple[CreatePartitionsTopicResult, ...] = ()


declare(
    CreatePartitionsAssignment,
    (Field("broker_ids", ["int32"], 0, LATEST),),
    flexible_from=2,
)
declare(
    CreatePartitionsTopic,
    (
        Field("name", "string", 0, LATEST),
        Field("count", "int32", 0, LATEST),
        Field("assignments", [CreatePartitionsAssignment], 0, LATEST, null_first=0, null_last=LATEST),
    ),
    flexible_from=2,
)
declare(
    CreatePartitionsRequest,
    (
        Field("topics", [CreatePartitionsTopic], 0, LATEST),
        Field("timeout_ms", "int32", 0, LATEST),
        Field("validate_only", "bool", 0, LATEST),
    ),
    flexible_from=2,
)
declare(
    CreatePartitionsTopicResult,
    (
        Field("name", "string", 0, LATEST),
        Field("error_code", "int16", 0, LATEST),
        Field("error_message", "string", 0, LATEST, null_first=0, null_last=LATEST),
    ),
    flexible_from=2,
)
declare(
    CreatePartitionsResponse,
    (
        Field("throttle_time_ms", "int32", 0, LATEST),
        Field("results", [CreatePartitionsTopicResult], 0, LATEST),
    ),
    flexible_from=2,
)
