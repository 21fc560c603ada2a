"""One connection to a broker. It works on one request at a time, so answers are in the order of the requests."""

import asyncio
import importlib
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

from ottla.wire.apis import API, ApiKey
from ottla.wire.codec import Buffer
from ottla.wire.errors import ErrorCode
from ottla.wire.frames import FrameBuffer, UnsupportedVersionError, decode_body, decode_request, encode_response
from ottla.wire.messages.api_versions import ApiVersion, ApiVersionsResponse, FinalizedFeatureKey, SupportedFeatureKey

if TYPE_CHECKING:
    from sim.cluster.node import Node

_MAX_FRAME_BYTES = 16 * 1024 * 1024

#: Called once with the response; with None if there is none to send.
Answer: TypeAlias = Callable[[Any], None]


class Context(NamedTuple):
    """Who has sent a request, and in which version."""

    version: int
    client_id: str
    host: str


Handler: TypeAlias = "Callable[[Node, Any, Context, Answer], None]"

_MODULES = {
    ApiKey.PRODUCE: "produce",
    ApiKey.FETCH: "fetch",
    ApiKey.LIST_OFFSETS: "offsets",
    ApiKey.OFFSET_FOR_LEADER_EPOCH: "offsets",
    ApiKey.METADATA: "metadata",
    ApiKey.FIND_COORDINATOR: "metadata",
    ApiKey.INIT_PRODUCER_ID: "transactions",
    ApiKey.ADD_PARTITIONS_TO_TXN: "transactions",
    ApiKey.ADD_OFFSETS_TO_TXN: "transactions",
    ApiKey.END_TXN: "transactions",
    ApiKey.TXN_OFFSET_COMMIT: "transactions",
    ApiKey.JOIN_GROUP: "groups",
    ApiKey.SYNC_GROUP: "groups",
    ApiKey.HEARTBEAT: "groups",
    ApiKey.LEAVE_GROUP: "groups",
    ApiKey.OFFSET_COMMIT: "groups",
    ApiKey.OFFSET_FETCH: "groups",
    ApiKey.DESCRIBE_GROUPS: "groups",
    ApiKey.API_VERSIONS: "server",
}
#: The APIs that these brokers speak. ApiVersions names no others, so clients know what is missing here.
SPOKEN = tuple(_MODULES)
_handlers: dict[int, Handler] = {}


def _handler(key: int) -> Handler:
    found = _handlers.get(key)
    if found is None:
        module = importlib.import_module(f"sim.cluster.{_MODULES[ApiKey(key)]}")
        found = _handlers[key] = getattr(module, ApiKey(key).name.lower())
    return found


class ServerConnection(asyncio.Protocol):
    """One connection to a broker."""

    def __init__(self, node: "Node") -> None:
        self._node = node
        self._frames = FrameBuffer(_MAX_FRAME_BYTES)
        self._inbox: deque[Buffer] = deque()
        #: A request is being worked on.
        self._busy = False
        #: `_next` is running: it must not call itself.
        self._serving = False
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None

    def data_received(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            room = self._frames.get_buffer()
            size = min(len(room), len(view))
            room[:size] = view[:size]
            view = view[size:]
            self._inbox.extend(self._frames.commit(size))
        self._next()

    def _next(self) -> None:
        if self._serving:
            return
        self._serving = True
        while self._inbox and not self._busy:
            self._busy = True
            self._serve(self._inbox.popleft())
        self._serving = False

    def _serve(self, frame: Buffer) -> None:
        node = self._node
        try:
            header, offset = decode_request(frame)
        except UnsupportedVersionError as error:
            self._refuse_version(error)
            return
        low, high = node.cluster.versions[API[header.api_key].key]
        if not low <= header.api_version <= high:
            self._refuse_version(UnsupportedVersionError(header.api_key, header.api_version, header.correlation_id))
            return
        node.cluster.counts[API[header.api_key].name] += 1
        host = self._transport.get_extra_info("peername")[0] if self._transport is not None else "gone"
        context = Context(header.api_version, header.client_id or "", host)
        request = decode_body(API[header.api_key].request, header.api_version, frame, offset)

        answered = False

        def answer(response: Any) -> None:
            nonlocal answered
            assert not answered, f"{API[header.api_key].name} is answered twice"
            answered = True
            throttled_s = 0.0
            if response is not None and self._transport is not None:
                self._transport.write(
                    encode_response(header.api_key, header.api_version, header.correlation_id, response)
                )
                throttled_s = getattr(response, "throttle_time_ms", 0) / 1000
            if throttled_s:
                node.later(throttled_s, self._done)
            else:
                self._done()

        if header.api_key == ApiKey.API_VERSIONS:
            answer(_api_versions(node))
        else:
            _handler(header.api_key)(node, request, context, answer)

    def _done(self) -> None:
        self._busy = False
        self._next()

    def _refuse_version(self, error: UnsupportedVersionError) -> None:
        """Answer ApiVersions in version 0; for any other API close the connection."""
        if self._transport is None:
            return
        if error.api_key != ApiKey.API_VERSIONS:
            self._transport.close()
            return
        response = _api_versions(self._node)._replace(error_code=ErrorCode.UNSUPPORTED_VERSION)
        self._transport.write(encode_response(ApiKey.API_VERSIONS, 0, error.correlation_id, response))
        self._done()


def _api_versions(node: "Node") -> ApiVersionsResponse:
    level = node.cluster.rules.transaction_version
    features = {"transaction.version": level} if level else {}
    return ApiVersionsResponse(
        api_keys=tuple(ApiVersion(key, low, high) for key, (low, high) in node.cluster.versions.items()),
        supported_features=tuple(SupportedFeatureKey(name, 0, top) for name, top in features.items()),
        finalized_features_epoch=1,
        finalized_features=tuple(FinalizedFeatureKey(name, top, top) for name, top in features.items()),
    )
