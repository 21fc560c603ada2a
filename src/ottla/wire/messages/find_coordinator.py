"""find_coordinator messages. Written by tools/gen_messages.py from kio 0.6.5; do not edit."""

from typing import NamedTuple

from ottla.wire.schema import LATEST, Field, declare


class FindCoordinatorRequest(NamedTuple):
    key: str = ""
    key_type: int = 0
    coordinator_keys: tuple[str, ...] = ()


class Coordinator(NamedTuple):
    key: str = ""
    node_id: int = 0
    host: str = ""
    port: int = 0
    error_code: int = 0
    error_message: str | None = ""


class FindCoordinatorResponse(NamedTuple):
    throttle_time_ms: int = 0
    coordinators: tuple[Coordinator, ...] = ()
    error_code: int = 0
    error_message: str | None = ""
    node_id: int = 0
    host: str = ""
    port: int = 0


declare(
    FindCoordinatorRequest,
    (
        Field("key", "string", 0, 3),
        Field("key_type", "int8", 1, LATEST, ignorable=False),
        Field("coordinator_keys", ["string"], 4, LATEST),
    ),
    flexible_from=3,
)
declare(
    Coordinator,
    (
        Field("key", "string", 0, LATEST),
        Field("node_id", "int32", 0, LATEST),
        Field("host", "string", 0, LATEST),
        Field("port", "int32", 0, LATEST),
        Field("error_code", "int16", 0, LATEST),
        Field("error_message", "string", 0, LATEST, null_first=4, null_last=LATEST),
    ),
    flexible_from=4,
)
declare(
    FindCoordinatorResponse,
    (
        Field("throttle_time_ms", "int32", 1, LATEST),
        Field("coordinators", [Coordinator], 4, LATEST),
        Field("error_code", "int16", 0, 3),
        Field("error_message", "string", 1, 3, null_first=1, null_last=LATEST),
        Field("node_id", "int32", 0, 3),
        Field("host", "string", 0, 3),
        Field("port", "int32", 0, 3),
    ),
    flexible_from=3,
)
