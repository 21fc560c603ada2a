"""UpdateFeatures, versions 0–2 (KIP-584, KIP-778): levels of the cluster's features, all of them or none.

A higher `metadata.version` is written, up to that of Apache Kafka 4.3: from then on records of the metadata log are of
that version, and an older Kafka cannot go on with the directory. No other feature has a choice here. This broker always
has the consumer protocol and KIP-890, whatever the log says, and it has no share groups.
"""

import asyncio
from collections.abc import Iterator, Mapping
from typing import Final, Protocol

from ottla.base.errors import StorageError
from ottla.base.words import shown
from ottla.broker.handlers.table import RequestContext
from ottla.broker.metadata.features import KRAFT_VERSION_FEATURE, METADATA_VERSION_FEATURE, SUPPORTED, level_of
from ottla.broker.metadata.records import FeatureLevelRecord, MetadataRecord
from ottla.broker.ports.access import HasAccess
from ottla.broker.ports.features import HasFeatures
from ottla.broker.ports.metadata_log import HasMetadataLog
from ottla.broker.ports.topics import HasImage
from ottla.broker.runtime.answers import then
from ottla.wire.acls import AclOperation
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

_UPGRADE: Final = 1
#: Kafka's `FeatureUpdate.UpgradeType`: upgrade, safe downgrade, unsafe downgrade.
_KINDS: Final = (_UPGRADE, 2, 3)
_NOTHING_CHANGED: Final = "No feature is changed, for {} cannot be {}: {}."
#: From this version on an answer that says no error is one for all features.
_NO_RESULTS_FROM: Final = 2


class _Node(HasAccess, HasFeatures, HasImage, HasMetadataLog, Protocol):
    """What this handler touches."""


def handle(
    node: _Node, request: UpdateFeaturesRequest, context: RequestContext
) -> "UpdateFeaturesResponse | asyncio.Future[UpdateFeaturesResponse]":
    """All of it, or the first error and nothing. INVALID_UPDATE_VERSION for a level that cannot be."""
    if not node.access.allows_cluster(context, AclOperation.ALTER):
        refused = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return UpdateFeaturesResponse(error_code=refused, error_message="Changing features needs ALTER on the cluster.")
    problems: list[str] = []
    #: What is asked for, by the feature's name; the last counts when one is named twice, as in Apache Kafka.
    wanted: dict[str, FeatureUpdateKey] = {}

    def decided() -> Iterator[MetadataRecord | None]:
        levels = {**node.image.features, KRAFT_VERSION_FEATURE: node.metadata_log.kraft_version}
        for each in request.feature_updates:
            wanted[each.feature] = each
            yield None
        for each in wanted.values():
            problem = _problem(levels, each)
            if problem is not None:
                problems.append(_NOTHING_CHANGED.format(shown(each.feature), each.max_version_level, problem))
                return
            yield None
        version = wanted.get(METADATA_VERSION_FEATURE)
        if version is not None and not request.validate_only:
            yield _raised(levels, version)

    def told(fault: StorageError | None) -> UpdateFeaturesResponse:
        if fault is not None:
            return UpdateFeaturesResponse(error_code=ErrorCode.KAFKA_STORAGE_ERROR, error_message=str(fault))
        if problems:
            return UpdateFeaturesResponse(error_code=ErrorCode.INVALID_UPDATE_VERSION, error_message=problems[0])
        named = () if context.api_version >= _NO_RESULTS_FROM else tuple(wanted)
        results = tuple(UpdatableFeatureResult(name, ErrorCode.NONE, None) for name in named)
        return UpdateFeaturesResponse(error_message=None, results=results)

    answer: UpdateFeaturesResponse | asyncio.Future[UpdateFeaturesResponse]
    answer = then(node.features.change(decided), told)
    return answer


def _problem(levels: Mapping[str, int], wanted: FeatureUpdateKey) -> str | None:
    """Why the feature cannot have this level; None if it can, or has it."""
    name, level = wanted.feature, wanted.max_version_level
    if wanted.upgrade_type not in _KINDS:
        return f"there is no upgrade type {wanted.upgrade_type}"
    if name not in SUPPORTED:
        # One that an Apache Kafka has left is kept for it.
        return None if levels.get(name) == level else "this broker does not have that feature"
    (lowest, highest), now = SUPPORTED[name], level_of(levels, name)
    if level == now:
        return None
    if not lowest <= level <= highest:
        return f"this broker knows its levels {lowest} to {highest}"
    if name != METADATA_VERSION_FEATURE:
        return f"this broker always has it at {now}"
    if level < now:
        return f"it is {now}, and what is written in that version cannot be taken back"
    return None if wanted.upgrade_type == _UPGRADE else f"it is {now}, so that is no downgrade"


def _raised(levels: Mapping[str, int], wanted: FeatureUpdateKey) -> FeatureLevelRecord | None:
    if wanted.max_version_level == level_of(levels, wanted.feature):
        return None
    return FeatureLevelRecord(wanted.feature, wanted.max_version_level)
