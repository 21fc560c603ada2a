"""What one Kafka broker answers, in memory: a fake that is read in one go, for tests that bend single answers.

It keeps to Kafka where clients depend on it: sequences and epochs of producers (KIP-98, KIP-360, KIP-890), generations
of groups, topic ids, auto-creation. It has no last stable offset, and a group has one member at a time: whoever needs
more takes the real broker (`ottla.testing`). `scripted_broker` puts it on a port.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, NamedTuple

from ottla.base.types import TopicPartition
from ottla.wire.apis import API, ApiKey
from ottla.wire.batch import BatchHeader, assign_offsets, iter_headers, parse_header
from ottla.wire.errors import ErrorCode
from ottla.wire.markers import control_batch
from ottla.wire.messages.api_versions import ApiVersion, ApiVersionsResponse, FinalizedFeatureKey
from ottla.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from ottla.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from ottla.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from ottla.wire.records import Record, decode_batch, encode_batch
from tests.client.fake_coordinator import FakeCoordinator

NODE_ID = 1
LATEST, EARLIEST = -1, -2
#: The broker knows a repetition among the last five batches.
_REMEMBERED = 5


class Asked(NamedTuple):
    """One request, as the broker got it; `connection` counts the connections that were made."""

    api: ApiKey
    version: int
    client_id: str | None
    message: Any
    connection: int


class _Producer:
    """What a partition knows of one producer."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.last_sequence = -1
        #: (first sequence, last sequence, base offset) of the last batches.
        self.batches: list[tuple[int, int, int]] = []


class FakeLog:
    """One partition."""

    def __init__(self) -> None:
        self.end_offset = 0
        self._batches: list[tuple[BatchHeader, bytes]] = []
        self._producers: dict[int, _Producer] = {}

    def append(self, data: bytes) -> tuple[ErrorCode, int]:
        """Append a batch, unless its sequence or epoch speaks against it: error code and base offset."""
        header = parse_header(data)
        code, known_at = self._check(header)
        if code is not ErrorCode.NONE or known_at >= 0:
            return code, known_at
        at = self._write(data)
        if header.has_producer_id:
            self._remember(header, at)
        return ErrorCode.NONE, at

    def mark(self, *, commit: bool, producer_id: int, epoch: int) -> None:
        """End a transaction here."""
        self._write(
            control_batch(
                commit=commit, producer_id=producer_id, producer_epoch=epoch, coordinator_epoch=0, timestamp_ms=0
            )
        )
        known = self._producers.get(producer_id)
        if known is None or known.epoch < epoch:
            self._producers[producer_id] = _Producer(epoch)

    def read(self, offset: int) -> bytes:
        """All batches from the one on that has `offset`."""
        return b"".join(data for header, data in self._batches if header.last_offset >= offset)

    def values(self) -> list[bytes | None]:
        """The values of all records, those of aborted transactions too."""
        return [record.value for h, data in self._batches if not h.is_control for record in decode_batch(data)]

    def _check(self, header: BatchHeader) -> tuple[ErrorCode, int]:
        known = self._producers.get(header.producer_id)
        if not header.has_producer_id or known is None:
            return ErrorCode.NONE, -1
        if header.producer_epoch < known.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH, -1
        if header.producer_epoch > known.epoch:
            return (ErrorCode.NONE if header.base_sequence == 0 else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER), -1
        for first, last, offset in known.batches:
            if (first, last) == (header.base_sequence, header.last_sequence):
                return ErrorCode.NONE, offset
        if header.base_sequence != known.last_sequence + 1:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        return ErrorCode.NONE, -1

    def _remember(self, header: BatchHeader, at: int) -> None:
        known = self._producers.get(header.producer_id)
        if known is None or known.epoch != header.producer_epoch:
            known = self._producers[header.producer_id] = _Producer(header.producer_epoch)
        known.last_sequence = header.last_sequence
        known.batches = [*known.batches, (header.base_sequence, header.last_sequence, at)][-_REMEMBERED:]

    def _write(self, data: bytes) -> int:
        at = self.end_offset
        batch = bytearray(data)
        assign_offsets(batch, 0, at, 0)
        header = parse_header(batch)
        self._batches.append((header, bytes(batch)))
        self.end_offset = header.last_offset + 1
        return at


class FakeTopic:
    """One topic: its id and its partitions."""

    def __init__(self, topic_id: bytes, count: int) -> None:
        self.topic_id = topic_id
        self.logs = [FakeLog() for _ in range(count)]


class FakeKafka:
    """One broker that is a whole cluster. `host` and `port` are where it says that it listens."""

    def __init__(self, *, topics: dict[str, int], transaction_version: int, without: Iterable[ApiKey]) -> None:
        self.host, self.port = "127.0.0.1", 0
        self.auto_create = True
        self.topics: dict[str, FakeTopic] = {}
        self.coordinator = FakeCoordinator(self.log)
        self._made = 0
        self._without = frozenset(without)
        self._transaction_version = transaction_version
        self._changed = asyncio.Event()
        for name, count in topics.items():
            self.create(name, count)
        self._handlers: dict[ApiKey, Callable[[Asked], Any]] = {
            ApiKey.API_VERSIONS: self._api_versions,
            ApiKey.METADATA: self._metadata,
            ApiKey.PRODUCE: self._produce,
            ApiKey.FETCH: self._fetch,
            ApiKey.LIST_OFFSETS: self._list_offsets,
            ApiKey.OFFSET_FOR_LEADER_EPOCH: self._leader_epoch,
            ApiKey.FIND_COORDINATOR: self._find_coordinator,
        } | self.coordinator.handlers

    # what tests do to it

    def create(self, name: str, count: int = 1) -> FakeTopic:
        """Make a topic, with an id of its own."""
        self._made += 1
        topic = self.topics[name] = FakeTopic(self._made.to_bytes(16, "big"), count)
        return topic

    def delete(self, name: str) -> None:
        """Delete a topic."""
        del self.topics[name]

    def log(self, topic: str, partition: int = 0) -> FakeLog:
        """A partition's log."""
        return self.topics[topic].logs[partition]

    def write(self, tp: TopicPartition, *values: bytes) -> None:
        """Append records as if somebody had sent them, in one batch."""
        self.log(*tp).append(encode_batch([Record(n, 1, None, value, ()) for n, value in enumerate(values)]))
        self._something_came()

    # answers

    async def answer(self, asked: Asked) -> tuple[Any, ...] | None:
        """The usual answer; None when Kafka gives none (acks=0)."""
        made = self._handlers[asked.api](asked)
        result: tuple[Any, ...] | None = await made if isinstance(made, Awaitable) else made
        return result

    def _api_versions(self, asked: Asked) -> ApiVersionsResponse:
        return ApiVersionsResponse(
            api_keys=tuple(
                ApiVersion(key, api.min_version, api.max_version)
                for key, api in API.items()
                if key not in self._without
            ),
            finalized_features=(FinalizedFeatureKey("transaction.version", self._transaction_version, 1),),
        )

    def _metadata(self, asked: Asked) -> MetadataResponse:
        request: MetadataRequest = asked.message
        names = (
            list(self.topics)
            if request.topics is None
            else [self._name(t.name or "", t.topic_id) for t in request.topics]
        )
        for name in names:
            if name not in self.topics and request.allow_auto_topic_creation and self.auto_create:
                self.create(name)
        return MetadataResponse(
            brokers=(MetadataResponseBroker(NODE_ID, self.host, self.port),),
            cluster_id="fake",
            controller_id=NODE_ID,
            topics=tuple(self._describe(name) for name in names),
        )

    def _describe(self, name: str) -> MetadataResponseTopic:
        topic = self.topics.get(name)
        if topic is None:
            return MetadataResponseTopic(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name)
        partitions = tuple(
            MetadataResponsePartition(0, number, NODE_ID, 0, (NODE_ID,), (NODE_ID,))
            for number in range(len(topic.logs))
        )
        return MetadataResponseTopic(0, name, topic.topic_id, False, partitions)

    def _produce(self, asked: Asked) -> ProduceResponse | None:
        request: ProduceRequest = asked.message
        answered = []
        for topic in request.topic_data:
            name = self._name(topic.name, topic.topic_id)
            parts = []
            for part in topic.partition_data:
                code, offset = self._append(name, part.index, bytes(part.records or b""), request.transactional_id)
                parts.append(PartitionProduceResponse(part.index, code, offset, -1, 0))
            answered.append(TopicProduceResponse(topic.topic_id, name, tuple(parts)))
        return ProduceResponse(tuple(answered)) if request.acks else None

    def _append(self, name: str, partition: int, data: bytes, transactional_id: str | None) -> tuple[ErrorCode, int]:
        topic = self.topics.get(name)
        if topic is None or partition >= len(topic.logs):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1
        code, offset = topic.logs[partition].append(data)
        if transactional_id is not None and code is ErrorCode.NONE:
            self.coordinator.joins_transaction(transactional_id, TopicPartition(name, partition))
        self._something_came()
        return code, offset

    async def _fetch(self, asked: Asked) -> FetchResponse:
        """As Kafka: waits until there is something to read, for `max_wait_ms` at most."""
        request: FetchRequest = asked.message
        answer, found = self._read(request)
        if not found:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(request.max_wait_ms / 1000):
                    while not found:
                        await self._changed.wait()
                        answer, found = self._read(request)
        return answer

    def _read(self, request: FetchRequest) -> tuple[FetchResponse, bool]:
        found = False
        answered = []
        for topic in request.topics:
            name = self._name(topic.topic, topic.topic_id)
            parts = []
            for part in topic.partitions:
                data = self._read_partition(name, part.partition, part.fetch_offset)
                found = found or bool(data.records) or data.error_code != ErrorCode.NONE
                parts.append(data)
            answered.append(FetchableTopicResponse(topic.topic_id, name, tuple(parts)))
        return FetchResponse(responses=tuple(answered)), found

    def _read_partition(self, name: str, partition: int, offset: int) -> PartitionData:
        topic = self.topics.get(name)
        if topic is None or partition >= len(topic.logs):
            return PartitionData(partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        log = topic.logs[partition]
        if offset > log.end_offset:
            return PartitionData(partition, ErrorCode.OFFSET_OUT_OF_RANGE)
        return PartitionData(partition, 0, log.end_offset, log.end_offset, 0, records=log.read(offset))

    def _list_offsets(self, asked: Asked) -> ListOffsetsResponse:
        request: ListOffsetsRequest = asked.message
        answered = []
        for topic in request.topics:
            parts = [self._offset_at(topic.name, part.partition_index, part.timestamp) for part in topic.partitions]
            answered.append(ListOffsetsTopicResponse(topic.name, tuple(parts)))
        return ListOffsetsResponse(topics=tuple(answered))

    def _offset_at(self, name: str, partition: int, timestamp_ms: int) -> ListOffsetsPartitionResponse:
        topic = self.topics.get(name)
        if topic is None or partition >= len(topic.logs):
            return ListOffsetsPartitionResponse(partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        log = topic.logs[partition]
        if timestamp_ms in (LATEST, EARLIEST):
            return ListOffsetsPartitionResponse(partition, 0, -1, log.end_offset if timestamp_ms == LATEST else 0, 0)
        later = (h for _, h in iter_headers(log.read(0)) if h.max_timestamp_ms >= timestamp_ms)
        first = next(later, None)
        if first is None:
            return ListOffsetsPartitionResponse(partition)
        return ListOffsetsPartitionResponse(partition, 0, first.max_timestamp_ms, first.base_offset, 0)

    def _leader_epoch(self, asked: Asked) -> OffsetForLeaderEpochResponse:
        request: OffsetForLeaderEpochRequest = asked.message
        return OffsetForLeaderEpochResponse(
            topics=tuple(
                OffsetForLeaderTopicResult(
                    topic.topic,
                    tuple(
                        EpochEndOffset(0, p.partition, p.leader_epoch, self.log(topic.topic, p.partition).end_offset)
                        for p in topic.partitions
                    ),
                )
                for topic in request.topics
            )
        )

    def _find_coordinator(self, asked: Asked) -> FindCoordinatorResponse:
        request: FindCoordinatorRequest = asked.message
        found = tuple(Coordinator(key, NODE_ID, self.host, self.port, 0, None) for key in request.coordinator_keys)
        return FindCoordinatorResponse(coordinators=found)

    def _name(self, name: str, topic_id: bytes) -> str:
        """The name a request means that carries a name or, in newer versions, an id; "" when unknown."""
        return name or next((known for known, topic in self.topics.items() if topic.topic_id == topic_id), "")

    def _something_came(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
