"""ApiVersions, versions 0–4: the table of APIs, and the finalized features clients ask for.

KIP-511: a version that is not known is answered in version 0 with UNSUPPORTED_VERSION and ApiVersions' own range.
KIP-584: `transaction.version` 2 tells producers that KIP-890's protocol is on. With `unstable.api.versions.enable` the
table has the versions that Apache Kafka may still change.
"""

from typing import Protocol

from ottla.broker.answers import Answer, Frame
from ottla.broker.handlers.table import TABLE, UNSTABLE_VERSIONS, RequestContext, decode_message
from ottla.broker.metadata.features import SUPPORTED, level_of
from ottla.broker.ports.metadata_log import HasMetadataLog
from ottla.broker.ports.settings import HasConfig
from ottla.broker.ports.topics import HasImage
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.frames import encode_response
from ottla.wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

#: Older librdkafkas compress only if the broker claims to know Produce version 0 (their issue 4956), although they
#: never send it. Apache Kafka claims it too (KAFKA-18659).
_TOLD_FROM = {ApiKey.PRODUCE: 0}


def _response(*, unstable: bool) -> ApiVersionsResponse:
    keys = (
        ApiVersion(int(entry.key), _TOLD_FROM.get(entry.key, entry.min_version), entry.newest(unstable=unstable))
        for entry in TABLE.values()
    )
    return ApiVersionsResponse(
        api_keys=tuple(sorted(keys)),
        supported_features=tuple(SupportedFeatureKey(name, *levels) for name, levels in SUPPORTED.items()),
    )


_RESPONSES = {unstable: _response(unstable=unstable) for unstable in (False, True)}


class _Node(HasConfig, HasImage, HasMetadataLog, Protocol):
    """What this handler touches."""


def handle(node: _Node, frame: Frame, offset: int, context: RequestContext) -> Answer:
    """The table of APIs. INVALID_REQUEST when the client's name has characters that Kafka refuses."""
    version = context.api_version
    request: ApiVersionsRequest = decode_message(context, frame, offset)
    levels = ((name, level_of(node.image.features, name)) for name in SUPPORTED)
    response = _RESPONSES[node.config.flag(UNSTABLE_VERSIONS)]._replace(
        finalized_features_epoch=node.metadata_log.features_epoch,
        finalized_features=tuple(FinalizedFeatureKey(name, level, level) for name, level in levels),
    )
    if version >= 3 and not (_is_name(request.client_software_name) and _is_name(request.client_software_version)):
        response = ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    if version == 3:
        # Before version 4 the answer cannot hold a feature whose lowest version is 0 (KAFKA-17011).
        told = tuple(each for each in response.supported_features if each.min_version > 0)
        response = response._replace(supported_features=told)
    if context.charge is not None:
        response = response._replace(throttle_time_ms=context.charge.requested())
    return encode_response(context.api_key, version, context.correlation_id, response)


def unsupported_version(correlation_id: int) -> bytes:
    """The answer to an ApiVersions request of a version that nobody knows yet."""
    own = tuple(each for each in _RESPONSES[False].api_keys if each.api_key == ApiKey.API_VERSIONS)
    response = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=own)
    return encode_response(ApiKey.API_VERSIONS, 0, correlation_id, response)


def _is_name(text: str) -> bool:
    """KIP-511: letters, digits, dots and dashes, beginning and ending with a letter or digit."""
    return (
        bool(text)
        and text.isascii()
        and text[0].isalnum()
        and text[-1].isalnum()
        and all(letter.isalnum() or letter in ".-" for letter in text)
    )
