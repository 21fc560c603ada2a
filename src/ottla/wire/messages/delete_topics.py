"""delete_topics messages. Written by tools/gen_messages.py from kio 0.6.5; do not edit."""

from typing import NamedTuple

from ottla.wire.codec import NULL_UUID
from ottla.wire.schema import LATEST, Field, declare


class DeleteTopicState(NamedTuple):
    name: str | None = None
    topic_id: bytes = NULL_UUID


class DeleteTopicsRequest(NamedTuple):
    topics: tuple[DeleteTopicState, ...] = ()
    topic_names: tuple[str, ...] = ()
    timeout_ms: int = 0


class DeletableTopicResult(NamedTuple):
    name: str | None = ""
    topic_id: bytes = NULL_UUID
    error_code: int = 0
    error_message: str | None = None


class DeleteTopicsResponse(NamedTuple):
    throttle_time_ms: int = 0
    responses: tuple[DeletableTopicResult, ...] = ()


declare(
    DeleteTopicState,
    (
        Field("name", "string", 0, LATEST, null_first=6, null_last=LATEST),
        Field("topic_id", "uuid", 0, LATEST),
    ),
    flexible_from=6,
)
declare(
    DeleteTopicsRequest,
    (
        Field("topics", [DeleteTopicState], 6, LATEST, ignorable=False),
        Field("topic_names", ["string"], 0, 5),
        Field("timeout_ms", "int32", 0, LATEST),
    ),
    flexible_from=4,
)
declare(
    DeletableTopicResult,
    (
        Field("name", "string", 0, LATEST, null_first=6, null_last=LATEST),
        Field("topic_id", "uuid", 6, LATEST),
        Field("error_code", "int16", 0, LATEST),
        Field("error_message", "string", 5, LATEST, null_first=5, null_last=LATEST),
    ),
    flexible_from=4,
)
declare(
    DeleteTopicsResponse,
    (
        Field("throttle_time_ms", "int32", 0, LATEST),
        Field("responses", [DeletableTopicResult], 0, LATEST),
    ),
    flexible_from=4,
)
