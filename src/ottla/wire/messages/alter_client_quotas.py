"""alter_client_quotas messages. Written by tools/gen_messages.py from kio 0.6.5; do not edit."""

from typing import NamedTuple

from ottla.wire.schema import LATEST, Field, declare


class EntityData(NamedTuple):
    entity_type: str = ""
    entity_name: str | None = ""


class OpData(NamedTuple):
    key: str = ""
    value: float = 0.0
    remove: bool = False


class EntryData(NamedTuple):
    entity: tuple[EntityData, ...] = ()
    ops: tuple[OpData, ...] = ()


class AlterClientQuotasRequest(NamedTuple):
    entries: tuple[EntryData, ...] = ()
    validate_only: bool = False


class EntryResult(NamedTuple):
    error_code: int = 0
    error_message: str | None = ""
    entity: tuple[EntityData, ...] = ()


class AlterClientQuotasResponse(NamedTuple):
    throttle_time_ms: int = 0
    entries: tuple[EntryResult, ...] = ()


declare(
    EntityData,
    (
        Field("entity_type", "string", 0, LATEST),
        Field("entity_name", "string", 0, LATEST, null_first=0, null_last=LATEST),
    ),
    flexible_from=1,
)
declare(
    OpData,
    (
        Field("key", "string", 0, LATEST),
        Field("value", "float64", 0, LATEST),
        Field("remove", "bool", 0, LATEST),
    ),
    flexible_from=1,
)
declare(
    EntryData,
    (
        Field("entity", [EntityData], 0, LATEST),
        Field("ops", [OpData], 0, LATEST),
    ),
    flexible_from=1,
)
declare(
    AlterClientQuotasRequest,
    (
        Field("entries", [EntryData], 0, LATEST),
        Field("validate_only", "bool", 0, LATEST),
    ),
    flexible_from=1,
)
declare(
    EntryResult,
    (
        Field("error_code", "int16", 0, LATEST),
        Field("error_message", "string", 0, LATEST, null_first=0, null_last=LATEST),
        Field("entity", [EntityData], 0, LATEST),
    ),
    flexible_from=1,
)
declare(
    AlterClientQuotasResponse,
    (
        Field("throttle_time_ms", "int32", 0, LATEST),
        Field("entries", [EntryResult], 0, LATEST),
    ),
    flexible_from=1,
)
