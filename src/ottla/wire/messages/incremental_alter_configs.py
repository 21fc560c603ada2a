"""incremental_alter_configs messages. Written by tools/gen_messages.py from kio 0.6.5; do not edit."""

from typing import NamedTuple

from ottla.wire.schema import LATEST, Field, declare


class AlterableConfig(NamedTuple):
    name: str = ""
    config_operation: int = 0
    value: str | None = ""


class AlterConfigsResource(NamedTuple):
    resource_type: int = 0
    resource_name: str = ""
    configs: tuple[AlterableConfig, ...] = ()


class IncrementalAlterConfigsRequest(NamedTuple):
    resources: tuple[AlterConfigsResource, ...] = ()
    validate_only: bool = False


class AlterConfigsResourceResponse(NamedTuple):
    error_code: int = 0
    error_message: str | None = ""
    resource_type: int = 0
    resource_name: str = ""


class IncrementalAlterConfigsResponse(NamedTuple):
    throttle_time_ms: int = 0
    responses: tuple[AlterConfigsResourceResponse, ...] = ()


declare(
    AlterableConfig,
    (
        Field("name", "string", 0, LATEST),
        Field("config_operation", "int8", 0, LATEST),
        Field("value", "string", 0, LATEST, null_first=0, null_last=LATEST),
    ),
    flexible_from=1,
)
declare(
    AlterConfigsResource,
    (
        Field("resource_type", "int8", 0, LATEST),
        Field("resource_name", "string", 0, LATEST),
        Field("configs", [AlterableConfig], 0, LATEST),
    ),
    flexible_from=1,
)
declare(
    IncrementalAlterConfigsRequest,
    (
        Field("resources", [AlterConfigsResource], 0, LATEST),
        Field("validate_only", "bool", 0, LATEST),
    ),
    flexible_from=1,
)
declare(
    AlterConfigsResourceResponse,
    (
        Field("error_code", "int16", 0, LATEST),
        Field("error_message", "string", 0, LATEST, null_first=0, null_last=LATEST),
        Field("resource_type", "int8", 0, LATEST),
        Field("resource_name", "string", 0, LATEST),
    ),
    flexible_from=1,
)
declare(
    IncrementalAlterConfigsResponse,
    (
        Field("throttle_time_ms", "int32", 0, LATEST),
        Field("responses", [AlterConfigsResourceResponse], 0, LATEST),
    ),
    flexible_from=1,
)
