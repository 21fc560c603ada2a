"""list_config_resources messages. Written by tools/gen_messages.py from kio 0.6.5; do not edit."""

from typing import NamedTuple

from ottla.wire.schema import LATEST, Field, declare


class ListConfigResourcesRequest(NamedTuple):
    resource_types: tuple[int, ...] = ()


class ConfigResource(NamedTuple):
    resource_name: str = ""
    resource_type: int = 16


class ListConfigResourcesResponse(NamedTuple):
    throttle_time_ms: int = 0
    error_code: int = 0
    config_resources: tuple[ConfigResource, ...] = ()


declare(
    ListConfigResourcesRequest,
    (Field("resource_types", ["int8"], 1, LATEST),),
    flexible_from=0,
)
declare(
    ConfigResource,
    (
        Field("resource_name", "string", 0, LATEST),
        Field("resource_type", "int8", 1, LATEST),
    ),
    flexible_from=0,
)
declare(
    ListConfigResourcesResponse,
    (
        Field("throttle_time_ms", "int32", 0, LATEST),
        Field("error_code", "int16", 0, LATEST),
        Field("config_resources", [ConfigResource], 0, LATEST),
    ),
    flexible_from=0,
)
