"""A listener that says what a test tells it to: for what a connection makes of good and bad answers."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from ottla.client.net.connection import Connection, connect
from ottla.wire.apis import API, ApiKey
from ottla.wire.frames import RequestHeader, decode_request, encode_response
from ottla.wire.messages.api_versions import ApiVersion, ApiVersionsResponse, FinalizedFeatureKey
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

#: Called for each request; writes what the broker says.
Script = Callable[[RequestHeader, asyncio.StreamWriter], Awaitable[None]]

EVERYTHING = ApiVersionsResponse(
    api_keys=tuple(ApiVersion(key, api.min_version, api.max_version) for key, api in API.items()),
    finalized_features=(FinalizedFeatureKey("transaction.version", 2, 1),),
)


@asynccontextmanager
async def broker(script: Script) -> AsyncIterator[int]:
    """A listener that answers every request as `script` says; gives its port."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                header, _ = decode_request(await reader.readexactly(size))
                await script(header, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


def say(header: RequestHeader, writer: asyncio.StreamWriter, message: tuple[object, ...], version: int = -1) -> None:
    version = header.api_version if version < 0 else version
    writer.write(encode_response(header.api_key, version, header.correlation_id, message))


async def versions_only(header: RequestHeader, writer: asyncio.StreamWriter) -> None:
    """Shakes hands, and is silent to everything else."""
    if header.api_key == ApiKey.API_VERSIONS:
        say(header, writer, EVERYTHING)


async def open_to(port: int) -> Connection:
    return await connect("127.0.0.1", port, "me", 5_000, 5_000)


def beat(connection: Connection, timeout_ms: float = 5_000) -> "asyncio.Future[HeartbeatResponse]":
    return connection.send(ApiKey.HEARTBEAT, 4, HeartbeatRequest("g", 1, "m"), timeout_ms)
