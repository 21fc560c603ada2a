"""A connection that asks one request at a time: what members of groups and producers speak through."""

from __future__ import annotations

import asyncio
import struct
from types import TracebackType
from typing import Any, Self

from ottla.wire.apis import ApiKey
from ottla.wire.frames import decode_response, encode_request

#: Versions that both brokers know; topics are named in them.
VERSIONS = {
    ApiKey.PRODUCE: 12,
    ApiKey.METADATA: 12,
    ApiKey.INIT_PRODUCER_ID: 5,
    ApiKey.END_TXN: 5,
    ApiKey.DESCRIBE_TRANSACTIONS: 0,
    ApiKey.FIND_COORDINATOR: 4,
    ApiKey.JOIN_GROUP: 9,
    ApiKey.SYNC_GROUP: 5,
    ApiKey.HEARTBEAT: 4,
    ApiKey.LEAVE_GROUP: 5,
    ApiKey.OFFSET_COMMIT: 9,
    ApiKey.DESCRIBE_GROUPS: 5,
    ApiKey.DESCRIBE_LOG_DIRS: 4,
    ApiKey.LIST_GROUPS: 5,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: 1,
}


class Wire:
    """`async with Wire(bootstrap) as wire: await wire.ask(ApiKey.HEARTBEAT, request)`."""

    def __init__(self, bootstrap: str) -> None:
        self._host, self._port = bootstrap.rsplit(":", 1)
        self._correlation_id = 0
        self._turn = asyncio.Lock()

    async def __aenter__(self) -> Self:
        self._reader, self._writer = await asyncio.open_connection(self._host, int(self._port), limit=1 << 24)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writer.close()

    async def ask(self, key: ApiKey, message: tuple[Any, ...]) -> Any:
        """Send a request and wait for its answer; several tasks may share a connection, and may be cancelled."""
        return await asyncio.shield(asyncio.ensure_future(self._exchange(key, message)))

    async def _exchange(self, key: ApiKey, message: tuple[Any, ...]) -> Any:
        async with self._turn:
            self._correlation_id += 1
            self._writer.write(encode_request(key, VERSIONS[key], self._correlation_id, "bench", message))
            (size,) = struct.unpack(">i", await self._reader.readexactly(4))
            return decode_response(key, VERSIONS[key], await self._reader.readexactly(size))[1]
