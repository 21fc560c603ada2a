"""describe_acls messages. Written by tools/gen_messages.py from kio 0.6.5; do not edit."""

from typing import NamedTuple

from ottla.wire.schema import LATEST, Field, declare


class DescribeAclsRequest(NamedTuple):
    resource_type_filter: int = 0
    resource_name_filter: str | None = ""
    pattern_type_filter: int = 3
    principal_filter: str | None = ""
    host_filter: str | None = ""
    operation: int = 0
    permission_type: int = 0


class AclDescription(NamedTuple):
    principal: str = ""
    host: str = ""
    operation: int = 0
    permission_type: int = 0


class DescribeAclsResource(NamedTuple):
    resource_type: int = 0
    resource_name: str = ""
    pattern_type: int = 3
    acls: tuple[AclDescription, ...] = ()


class DescribeAclsResponse(NamedTuple):
    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ""
    resources: tuple[DescribeAclsResource, ...] = ()


declare(
    DescribeAclsRequest,
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
    AclDescription,
    (
        Field("principal", "string", 0, LATEST),
        Field("host", "string", 0, LATEST),
        Field("operation", "int8", 0, LATEST),
        Field("permission_type", "int8", 0, LATEST),
    ),
    flexible_from=2,
)
declare(
    DescribeAclsResource,
    (
        Field("resource_type", "int8", 0, LATEST),
        Field("resource_name", "string", 0, LATEST),
        Field("pattern_type", "int8", 0, LATEST),
        Field("acls", [AclDescription], 0, LATEST),
    ),
    flexible_from=2,
)
declare(
    DescribeAclsResponse,
    (
        Field("throttle_time_ms", "int32", 0, LATEST),
        Field("error_code", "int16", 0, LATEST),
        Field("error_message", "string", 0, LATEST, null_first=1, null_last=LATEST),
        Field("resources", [DescribeAclsResource], 0, LATEST),
    ),
    flexible_from=2,
)
