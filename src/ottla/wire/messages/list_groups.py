"""list_groups messages. Written by tools/gen_messages.py from kio 0.6.5; do not edit."""

from typing import NamedTuple

from ottla.wire.schema import LATEST, Field, declare


class ListGroupsRequest(NamedTuple):
    states_filter: tuple[str, ...] = ()
    types_filter: tuple[str, ...] = ()


class ListedGroup(NamedTuple):
    group_id: str = ""
    protocol_type: str = ""
    group_state: str = ""
    group_type: str = ""


class ListGroupsResponse(NamedTuple):
    throttle_time_ms: int = 0
    error_code: int = 0
    groups: tuple[ListedGroup, ...] = ()


declare(
    ListGroupsRequest,
    (
        Field("states_filter", ["string"], 4, LATEST, ignorable=False),
        Field("types_filter", ["string"], 5, LATEST, ignorable=False),
    ),
    flexible_from=3,
)
declare(
    ListedGroup,
    (
        Field("group_id", "string", 0, LATEST),
        Field("protocol_type", "string", 0, LATEST),
        Field("group_state", "string", 4, LATEST),
        Field("group_type", "string", 5, LATEST),
    ),
    flexible_from=3,
)
declare(
    ListGroupsResponse,
    (
        Field("throttle_time_ms", "int32", 1, LATEST),
        Field("error_code", "int16", 0, LATEST),
        Field("groups", [ListedGroup], 0, LATEST),
    ),
    flexible_from=3,
)
