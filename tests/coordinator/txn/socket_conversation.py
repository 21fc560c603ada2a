"""A `Conversation` with a broker's transaction coordinator over a plain socket: raw requests, no client's opinions."""

from __future__ import annotations

import itertools
import socket
import time
import uuid
from typing import Any

from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.frames import decode_response, encode_request
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from tests.coordinator.txn.conversation import Conversation

_TRANSACTION_COORDINATOR = 1
_READY_TIMEOUT_S = 30.0
_TOO_MUCH_BYTES = 2**30


class SocketConversation(Conversation):
    """A talk with the broker at `port`, about a transactional id that nobody used before."""

    def __init__(self, name: str, port: int) -> None:
        super().__init__(f"x{name}-{uuid.uuid4().hex}")
        self._correlation_ids = itertools.count()
        self.connect(port)
        topic = CreatableTopic("t", 3, 1)
        (created,) = self.send(ApiKey.CREATE_TOPICS, 5, CreateTopicsRequest((topic,), 10_000)).topics
        assert created.error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
        self._find_coordinator()

    def connect(self, port: int) -> None:
        """Talk to the broker at `port` from now on."""
        self._connection = socket.create_connection(("127.0.0.1", port), timeout=_READY_TIMEOUT_S)

    def close(self) -> None:
        """End the connection."""
        self._connection.close()

    def _find_coordinator(self) -> None:
        """The first question makes the broker create `__transaction_state`."""
        request = FindCoordinatorRequest(key_type=_TRANSACTION_COORDINATOR, coordinator_keys=(self.transactional_id,))
        until = time.monotonic() + _READY_TIMEOUT_S
        while self.send(ApiKey.FIND_COORDINATOR, 4, request).coordinators[0].error_code != ErrorCode.NONE:
            assert time.monotonic() < until, "no coordinator"
            self.wait()

    def wait(self) -> None:
        """Nothing tells when the other process is ready: let it hold back an answer, to a fetch of too much."""
        much = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=_TOO_MUCH_BYTES)
        topics = (FetchTopic(topic="t", partitions=(much,)),)
        request = FetchRequest(max_wait_ms=20, min_bytes=_TOO_MUCH_BYTES, max_bytes=_TOO_MUCH_BYTES, topics=topics)
        self.send(ApiKey.FETCH, 6, request)

    def send(self, api: ApiKey, version: int, message: tuple[Any, ...]) -> Any:
        correlation_id = next(self._correlation_ids)
        self._connection.sendall(encode_request(api, version, correlation_id, "talk", message))
        size = int.from_bytes(self._read(4), "big")
        answered, response = decode_response(api, version, self._read(size))
        assert answered == correlation_id
        return response

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self._connection.recv(size - len(data))
            assert part, "the broker closed the connection"
            data += part
        return data
