"""A client that speaks exactly what a test tells it to: one connection, any version, any bytes."""

import asyncio
import ssl
import struct
from types import TracebackType
from typing import Any, Protocol

from ottla.wire.apis import API, ApiKey
from ottla.wire.frames import decode_response, encode_request
from ottla.wire.messages.api_versions import ApiVersionsRequest
from ottla.wire.records import Record, encode_batch


class Address(Protocol):
    """Where a broker listens."""

    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int: ...


class WireClient:
    """`async with WireClient(broker) as client: await client.ask(ApiKey.METADATA, request)`."""

    def __init__(self, broker: Address, client_id: str = "test", tls: ssl.SSLContext | None = None) -> None:
        self.broker = broker
        self._client_id = client_id
        self._tls = tls
        self._correlation_id = 0

    async def __aenter__(self) -> "WireClient":
        self._reader, self._writer = await asyncio.open_connection(self.broker.host, self.broker.port, ssl=self._tls)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writer.close()

    async def ask(self, key: ApiKey, message: tuple[Any, ...], version: int | None = None) -> Any:
        """Send one request and wait for its answer."""
        version = await self.send(key, message, version)
        return await self.answer(key, version)

    async def ask_api_versions(self) -> set[int]:
        """The APIs the broker offers."""
        answer = await self.ask(ApiKey.API_VERSIONS, ApiVersionsRequest("test", "1.0"))
        return {each.api_key for each in answer.api_keys}

    async def send(self, key: ApiKey, message: tuple[Any, ...], version: int | None = None) -> int:
        """Send one request; the version it was sent in."""
        from ottla.broker.handlers.table import TABLE

        version = TABLE[key].max_version if version is None else version
        self._correlation_id += 1
        self._writer.write(encode_request(key, version, self._correlation_id, self._client_id, message))
        await self._writer.drain()
        return version

    async def answer(self, key: ApiKey, version: int) -> Any:
        """The next answer, which must be the last request's."""
        correlation_id, message = decode_response(key, version, await self.frame())
        assert correlation_id == self._correlation_id
        return message

    async def send_bytes(self, data: bytes) -> None:
        """Send anything."""
        self._writer.write(data)
        await self._writer.drain()

    async def drained(self) -> bytes:
        """Say that nothing more comes, and read what the broker still has to say until it closes."""
        self._writer.write_eof()
        return await self._reader.read()

    async def frame(self) -> bytes:
        """The next frame, without its length; IncompleteReadError when the broker has closed the connection."""
        (size,) = struct.unpack(">i", await self._reader.readexactly(4))
        return await self._reader.readexactly(size)

    async def is_closed(self) -> bool:
        """Whether the broker closes the connection instead of answering."""
        try:
            return await self._reader.read(1) == b""
        except ConnectionError:
            return True


def batch(*values: bytes, **options: Any) -> bytes:
    """A record batch of these values, without keys."""
    return encode_batch(
        [Record(at, 1_700_000_000_000 + at, None, value, ()) for at, value in enumerate(values)], **options
    )


def first_version(key: ApiKey) -> int:
    """The oldest version of an API."""
    return API[key].min_version
