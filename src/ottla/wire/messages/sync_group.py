"""sync_group messages. Written by tools/gen_messages.py from kio 0.6.5; do not edit."""

from typing import NamedTuple

from ottla.wire.schema import LATEST, Field, declare


class SyncGroupRequestAssignment(NamedTuple):
    member_id: str = ""
    assignment: bytes = b""


class SyncGroupRequest(NamedTuple):
    group_id: str = ""
    generation_id: int = 0
    member_id: str = ""
    group_instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: tuple[SyncGroupRequestAssignment, ...] = ()


class SyncGroupResponse(NamedTuple):
    throttle_time_ms: int = 0
    error_code: int = 0
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


declare(
    SyncGroupRequestAssignment,
    (
        Field("member_id", "string", 0, LATEST),
        Field("assignment", "bytes", 0, LATEST),
    ),
    flexible_from=4,
)
declare(
    SyncGroupRequest,
    (
        Field("group_id", "string", 0, LATEST),
        Field("generation_id", "int32", 0, LATEST),
        Field("member_id", "string", 0, LATEST),
        Field("group_instance_id", "string", 3, LATEST, null_first=3, null_last=LATEST, ignorable=False),
        Field("protocol_type", "string", 5, LATEST, null_first=5, null_last=LATEST),
        Field("protocol_name", "string", 5, LATEST, null_first=5, null_last=LATEST),
        Field("assignments", [SyncGroupRequestAssignment], 0, LATEST),
    ),
    flexible_from=4,
)
declare(
    SyncGroupResponse,
    (
        Field("throttle_time_ms", "int32", 1, LATEST),
        Field("error_code", "int16", 0, LATEST),
        Field("protocol_type", "string", 5, LATEST, null_first=5, null_last=LATEST),
        Field("protocol_name", "string", 5, LATEST, null_first=5, null_last=LATEST),
        Field("assignment", "bytes", 0, LATEST),
    ),
    flexible_from=4,
)
