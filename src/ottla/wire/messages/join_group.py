"""join_group messages. Written by tools/gen_messages.py from kio 0.6.5; do not edit."""

from typing import NamedTuple

from ottla.wire.schema import LATEST, Field, declare


class JoinGroupRequestProtocol(NamedTuple):
    name: str = ""
    metadata: bytes = b""


class JoinGroupRequest(NamedTuple):
    group_id: str = ""
    session_timeout_ms: int = 0
    rebalance_timeout_ms: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
    protocol_type: str = ""
    protocols: tuple[JoinGroupRequestProtocol, ...] = ()
    reason: str | None = None


class JoinGroupResponseMember(NamedTuple):
    member_id: str = ""
    group_instance_id: str | None = None
    metadata: bytes = b""


class JoinGroupResponse(NamedTuple):
    throttle_time_ms: int = 0
    error_code: int = 0
    generation_id: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = ""
    leader: str = ""
    skip_assignment: bool = False
    member_id: str = ""
    members: tuple[JoinGroupResponseMember, ...] = ()


declare(
    JoinGroupRequestProtocol,
    (
        Field("name", "string", 0, LATEST),
        Field("metadata", "bytes", 0, LATEST),
    ),
    flexible_from=6,
)
declare(
    JoinGroupRequest,
    (
        Field("group_id", "string", 0, LATEST),
        Field("session_timeout_ms", "int32", 0, LATEST),
        Field("rebalance_timeout_ms", "int32", 1, LATEST),
        Field("member_id", "string", 0, LATEST),
        Field("group_instance_id", "string", 5, LATEST, null_first=5, null_last=LATEST, ignorable=False),
        Field("protocol_type", "string", 0, LATEST),
        Field("protocols", [JoinGroupRequestProtocol], 0, LATEST),
        Field("reason", "string", 8, LATEST, null_first=8, null_last=LATEST),
    ),
    flexible_from=6,
)
declare(
    JoinGroupResponseMember,
    (
        Field("member_id", "string", 0, LATEST),
        Field("group_instance_id", "string", 5, LATEST, null_first=5, null_last=LATEST),
        Field("metadata", "bytes", 0, LATEST),
    ),
    flexible_from=6,
)
declare(
    JoinGroupResponse,
    (
        Field("throttle_time_ms", "int32", 2, LATEST),
        Field("error_code", "int16", 0, LATEST),
        Field("generation_id", "int32", 0, LATEST),
        Field("protocol_type", "string", 7, LATEST, null_first=7, null_last=LATEST),
        Field("protocol_name", "string", 0, LATEST, null_first=7, null_last=LATEST),
        Field("leader", "string", 0, LATEST),
        Field("skip_assignment", "bool", 9, LATEST),
        Field("member_id", "string", 0, LATEST),
        Field("members", [JoinGroupResponseMember], 0, LATEST),
    ),
    flexible_from=6,
)
