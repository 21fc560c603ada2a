"""describe_client_quotas messages. Written by tools/gen_messages.py from kio 0.6.5; do not edit."""

from typing import NamedTuple

from ottla.wire.schema import LATEST, Field, declare


class ComponentData(NamedTuple):
    entity_type: str = ""
    match_type: int = 0
    match: str | None = ""


class DescribeClientQuotasRequest(NamedTuple):
    components: tuple[ComponentData, ...] = ()
    strict: bool = False


class EntityData(NamedTuple):
    entity_type: str = ""
    entity_name: str | None = ""


class ValueData(NamedTuple):
    key: str = ""
    value: float = 0.0


class EntryData(NamedTuple):
    entity: tuple[EntityData, ...] = ()
    values: tuple[ValueData, ...] = ()


class DescribeClientQuotasResponse(NamedTuple):
    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ""
    entries: tuple[EntryData, ...] | None = ()


declare(
    ComponentData,
    (
        Field("entity_type", "string", 0, LATEST),
        Field("match_type", "int8", 0, LATEST),
        Field("match", "string", 0, LATEST, null_first=0, null_last=LATEST),
    ),
    flexible_from=1,
)
declare(
    DescribeClientQuotasRequest,
    (
        Field("components", [ComponentData], 0, LATEST),
        Field("strict", "bool", 0, LATEST),
    ),
    flexible_from=1,
)
declare(
    EntityData,
    (
        Field("entity_type", "string", 0, LATEST),
        Field("entity_name", "string", 0, LATEST, null_first=0, null_last=LATEST),
    ),
    flexible_from=1,
)
declare(
    ValueData,
    (
        Field("key", "string", 0, LATEST),
        Field("value", "float64", 0, LATEST),
    ),
    flexible_from=1,
)
declare(
    EntryData,
    (
        Field("entity", [EntityData], 0, LATEST),
        Field("values", [ValueData], 0, LATEST),
    ),
    flexible_from=1,
)
declare(
    DescribeClientQuotasResponse,
    (
        Field("throttle_time_ms", "int32", 0, LATEST),
        Field("error_code", "int16", 0, LATEST),
        Field("error_message", "string", 0, LATEST, null_first=0, null_last=LATEST),
        Field("entries", [EntryData], 0, LATEST, null_first=0, null_last=LATEST),
    ),
    flexible_from=1,
)
