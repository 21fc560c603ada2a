"""describe_configs messages. Written by tools/gen_messages.py from kio 0.6.5; do not edit."""

from typing import NamedTuple

from ottla.wire.schema import LATEST, Field, declare


class DescribeConfigsResource(NamedTuple):
    resource_type: int = 0
    resource_name: str = ""
    configuration_keys: tuple[str, ...] | None = ()


class DescribeConfigsRequest(NamedTuple):
    resources: tuple[DescribeConfigsResource, ...] = ()
    include_synonyms: bool = False
    include_documentation: bool = False


class DescribeConfigsSynonym(NamedTuple):
    name: str = ""
    value: str | None = ""
    source: int = 0


class DescribeConfigsResourceResult(NamedTuple):
    name: str = ""
    value: str | None = ""
    read_only: bool = False
    config_source: int = -1
    is_sensitive: bool = False
    synonyms: tuple[DescribeConfigsSynonym, ...] = ()
    config_type: int = 0
    documentation: str | None = ""


class DescribeConfigsResult(NamedTuple):
    error_code: int = 0
    error_message: str | None = ""
    resource_type: int = 0
    resource_name: str = ""
    configs: tuple[DescribeConfigsResourceResult, ...] = ()


class DescribeConfigsResponse(NamedTuple):
    throttle_time_ms: int = 0
    results: tuple[DescribeConfigsResult, ...] = ()


declare(
    DescribeConfigsResource,
    (
        Field("resource_type", "int8", 0, LATEST),
        Field("resource_name", "string", 0, LATEST),
        Field("configuration_keys", ["string"], 0, LATEST, null_first=1, null_last=LATEST),
    ),
    flexible_from=4,
)
declare(
    DescribeConfigsRequest,
    (
        Field("resources", [DescribeConfigsResource], 0, LATEST),
        Field("include_synonyms", "bool", 0, LATEST),
        Field("include_documentation", "bool", 3, LATEST),
    ),
    flexible_from=4,
)
declare(
    DescribeConfigsSynonym,
    (
        Field("name", "string", 0, LATEST),
        Field("value", "string", 0, LATEST, null_first=1, null_last=LATEST),
        Field("source", "int8", 0, LATEST),
    ),
    flexible_from=4,
)
declare(
    DescribeConfigsResourceResult,
    (
        Field("name", "string", 0, LATEST),
        Field("value", "string", 0, LATEST, null_first=1, null_last=LATEST),
        Field("read_only", "bool", 0, LATEST),
        Field("config_source", "int8", 0, LATEST),
        Field("is_sensitive", "bool", 0, LATEST),
        Field("synonyms", [DescribeConfigsSynonym], 0, LATEST),
        Field("config_type", "int8", 3, LATEST),
        Field("documentation", "string", 3, LATEST, null_first=3, null_last=LATEST),
    ),
    flexible_from=4,
)
declare(
    DescribeConfigsResult,
    (
        Field("error_code", "int16", 0, LATEST),
        Field("error_message", "string", 0, LATEST, null_first=1, null_last=LATEST),
        Field("resource_type", "int8", 0, LATEST),
        Field("resource_name", "string", 0, LATEST),
        Field("configs", [DescribeConfigsResourceResult], 0, LATEST),
    ),
    flexible_from=4,
)
declare(
    DescribeConfigsResponse,
    (
        Field("throttle_time_ms", "int32", 0, LATEST),
        Field("results", [DescribeConfigsResult], 0, LATEST),
    ),
    flexible_from=4,
)
