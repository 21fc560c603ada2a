"""A connection that asks one request at a time: what members of groups and producers speak through."""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from ottla.wire.apis import API, ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.frames import decode_response, encode_request
from ottla.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

_CLIENT = b"bench"
#: Records are of today: a broker may delete those of 2023 (`log.retention.hours`) while they are being read.
NOW_MS = int(time.time() * 1000)
#: Versions that both brokers know; topics are named in them.
VERSIONS = {
    ApiKey.PRODUCE: 12,
    ApiKey.FETCH: 12,
    ApiKey.LIST_OFFSETS: 7,
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
    ApiKey.LIST_TRANSACTIONS: 2,
    ApiKey.CREATE_TOPICS: 7,
    ApiKey.DELETE_TOPICS: 6,
    ApiKey.CREATE_PARTITIONS: 3,
    ApiKey.DELETE_RECORDS: 2,
    ApiKey.DESCRIBE_CONFIGS: 4,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: 1,
    ApiKey.OFFSET_FETCH: 9,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: 1,
    ApiKey.WRITE_TXN_MARKERS: 1,
}


class Wire:
    """`async with Wire(bootstrap) as wire: await wire.ask(ApiKey.HEARTBEAT, request)`."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
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

    async def ask_raw(self, key: ApiKey, body: bytes) -> None:
        """Send a body as it is, and read its answer without a look into it."""
        async with self._turn:
            self._correlation_id += 1
            version = VERSIONS[key]
            head = struct.pack(">hhih", key, version, self._correlation_id, len(_CLIENT)) + _CLIENT
            head += b"\0" if version >= API[key].flexible_from else b""
            self._writer.writelines((struct.pack(">i", len(head) + len(body)), head, body))
            (size,) = struct.unpack(">i", await self._reader.readexactly(4))
            while size:
                size -= len(await self._reader.read(size))

    async def _exchange(self, key: ApiKey, message: tuple[Any, ...]) -> Any:
        async with self._turn:
            self._correlation_id += 1
            self._writer.write(encode_request(key, VERSIONS[key], self._correlation_id, _CLIENT.decode(), message))
            (size,) = struct.unpack(">i", await self._reader.readexactly(4))
            return decode_response(key, VERSIONS[key], await self._reader.readexactly(size))[1]


class RefusedError(Exception):
    """An error that no client would expect; the message names the request and the error."""


def check(what: str, error_code: int) -> None:
    """RefusedError when there is an error."""
    if error_code:
        raise RefusedError(f"{what}: {ErrorCode(error_code).name}")


#: For how long one asks again: Apache Kafka takes some 90 s to load 100,000 transactional ids.
_PATIENCE_S = 300.0
#: What a client asks again after: coordinator or leader starts, or the transaction before is still being completed.
AGAIN = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)


async def settled(
    wire: Wire, key: ApiKey, request: tuple[Any, ...], error_of: Callable[[Any], int], wait_s: float = 0.001
) -> Any:
    """The answer, asked again while it says that one must.

    RefusedError for an error that no client expects; TimeoutError when it says so for _PATIENCE_S.
    """
    deadline_s = time.monotonic() + _PATIENCE_S
    while True:
        answer = await wire.ask(key, request)
        error = error_of(answer)
        if error not in AGAIN:
            check(key.name, error)
            return answer
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"{key.name} was answered with {ErrorCode(error).name} for {_PATIENCE_S:.0f} s")
        await asyncio.sleep(wait_s)


async def made_topic(wire: Wire, name: str, partitions: int = 1, **settings: str) -> None:
    """Make a topic with these settings (`cleanup_policy="compact"`), and wait until it has leaders."""
    configs = tuple(CreatableTopicConfig(key.replace("_", "."), value) for key, value in settings.items())
    request = CreateTopicsRequest((CreatableTopic(name, partitions, 1, configs=configs),))
    check("CREATE_TOPICS", (await wire.ask(ApiKey.CREATE_TOPICS, request)).topics[0].error_code)
    asked = MetadataRequest((MetadataRequestTopic(name=name),))
    await settled(wire, ApiKey.METADATA, asked, lambda answer: _worst_of(answer.topics[0]))


def _worst_of(topic: Any) -> int:
    """The topic's error, else one of its partitions'."""
    return topic.error_code or max((each.error_code for each in topic.partitions), default=0)
