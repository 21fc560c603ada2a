"""From a frame to an answer, by the table."""

import asyncio
from collections.abc import Callable
from typing import Any

from ottla.base.errors import CorruptDataError
from ottla.broker.handlers.table import TABLE, UNSTABLE_VERSIONS, RequestContext, decode_message
from ottla.broker.node import Node
from ottla.broker.server import Answer, Frame, Later
from ottla.wire.apis import API, ApiKey
from ottla.wire.frames import UnsupportedVersionError, decode_request, encode_response


class Dispatcher:
    """Calls handlers for one broker; the listener's `dispatch`."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._handlers: dict[int, Callable[..., Any]] = {}
        unstable = node.config.flag(UNSTABLE_VERSIONS)
        self._newest = {key: entry.newest(unstable=unstable) for key, entry in TABLE.items()}

    def __call__(self, frame: Frame, client_host: str) -> Answer:
        try:
            header, offset = decode_request(frame)
        except UnsupportedVersionError as unsupported:
            if unsupported.api_key != ApiKey.API_VERSIONS:
                raise
            from ottla.broker.handlers.api_versions import unsupported_version

            return unsupported_version(unsupported.correlation_id)
        key, version, correlation_id, client_id = header
        entry = TABLE[key]
        if version > self._newest[key]:
            raise CorruptDataError(f"{API[key].name} version {version} is not offered")
        handle = self._handlers.get(key)
        if handle is None:
            handle = self._handlers[key] = entry.load()
        context = RequestContext(key, version, correlation_id, client_id or "", client_host)
        if entry.raw:
            answer: Answer = handle(self._node, frame, offset, context)
            return answer
        response = handle(self._node, decode_message(context, frame, offset), context)
        if isinstance(response, asyncio.Future):
            if not response.done():
                return Later(response, lambda message: encode_response(key, version, correlation_id, message))
            response = response.result()
        return encode_response(key, version, correlation_id, response)
