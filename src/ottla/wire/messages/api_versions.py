"""api_versions messages. Written by tools/gen_messages.py from kio 0.6.5; do not edit."""

from typing import NamedTuple

from ottla.wire.schema import LATEST, Field, declare


class ApiVersionsRequest(NamedTuple):
    client_software_name: str = ""
    client_software_version: str = ""


class ApiVersion(NamedTuple):
    api_key: int = 0
    min_version: int = 0
    max_version: int = 0


class SupportedFeatureKey(NamedTuple):
    name: str = ""
    min_version: int = 0
    max_version: int = 0


class FinalizedFeatureKey(NamedTuple):
    name: str = ""
    max_version_level: int = 0
    min_version_level: int = 0


class ApiVersionsResponse(NamedTuple):
    error_code: int = 0
    api_keys: tuple[ApiVersion, ...] = ()
    throttle_time_ms: int = 0
    supported_features: tuple[SupportedFeatureKey, ...] = ()
    finalized_features_epoch: int = -1
    finalized_features: tuple[FinalizedFeatureKey, ...] = ()
    zk_migration_ready: bool = False


declare(
    ApiVersionsRequest,
    (
        Field("client_software_name", "string", 3, LATEST),
        Field("client_software_version", "string", 3, LATEST),
    ),
    flexible_from=3,
)
declare(
    ApiVersion,
    (
        Field("api_key", "int16", 0, LATEST),
        Field("min_version", "int16", 0, LATEST),
        Field("max_version", "int16", 0, LATEST),
    ),
    flexible_from=3,
)
declare(
    SupportedFeatureKey,
    (
        Field("name", "string", 0, LATEST),
        Field("min_version", "int16", 0, LATEST),
        Field("max_version", "int16", 0, LATEST),
    ),
    flexible_from=3,
)
declare(
    FinalizedFeatureKey,
    (
        Field("name", "string", 0, LATEST),
        Field("max_version_level", "int16", 0, LATEST),
        Field("min_version_level", "int16", 0, LATEST),
    ),
    flexible_from=3,
)
declare(
    ApiVersionsResponse,
    (
        Field("error_code", "int16", 0, LATEST),
        Field("api_keys", [ApiVersion], 0, LATEST),
        Field("throttle_time_ms", "int32", 1, LATEST),
        Field("supported_features", [SupportedFeatureKey], 3, LATEST, tag=0),
        Field("finalized_features_epoch", "int64", 3, LATEST, tag=1),
        Field("finalized_features", [FinalizedFeatureKey], 3, LATEST, tag=2),
        Field("zk_migration_ready", "bool", 3, LATEST, tag=3),
    ),
    flexible_from=3,
)
