"""create_acls messages. Written by tools/gen_messages.py from kio 0.6.5; do not edit."""

from typing import NamedTuple

from ottla.wire.schema import LATEST, Field, declare


class AclCreation(NamedTuple):
    resource_type: int = 0
    resource_name: str = ""
    resource_pattern_type: int = 3
    principal: str = ""
    host: str = ""
    operation: int = 0
    permission_type: int = 0


class CreateAclsRequest(NamedTuple):
    creations: tuple[AclCreation, ...] = ()


class AclCreationResult(NamedTuple):
    error_code: int = 0
    error_message: str | None = ""


class CreateAclsResponse(NamedTuple):
    throttle_time_ms: int = 0
    results: tuple[AclCreationResult, ...] = ()


declare(
    AclCreation,
    (
        Field("resource_type", "int8", 0, LATEST),
        Field("resource_name", "string", 0, LATEST),
        Field("resource_pattern_type", "int8", 0, LATEST),
        Field("principal", "string", 0, LATEST),
        Field("host", "string", 0, LATEST),
        Field("operation", "int8", 0, LATEST),
        Field("permission_type", "int8", 0, LATEST),
    ),
    flexible_from=2,
)
declare(
    CreateAclsRequest,
    (Field("creations", [AclCreation], 0, LATEST),),
    flexible_from=2,
)
declare(
    AclCreationResult,
    (
        Field("error_code", "int16", 0, LATEST),
        Field("error_message", "string", 0, LATEST, null_first=1, null_last=LATEST),
    ),
    flexible_from=2,
)
declare(
    CreateAclsResponse,
    (
        Field("throttle_time_ms", "int32", 0, LATEST),
        Field("results", [AclCreationResult], 0, LATEST),
    ),
    flexible_from=2,
)
