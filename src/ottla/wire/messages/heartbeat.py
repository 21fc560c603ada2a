"""heartbeat messages. Written by tools/gen_messages.py from kio 0.6.5; do not edit."""

from typing import NamedTuple

from ottla.wire.schema import LATEST, Field, declare


class HeartbeatRequest(NamedTuple):
    group_id: str = ""
    generation_id: int = 0
    member_id: str = ""
    group_instance_id: str | None = None


class HeartbeatResponse(NamedTuple):
    throttle_time_ms: int = 0
    error_code: int = 0


declare(
    HeartbeatRequest,
    (
        Field("group_id", "string", 0, LATEST),
        Field("generation_id", "int32", 0, LATEST),
        Field("member_id", "string", 0, LATEST),
        Field("group_instance_id", "string", 3, LATEST, null_first=3, null_last=LATEST, ignorable=False),
    ),
    flexible_from=4,
)
declare(
    HeartbeatResponse,
    (
        Field("throttle_time_ms", "int32", 1, LATEST),
        Field("error_code", "int16", 0, LATEST),
    ),
    flexible_from=4,
)
