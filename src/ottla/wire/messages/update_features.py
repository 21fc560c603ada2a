"""update_features messages. Written by tools/gen_messages.py from kio 0.6.5; do not edit."""

from typing import NamedTuple

from ottla.wire.schema import LATEST, Field, declare


class FeatureUpdateKey(NamedTuple):
    feature: str = ""
    max_version_level: int = 0
    upgrade_type: int = 1
    allow_downgrade: bool = False


class UpdateFeaturesRequest(NamedTuple):
    timeout_ms: int = 60000
    feature_updates: tuple[FeatureUpdateKey, ...] = ()
    validate_only: bool = False


class UpdatableFeatureResult(NamedTuple):
    feature: str = ""
    error_code: int = 0
    error_message: str | None = ""


class UpdateFeaturesResponse(NamedTuple):
    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ""
    results: tuple[UpdatableFeatureResult, ...] = ()


declare(
    FeatureUpdateKey,
    (
        Field("feature", "string", 0, LATEST),
        Field("max_version_level", "int16", 0, LATEST),
        Field("upgrade_type", "int8", 1, LATEST),
        Field("allow_downgrade", "bool", 0, 0),
    ),
    flexible_from=0,
)
declare(
    UpdateFeaturesRequest,
    (
        Field("timeout_ms", "int32", 0, LATEST),
        Field("feature_updates", [FeatureUpdateKey], 0, LATEST),
        Field("validate_only", "bool", 1, LATEST),
    ),
    flexible_from=0,
)
declare(
    UpdatableFeatureResult,
    (
        Field("feature", "string", 0, LATEST),
        Field("error_code", "int16", 0, LATEST),
        Field("error_message", "string", 0, LATEST, null_first=0, null_last=LATEST),
    ),
    flexible_from=0,
)
declare(
    UpdateFeaturesResponse,
    (
        Field("throttle_time_ms", "int32", 0, LATEST),
        Field("error_code", "int16", 0, LATEST),
        Field("error_message", "string", 0, LATEST, null_first=0, null_last=LATEST),
        Field("results", [UpdatableFeatureResult], 0, 1),
    ),
    flexible_from=0,
)
