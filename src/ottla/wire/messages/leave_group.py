"""leave_group messages. Written by tools/gen_messages.py from kio 0.6.5; do not edit."""

from typing import NamedTuple

from ottla.wire.schema import LATEST, Field, declare


class MemberIdentity(NamedTuple):
    member_id: str = ""
    group_instance_id: str | None = None
    reason: str | None = None


class LeaveGroupRequest(NamedTuple):
    group_id: str = ""
    members: tuple[MemberIdentity, ...] = ()
    member_id: str = ""


class MemberResponse(NamedTuple):
    member_id: str = ""
    group_instance_id: str | None = ""
    error_code: int = 0


class LeaveGroupResponse(NamedTuple):
    throttle_time_ms: int = 0
    error_code: int = 0
    members: tuple[MemberResponse, ...] = ()


declare(
    MemberIdentity,
    (
        Field("member_id", "string", 0, LATEST),
        Field("group_instance_id", "string", 0, LATEST, null_first=3, null_last=LATEST),
        Field("reason", "string", 5, LATEST, null_first=5, null_last=LATEST),
    ),
    flexible_from=4,
)
declare(
    LeaveGroupRequest,
    (
        Field("group_id", "string", 0, LATEST),
        Field("members", [MemberIdentity], 3, LATEST),
        Field("member_id", "string", 0, 2),
    ),
    flexible_from=4,
)
declare(
    MemberResponse,
    (
        Field("member_id", "string", 0, LATEST),
        Field("group_instance_id", "string", 0, LATEST, null_first=3, null_last=LATEST),
        Field("error_code", "int16", 0, LATEST),
    ),
    flexible_from=4,
)
declare(
    LeaveGroupResponse,
    (
        Field("throttle_time_ms", "int32", 1, LATEST),
        Field("error_code", "int16", 0, LATEST),
        Field("members", [MemberResponse], 3, LATEST),
    ),
    flexible_from=4,
)
