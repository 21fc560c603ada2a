"""delete_groups messages. Written by tools/gen_messages.py from kio 0.6.5; do not edit."""

from typing import NamedTuple

from ottla.wire.schema import LATEST, Field, declare


class DeleteGroupsRequest(NamedTuple):
    groups_names: tuple[str, ...] = ()


class DeletableGroupResult(NamedTuple):
    group_id: str = ""
    error_code: int = 0


class DeleteGroupsResponse(NamedTuple):
    throttle_time_ms: int = 0
    results: tuple[DeletableGroupResult, ...] = ()


declare(
    DeleteGroupsRequest,
    (Field("groups_names", ["string"], 0, LATEST),),
    flexible_from=2,
)
declare(
    DeletableGroupResult,
    (
        Field("group_id", "string", 0, LATEST),
        Field("error_code", "int16", 0, LATEST),
    ),
    flexible_from=2,
)
declare(
    DeleteGroupsResponse,
    (
        Field("throttle_time_ms", "int32", 0, LATEST),
        Field("results", [DeletableGroupResult], 0, LATEST),
    ),
    flexible_from=2,
)
