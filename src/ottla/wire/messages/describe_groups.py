"""describe_groups messages. Written by tools/gen_messages.py from kio 0.6.5; do not edit."""

from typing import NamedTuple

from ottla.wire.schema import LATEST, Field, declare


class DescribeGroupsRequest(NamedTuple):
    groups: tuple[str, ...] = ()
    include_authorized_operations: bool = False


class DescribedGroupMember(NamedTuple):
    member_id: str = ""
    group_instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    member_metadata: bytes = b""
    member_assignment: bytes = b""


class DescribedGroup(NamedTuple):
    error_code: int = 0
    error_message: str | None = None
    group_id: str = ""
    group_state: str = ""
    protocol_type: str = ""
    protocol_data: str = ""
    members: tuple[DescribedGroupMember, ...] = ()
    authorized_operations: int = -2147483648


class DescribeGroupsResponse(NamedTuple):
    throttle_time_ms: int = 0
    groups: tuple[DescribedGroup, ...] = ()


declare(
    DescribeGroupsRequest,
    (
        Field("groups", ["string"], 0, LATEST),
        Field("include_authorized_operations", "bool", 3, LATEST),
    ),
    flexible_from=5,
)
declare(
    DescribedGroupMember,
    (
        Field("member_id", "string", 0, LATEST),
        Field("group_instance_id", "string", 4, LATEST, null_first=4, null_last=LATEST),
        Field("client_id", "string", 0, LATEST),
        Field("client_host", "string", 0, LATEST),
        Field("member_metadata", "bytes", 0, LATEST),
        Field("member_assignment", "bytes", 0, LATEST),
    ),
    flexible_from=5,
)
declare(
    DescribedGroup,
    (
        Field("error_code", "int16", 0, LATEST),
        Field("error_message", "string", 6, LATEST, null_first=6, null_last=LATEST),
        Field("group_id", "string", 0, LATEST),
        Field("group_state", "string", 0, LATEST),
        Field("protocol_type", "string", 0, LATEST),
        Field("protocol_data", "string", 0, LATEST),
        Field("members", [DescribedGroupMember], 0, LATEST),
        Field("authorized_operations", "int32", 3, LATEST),
    ),
    flexible_from=5,
)
declare(
    DescribeGroupsResponse,
    (
        Field("throttle_time_ms", "int32", 1, LATEST),
        Field("groups", [DescribedGroup], 0, LATEST),
    ),
    flexible_from=5,
)
