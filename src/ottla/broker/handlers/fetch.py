"""Fetch, versions 4–18: file bytes to the socket, with long polling and sessions.

KIP-74: `max_bytes` bounds the response and `partition_max_bytes` a partition, but the first batch of the first
partition that has one is always sent, so a reader never gets stuck. KIP-227 sessions, KIP-320 leader epochs, KIP-516
topic ids. A fetch that finds fewer than `min_bytes` waits for appends up to `max_wait_ms`. One of very many partitions
is read and encoded in slices, while others are served; so is one of very many aborted transactions, which have their
share of `max_bytes`.
"""

import asyncio
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple, Protocol

from ottla.base.errors import CorruptDataError, StorageError, kept
from ottla.base.limits import FRAME_BYTES_AT_ONCE
from ottla.base.types import TopicPartition
from ottla.broker.answers import Answer, Encoded, Frame, Later
from ottla.broker.fetch_sessions import Cached, FetchContext, PartitionKey
from ottla.broker.handlers.encoding import as_it_is
from ottla.broker.handlers.fetch_response import (
    ABORTED_BYTES,
    PartitionResult,
    encode_fetch,
    encode_fetch_steps,
    response_bytes,
)
from ottla.broker.handlers.large import slowly
from ottla.broker.handlers.table import RequestContext, decode_message
from ottla.broker.outbox import Piece
from ottla.broker.ports.access import HasAccess
from ottla.broker.ports.answers import HasAnswers
from ottla.broker.ports.identity import HasIdentity
from ottla.broker.ports.partitions import HasPartitions
from ottla.broker.ports.quotas import counted
from ottla.broker.ports.sessions import HasSessions
from ottla.broker.ports.settings import HasConfig
from ottla.broker.ports.slices import HasSlices
from ottla.broker.ports.topics import HasImage
from ottla.broker.runtime.encoding import AnswerTooLargeError, MadeAnswer
from ottla.broker.runtime.partition import Partition
from ottla.broker.runtime.purgatory import DelayedFetch
from ottla.log.results import Isolation, Read
from ottla.wire.acls import AclOperation, ResourceType
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.fetch import FetchPartition, FetchRequest

_TOPIC_IDS_FROM = 13
#: A fetch of more partitions is read in slices: a partition takes some ten microseconds of the event loop.
AT_ONCE: Final = 200
#: So is one of more aborted transactions: a half of a microsecond each. It is known when they are read.
ABORTS_AT_ONCE: Final = 1_000
#: Partitions whose results are freed in one step: a third of a microsecond each.
_FREED_AT_ONCE: Final = 200


class _Node(HasAccess, HasAnswers, HasConfig, HasIdentity, HasImage, HasPartitions, HasSessions, HasSlices, Protocol):
    """What this handler touches."""


class _Outcome(NamedTuple):
    """What one pass over the partitions found."""

    results: list[tuple[PartitionKey, Cached, PartitionResult]]
    size_bytes: int
    #: Whether the answer must go out at once: it has an error or a diverging epoch.
    urgent: bool


def handle(node: _Node, frame: Frame, offset: int, context: RequestContext) -> Answer:
    """Read now, or when there is enough."""
    if len(frame) > FRAME_BYTES_AT_ONCE:
        work = slowly(node.slices, context, frame, offset, lambda request: _carry_out(node, request, context))
        return Later(node.slices.start(work, "a large fetch"), as_it_is)
    return _carry_out(node, decode_message(context, frame, offset), context)


def _carry_out(node: _Node, request: FetchRequest, context: RequestContext) -> Answer:
    version = context.api_version
    if request.isolation_level not in (Isolation.READ_UNCOMMITTED, Isolation.READ_COMMITTED):
        return _refuse(context, ErrorCode.UNKNOWN_SERVER_ERROR)
    by_id = version >= _TOPIC_IDS_FROM
    fetch_context = node.sessions.open(request, uses_topic_ids=by_id, connection=context.session)
    if isinstance(fetch_context, ErrorCode):
        return _refuse(context, fetch_context)
    fetch = _Fetch(node, request, context, fetch_context)
    return fetch.start_slowly() if fetch_context.size > AT_ONCE else fetch.start()


def _refuse(context: RequestContext, error: ErrorCode) -> Encoded:
    throttle_ms = 0 if context.charge is None else context.charge.requested()
    return encode_fetch(context.api_version, context.correlation_id, error, 0, (), throttle_ms)


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
        #: What sessions knew of the partitions before this answer, where quotas may take it back.
        self._before: list[tuple[Cached, int, int]] = []
        if context.charge is not None:
            self._max_bytes = min(self._max_bytes, context.charge.most_fetch_bytes)
        #: The response cannot hold more than this, so, as in Kafka, nobody waits for more.
        self._min_bytes = min(request.min_bytes, self._max_bytes)
        self._outcome = _Outcome([], 0, urgent=False)
        #: Topics that may not be read.
        self._refused: set[str] = set()
        #: Aborted transactions in the results that there are so far.
        self._aborts = 0
        #: While the request waits: where each partition's result is.
        self._places: dict[Partition, int] = {}
        self._is_begun = False
        #: Whether it is read in slices; then what changed while it waited, None for "perhaps all".
        self._is_slow = False
        self._changed: Iterable[Partition] | None = None

    def _begin(self) -> Iterator[None]:
        """Learn which partitions are asked for, and which of their topics may not be read."""
        node, context = self._node, self._context
        self._is_begun = True
        yield from node.sessions.fill(self._fetch)
        if not node.access.is_on or not self._fetch.partitions:
            return
        may_follow = self._from_replica and node.access.allows_cluster(context, AclOperation.CLUSTER_ACTION)
        asked: set[str] = set()
        for key, _ in self._fetch.partitions:
            name = self._topic(key)
            if name is not None and name not in asked:
                asked.add(name)
                if not self._from_replica:
                    self._refused |= node.access.refused(context, AclOperation.READ, ResourceType.TOPIC, (name,))
                elif not may_follow:
                    self._refused.add(name)
            yield

    def start(self) -> Answer:
        """Read all partitions at once."""
        for _ in self._begin():
            pass
        missing = self.read_again(None)
        if self._is_slow:
            return self.start_slowly()
        if missing <= 0 or self._request.max_wait_ms <= 0 or not self._fetch.partitions:
            return self._encode()
        delayed, future = self._delayed()
        for at in range(len(self._fetch.partitions)):
            self._place(at, delayed)
        delayed.wait(missing, self._request.max_wait_ms)
        return Later(future, lambda _: self._go_on_slowly() if self._is_slow else self._encode())

    def start_slowly(self) -> Answer:
        """Read them in slices."""
        self._is_slow = True
        reading = self._node.slices.start(self._slowly(), "a fetch of many partitions")
        reading.add_done_callback(lambda _: self._node.sessions.given_up(self._fetch))  # before its first step
        return Later(reading, self._charged)

    async def _slowly(self) -> list[Piece] | AnswerTooLargeError:
        slices, max_wait_ms = self._node.slices, self._request.max_wait_ms
        if not self._is_begun:
            await slices.run(counted(self._context, self._begin()))
        delayed, future = self._delayed()
        try:
            await slices.run(counted(self._context, self._read_steps(delayed)))
            if self._missing_bytes > 0 and max_wait_ms > 0 and self._node.sessions.begin_to_wait(self._fetch):
                try:
                    delayed.wait(self._missing_bytes, max_wait_ms)
                    await future
                finally:
                    self._node.sessions.end_waiting(self._fetch)
                await slices.run(counted(self._context, self._steps_again(self._changed)))
        except asyncio.CancelledError:  # the client has gone, perhaps with many such fetches
            slices.start(slices.run(self._let_go()), "letting go of a fetch of many partitions")
            raise
        finally:
            future.cancel()
        return await self._encoded()

    def _go_on_slowly(self) -> Later:
        """It has waited, and what it is woken for has very many aborted transactions."""

        async def reading() -> list[Piece] | AnswerTooLargeError:
            await self._node.slices.run(counted(self._context, self._steps_again(self._changed)))
            return await self._encoded()

        return Later(self._node.slices.start(reading(), "a fetch of many aborted transactions"), self._charged)

    async def _encoded(self) -> list[Piece] | AnswerTooLargeError:
        pieces, context = list[Piece](), self._context
        made = self._node.answers.begin(context.api_key, context.api_version, context.client_id)
        try:
            await self._node.slices.run(counted(context, self._encode_steps(pieces, made)))
        except AnswerTooLargeError as fault:
            return kept(fault)
        finally:
            made.end()
        return pieces

    def _delayed(self) -> tuple[DelayedFetch, asyncio.Future[object]]:
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        is_committed = self._isolation is Isolation.READ_COMMITTED
        return DelayedFetch(future, self, self._node.partitions.wakes, committed=is_committed), future

    def _place(self, at: int, delayed: DelayedFetch) -> None:
        """Note where a partition's results are, and watch it."""
        found = self._find(self._fetch.partitions[at][0])
        if isinstance(found, Partition):
            self._places[found] = at
            delayed.watch(found)

    def read_again(self, changed: Iterable[Partition] | None) -> int:
        """Read these partitions, or all (None). Returns how many bytes are missing; 0 when the answer must go out.

        A slow fetch is not read here, but after it. So is one that turns out to have many aborted transactions.
        """
        if not self._is_slow:
            for _ in self._steps_again(changed):
                if self._aborts > ABORTS_AT_ONCE:
                    break
            else:
                return self._missing_bytes
        self._is_slow, self._changed = True, changed
        return 0

    def _steps_again(self, changed: Iterable[Partition] | None) -> Iterator[None]:
        return self._read_steps(None) if changed is None else self._changed_steps(changed)

    @property
    def _missing_bytes(self) -> int:
        return 0 if self._outcome.urgent else self._min_bytes - self._outcome.size_bytes

    def _changed_steps(self, changed: Iterable[Partition]) -> Iterator[None]:
        for partition in changed:
            self._replace(self._places[partition])
            yield

    def _replace(self, at: int) -> None:
        """Read one partition again. The others keep their results and their share of the response's size."""
        results, size_bytes, urgent = self._outcome
        key, cached, before = results[at]
        others = size_bytes - before.read.size_bytes
        self._aborts -= _aborts(before)
        left = max(self._max_bytes - others - self._aborts * ABORTED_BYTES, 0)
        result = self._read_one(key, cached.request, left, first=others == 0)
        self._aborts += _aborts(result)
        results[at] = (key, cached, result)
        self._outcome = _Outcome(results, others + result.read.size_bytes, urgent or _is_urgent(result))

    def _encode(self) -> Encoded:
        version, correlation_id = self._context.api_version, self._context.correlation_id
        session_id, told = self._fetch.session_id, list(self._told())
        encoded = encode_fetch(version, correlation_id, ErrorCode.NONE, session_id, told, report=self._report)
        return encoded if self._context.charge is None else self._charged(encoded)

    def _charged(self, encoded: list[Piece]) -> Encoded:
        """An answer that the client's quota has no room for is not sent, but an empty one: it has to ask again."""
        context = self._context
        if context.charge is None:
            return encoded
        throttle_ms = context.charge.fetched(response_bytes(encoded, context.api_version))
        if not throttle_ms:
            return encoded
        for cached, high_watermark, log_start_offset in self._before:
            cached.high_watermark, cached.log_start_offset = high_watermark, log_start_offset
        session_id = self._node.sessions.unanswered(self._fetch)
        return encode_fetch(context.api_version, context.correlation_id, ErrorCode.NONE, session_id, (), throttle_ms)

    def _encode_steps(self, pieces: list[Piece], made: MadeAnswer) -> Iterator[None]:
        version, correlation_id = self._context.api_version, self._context.correlation_id
        session_id, told = self._fetch.session_id, list[PartitionResult]()
        for result in self._told():
            told.append(result)
            yield
        yield from encode_fetch_steps(
            version, correlation_id, ErrorCode.NONE, session_id, told, pieces, report=self._report, take=made.take
        )
        told.clear()
        yield from self._let_go()

    def _let_go(self) -> Iterator[None]:
        """What was asked and read is freed some at a time, and not at once when the answer is sent."""
        self._request = self._fetch.request = self._request._replace(topics=())
        results, partitions = self._outcome.results, self._fetch.partitions
        self._places.clear()
        while results or partitions:
            del results[-_FREED_AT_ONCE:], partitions[-_FREED_AT_ONCE:]
            yield

    def _report(self, result: PartitionResult, fault: StorageError) -> ErrorCode:
        """The disk does not give the records that were found."""
        topic = self._topic(PartitionKey(result.topic_id, result.topic, result.partition))
        return self._node.partitions.faults.report(TopicPartition(topic or "", result.partition), fault)

    def _told(self) -> Iterator[PartitionResult]:
        """The results that the answer carries."""
        is_charged = self._context.charge is not None
        for key, cached, result in self._outcome.results:
            if is_charged:
                self._before.append((cached, cached.high_watermark, cached.log_start_offset))
            read = result.read
            news = self._fetch.is_news(cached, read.high_watermark, read.log_start_offset)
            if read.slices:
                self._fetch.served(key)
            if news or read.slices or read.error is not ErrorCode.NONE or result.diverging is not None:
                yield result

    def _read_steps(self, watching: DelayedFetch | None) -> Iterator[None]:
        """Read all partitions; have them watched from then on."""
        results: list[tuple[PartitionKey, Cached, PartitionResult]] = []
        left, total, urgent = self._max_bytes, 0, False
        self._aborts = 0
        for at, (key, cached) in enumerate(self._fetch.partitions):
            if watching is not None:
                self._place(at, watching)
            result = self._read_one(key, cached.request, left, first=total == 0)
            size, aborts = result.read.size_bytes, _aborts(result)
            total += size
            self._aborts += aborts
            left = max(left - size - aborts * ABORTED_BYTES, 0)
            urgent = urgent or _is_urgent(result)
            results.append((key, cached, result))
            yield
        self._outcome = _Outcome(results, total, urgent)

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
    """Whether the answer does not wait for `min_bytes`. As in Kafka it does not where more is in a later segment."""
    read = result.read
    return read.error is not ErrorCode.NONE or result.diverging is not None or read.has_more


def _aborts(result: PartitionResult) -> int:
    """How many aborted transactions it names."""
    aborted = result.read.aborted
    return 0 if aborted is None else len(aborted)


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
