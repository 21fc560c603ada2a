"""delete_acls messages. Written by tools/gen_messages.py from kio 0.6.5; do not edit."""

from typing import NamedTuple

from ottla.wire.schema import LATEST, Field, declare


class DeleteAclsFilter(NamedTuple):
    resource_type_filter: int = 0
    resource_name_filter: str | None = ""
    pattern_type_filter: int = 3
    principal_filter: str | None = ""
    host_filter: str | None = ""
    operation: int = 0
    permission_type: int = 0


class DeleteAclsRequest(NamedTuple):
    filters: tuple[DeleteAclsFilter, ...] = ()


class DeleteAclsMatchingAcl(NamedTuple):
    error_code: int = 0
    error_message: str | None = ""
    resource_type: int = 0
    resource_name: str = ""
    pattern_type: int = 3
    principal: str = ""
    host: str = ""
    operation: int = 0
    permission_type: int = 0


class DeleteAclsFilterResult(NamedTuple):
    error_code: int = 0
    error_message: str | None = ""
    matching_acls: tuple[DeleteAclsMatchingAcl, ...] = ()


class DeleteAclsResponse(NamedTuple):
    throttle_time_ms: int = 0
    filter_results: tuple[DeleteAclsFilterResult, ...] = ()


declare(
    DeleteAclsFilter,
    (
        Field("resource_type_filter", "int8", 0, LATEST),
        Field("resource_name_filter", "string", 0, LATEST, null_first=1, null_last=LATEST),
        Field("pattern_type_filter", "int8", 0, LATEST),
        Field("principal_filter", "string", 0, LATEST, null_first=1, null_last=LATEST),
        Field("host_filter", "string", 0, LATEST, null_first=1, null_last=LATEST),
        Field("operation", "int8", 0, LATEST),
        Field("permission_type", "int8", 0, LATEST),
    ),
    flexible_from=2,
)
declare(
    DeleteAclsRequest,
    (Field("filters", [DeleteAclsFilter], 0, LATEST),),
    flexible_from=2,
)
declare(
    DeleteAclsMatchingAcl,
    (
        Field("error_code", "int16", 0, LATEST),
        Field("error_message", "string", 0, LATEST, null_first=1, null_last=LATEST),
        Field("resource_type", "int8", 0, LATEST),
        Field("resource_name", "string", 0, LATEST),
        Field("pattern_type", "int8", 0, LATEST),
        Field("principal", "string", 0, LATEST),
        Field("host", "string", 0, LATEST),
        Field("operation", "int8", 0, LATEST),
        Field("permission_type", "int8", 0, LATEST),
    ),
    flexible_from=2,
)
declare(
    DeleteAclsFilterResult,
    (
        Field("error_code", "int16", 0, LATEST),
        Field("error_message", "string", 0, LATEST, null_first=1, null_last=LATEST),
        Field("matching_acls", [DeleteAclsMatchingAcl], 0, LATEST),
    ),
    flexible_from=2,
)
declare(
    DeleteAclsResponse,
    (
        Field("throttle_time_ms", "int32", 0, LATEST),
        Field("filter_results", [DeleteAclsFilterResult], 0, LATEST),
    ),
    flexible_from=2,
)
