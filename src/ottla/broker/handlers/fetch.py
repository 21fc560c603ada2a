"""Fetch, versions 4–18: file bytes to the socket, with long polling and sessions.

KIP-74: `max_bytes` bounds the response and `partition_max_bytes` a partition, but the first batch of the first
partition that has one is always sent, so a reader never gets stuck. KIP-227 sessions, KIP-320 leader epochs, KIP-516
topic ids. A fetch that finds fewer than `min_bytes` waits for appends up to `max_wait_ms`.
"""

import asyncio
from collections.abc import Iterable
from typing import NamedTuple, Protocol

from ottla.base.errors import CorruptDataError, StorageError
from ottla.broker.fetch_sessions import Cached, FetchContext, PartitionKey
from ottla.broker.handlers.fetch_response import PartitionResult, encode_fetch
from ottla.broker.handlers.table import RequestContext, decode_message
from ottla.broker.ports.access import HasAccess
from ottla.broker.ports.identity import HasIdentity
from ottla.broker.ports.partitions import HasPartitions
from ottla.broker.ports.sessions import HasSessions
from ottla.broker.ports.settings import HasConfig
from ottla.broker.ports.topics import HasImage
from ottla.broker.runtime.partitions import Partition
from ottla.broker.runtime.purgatory import DelayedFetch
from ottla.broker.server import Answer, Encoded, Frame, Later
from ottla.log.results import Isolation, Read
from ottla.wire.acls import AclOperation, ResourceType
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.fetch import FetchPartition, FetchRequest

_TOPIC_IDS_FROM = 13


class _Node(HasAccess, HasConfig, HasIdentity, HasImage, HasPartitions, HasSessions, Protocol):
    """What this handler touches."""


class _Outcome(NamedTuple):
    """What one pass over the partitions found."""

    results: list[tuple[PartitionKey, Cached, PartitionResult]]
    size_bytes: int
    #: Whether the answer must go out at once: it has an error or a diverging epoch.
    urgent: bool


def handle(node: _Node, frame: Frame, offset: int, context: RequestContext) -> Answer:
    """Read now, or when there is enough."""
    version = context.api_version
    request: FetchRequest = decode_message(context, frame, offset)
    if request.isolation_level not in (Isolation.READ_UNCOMMITTED, Isolation.READ_COMMITTED):
        return encode_fetch(version, context.correlation_id, ErrorCode.UNKNOWN_SERVER_ERROR, 0, ())
    fetch_context = node.sessions.open(request, uses_topic_ids=version >= _TOPIC_IDS_FROM)
    if isinstance(fetch_context, ErrorCode):
        return encode_fetch(version, context.correlation_id, fetch_context, 0, ())
    fetch = _Fetch(node, request, context, fetch_context)
    return fetch.start()


class _Fetch:
    """One request, read once or, after waiting, several times."""

    def __init__(self, node: _Node, request: FetchRequest, context: RequestContext, fetch: FetchContext) -> None:
        self._node = node
        self._request = request
        self._context = context
        self._fetch = fetch
        #: No other broker has replicas, so only consumers may ask: -1 (-2 in old debug tools).
        self._from_replica = max(request.replica_id, request.replica_state.replica_id) >= 0
        self._isolation = Isolation.READ_COMMITTED if request.isolation_level == 1 else Isolation.READ_UNCOMMITTED
        self._max_bytes = min(request.max_bytes, node.config.int("fetch.max.bytes"))
        #: The response cannot hold more than this, so, as in Kafka, nobody waits for more.
        self._min_bytes = min(request.min_bytes, self._max_bytes)
        self._outcome = _Outcome([], 0, urgent=False)
        #: Topics that may not be read.
        self._refused: frozenset[str] = self._find_refused() if node.access.is_on else frozenset()
        #: While the request waits: where each partition's results are. A request may name a partition twice.
        self._places: dict[Partition, list[int]] = {}

    def _find_refused(self) -> frozenset[str]:
        names = {name for name in (self._topic(key) for key, _ in self._fetch.partitions) if name is not None}
        if not self._from_replica:
            return self._node.access.refused(self._context, AclOperation.READ, ResourceType.TOPIC, names)
        may_follow = self._node.access.allows_cluster(self._context, AclOperation.CLUSTER_ACTION)
        return frozenset() if may_follow else frozenset(names)

    def start(self) -> Answer:
        missing = self.read_again(None)
        if missing <= 0 or self._request.max_wait_ms <= 0 or not self._fetch.partitions:
            return self._encode()
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        for at, (key, _) in enumerate(self._fetch.partitions):
            found = self._find(key)
            if isinstance(found, Partition):
                self._places.setdefault(found, []).append(at)
        committed = self._isolation is Isolation.READ_COMMITTED
        DelayedFetch(future, self, self._places, missing, self._request.max_wait_ms, committed=committed)
        return Later(future, lambda _: self._encode())

    def read_again(self, changed: Iterable[Partition] | None) -> int:
        """Read these partitions, or all (None). Returns how many bytes are missing; 0 when the answer must go out."""
        if changed is None:
            self._outcome = self._read()
        else:
            for partition in changed:
                for at in self._places[partition]:
                    self._replace(at)
        return 0 if self._outcome.urgent else self._min_bytes - self._outcome.size_bytes

    def _replace(self, at: int) -> None:
        """Read one partition again. The others keep their results and their share of the response's size."""
        results, size_bytes, urgent = self._outcome
        key, cached, before = results[at]
        others = size_bytes - before.read.size_bytes
        result = self._read_one(key, cached.request, max(self._max_bytes - others, 0), first=others == 0)
        results[at] = (key, cached, result)
        self._outcome = _Outcome(results, others + result.read.size_bytes, urgent or _is_urgent(result))

    def _encode(self) -> Encoded:
        told = []
        for key, cached, result in self._outcome.results:
            read = result.read
            news = self._fetch.is_news(cached, read.high_watermark, read.log_start_offset)
            if news or read.slices or read.error is not ErrorCode.NONE or result.diverging is not None:
                told.append(result)
            if read.slices:
                self._fetch.served(key)
        context = self._context
        return encode_fetch(context.api_version, context.correlation_id, ErrorCode.NONE, self._fetch.session_id, told)

    def _read(self) -> _Outcome:
        results = []
        left, total, urgent = self._max_bytes, 0, False
        for key, cached in self._fetch.partitions:
            result = self._read_one(key, cached.request, left, first=total == 0)
            size = result.read.size_bytes
            total += size
            left = max(left - size, 0)
            urgent = urgent or _is_urgent(result)
            results.append((key, cached, result))
        return _Outcome(results, total, urgent)

    def _read_one(self, key: PartitionKey, asked: FetchPartition, left: int, *, first: bool) -> PartitionResult:
        partition = self._find(key)
        if not isinstance(partition, Partition):
            # As in Kafka, it has no list of aborted transactions only where the log was asked.
            failed = _failed(partition)._replace(aborted=())
            return PartitionResult(key.topic, key.topic_id, key.partition, failed)
        if self._from_replica:
            return PartitionResult(key.topic, key.topic_id, key.partition, _failed(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        epoch = partition.leader_epoch
        if asked.current_leader_epoch not in (-1, epoch):
            older = asked.current_leader_epoch < epoch
            error = ErrorCode.FENCED_LEADER_EPOCH if older else ErrorCode.UNKNOWN_LEADER_EPOCH
            leader = (self._node.identity.node_id, epoch)
            return PartitionResult(key.topic, key.topic_id, key.partition, _failed(error), leader=leader)
        try:
            return self._read_log(key, partition, asked, left, first=first)
        except (CorruptDataError, StorageError) as fault:
            error = self._node.partitions.faults.report(partition.tp, fault)
            return PartitionResult(key.topic, key.topic_id, key.partition, _failed(error))

    def _read_log(
        self, key: PartitionKey, partition: Partition, asked: FetchPartition, left: int, *, first: bool
    ) -> PartitionResult:
        if asked.last_fetched_epoch > partition.leader_epoch:
            # For such a reader it cannot be told where its log and ours part.
            return PartitionResult(key.topic, key.topic_id, key.partition, _failed(ErrorCode.OFFSET_OUT_OF_RANGE))
        diverging = _diverging(partition, asked)
        if diverging is not None:
            empty = partition.log.read(asked.fetch_offset, 0, isolation=self._isolation, min_one_batch=False)
            read = empty._replace(error=ErrorCode.NONE, slices=())
            return PartitionResult(key.topic, key.topic_id, key.partition, read, diverging)
        read = partition.log.read(
            asked.fetch_offset,
            min(left, max(asked.partition_max_bytes, 0)),
            isolation=self._isolation,
            min_one_batch=first,
        )
        if read.error is not ErrorCode.NONE:
            read = _failed(read.error)
        return PartitionResult(key.topic, key.topic_id, key.partition, read)

    def _find(self, key: PartitionKey) -> Partition | ErrorCode:
        topic = self._topic(key)
        if topic is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        if topic in self._refused:
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return self._node.partitions.find(topic, key.partition) or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def _topic(self, key: PartitionKey) -> str | None:
        """The topic's name; None for an id that nobody has."""
        if self._context.api_version < _TOPIC_IDS_FROM:
            return key.topic
        image = self._node.image.topics_by_id.get(key.topic_id)
        return None if image is None else image.name


def _is_urgent(result: PartitionResult) -> bool:
    return result.read.error is not ErrorCode.NONE or result.diverging is not None


def _failed(error: ErrorCode) -> Read:
    return Read(error, (), -1, -1, -1)


def _diverging(partition: Partition, asked: FetchPartition) -> tuple[int, int] | None:
    """Where the reader's log and ours part, if the reader names the epoch of its last record (KIP-595)."""
    if asked.last_fetched_epoch < 0:
        return None
    end = partition.log.end_offset_for_epoch(asked.last_fetched_epoch)
    if end.leader_epoch < asked.last_fetched_epoch or end.end_offset < asked.fetch_offset:
        return end.leader_epoch, end.end_offset
    return None
