"""Incremental fetch sessions (KIP-227): a client names its partitions once, and after that only what changes.

A session remembers for each partition what the client asked and what it was told last. So a request carries only
changes, and a response only partitions with news. There are `max.incremental.fetch.session.cache.slots` sessions at
most. When the cache is full, the least recently used session goes if it was idle for two minutes; otherwise the request
is answered without a session.
"""

import random
from collections import OrderedDict
from collections.abc import Iterable
from typing import Final, NamedTuple

from ottla.base.clock import Clock
from ottla.wire.codec import NULL_UUID
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.fetch import FetchPartition, FetchRequest

#: `min.incremental.fetch.session.eviction.ms` of Kafka.
_EVICTION_MS: Final = 120_000
#: Session id of a request without a session; epochs that open a session, and that want none.
NO_SESSION: Final = 0
_INITIAL_EPOCH: Final = 0
_FINAL_EPOCH: Final = -1
_MAX_EPOCH: Final = 2**31 - 1


class PartitionKey(NamedTuple):
    """A partition as the request names it: by name up to version 12, by id after that."""

    topic_id: bytes
    topic: str
    partition: int


class Cached:
    """One partition of a session: what is asked, and what the client was told last."""

    __slots__ = ("high_watermark", "log_start_offset", "request")

    def __init__(self, request: FetchPartition) -> None:
        self.request = request
        self.high_watermark = -1
        self.log_start_offset = -1


class Session:
    """One client's session."""

    __slots__ = ("epoch", "partitions", "session_id", "used_ms", "uses_topic_ids")

    def __init__(self, session_id: int, uses_topic_ids: bool, now_ms: int) -> None:
        self.session_id = session_id
        self.epoch = 1
        self.used_ms = now_ms
        self.uses_topic_ids = uses_topic_ids
        self.partitions: OrderedDict[PartitionKey, Cached] = OrderedDict()


class FetchContext:
    """What one request fetches, and which of the results its response carries."""

    def __init__(self, session: Session | None, partitions: Iterable[tuple[PartitionKey, Cached]], full: bool) -> None:
        self._session = session
        self.partitions = list(partitions)
        self.full = full
        self.session_id = session.session_id if session is not None else NO_SESSION

    def is_news(self, cached: Cached, high_watermark: int, log_start_offset: int) -> bool:
        """Whether the response must name a partition that has no records and no error. Remembers what it says."""
        if self._session is None:
            return True
        news = self.full or cached.high_watermark != high_watermark or cached.log_start_offset != log_start_offset
        cached.high_watermark, cached.log_start_offset = high_watermark, log_start_offset
        return news

    def served(self, key: PartitionKey) -> None:
        """Move a partition that gave records to the end, so that others come first next time."""
        if self._session is not None and key in self._session.partitions:
            self._session.partitions.move_to_end(key)


class FetchSessions:
    """The sessions of one broker."""

    def __init__(self, slots: int, clock: Clock, rng: random.Random) -> None:
        self._slots = slots
        self._clock = clock
        self._random = rng
        #: Least recently used first.
        self._sessions: OrderedDict[int, Session] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, request: FetchRequest, *, uses_topic_ids: bool) -> FetchContext | ErrorCode:
        """The context of a request, or the error that refuses it."""
        session_id, epoch = request.session_id, request.session_epoch
        if epoch in (_INITIAL_EPOCH, _FINAL_EPOCH):
            self._sessions.pop(session_id, None)
            wanted = [(key, Cached(partition)) for key, partition in _named(request)]
            session = self._create(uses_topic_ids) if epoch == _INITIAL_EPOCH and wanted else None
            if session is not None:
                session.partitions.update(wanted)
            return FetchContext(session, wanted, full=True)
        session = self._sessions.get(session_id)
        if session is None:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if session.epoch != epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        if session.uses_topic_ids != uses_topic_ids:
            return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        self._update(session, request)
        return FetchContext(session, session.partitions.items(), full=False)

    def unanswered(self, context: FetchContext) -> int:
        """The client is throttled, and its answer empty. The id of its session; one that would be new is none."""
        if not context.full:
            return context.session_id
        self._sessions.pop(context.session_id, None)
        return NO_SESSION

    def _update(self, session: Session, request: FetchRequest) -> None:
        for key, partition in _named(request):
            cached = session.partitions.get(key)
            if cached is None:
                session.partitions[key] = Cached(partition)
            else:
                cached.request = partition
        for topic in request.forgotten_topics_data:
            for number in topic.partitions:
                session.partitions.pop(PartitionKey(topic.topic_id, topic.topic, number), None)
        session.epoch = 1 if session.epoch == _MAX_EPOCH else session.epoch + 1
        session.used_ms = self._clock.monotonic_ms()
        self._sessions.move_to_end(session.session_id)

    def _create(self, uses_topic_ids: bool) -> Session | None:
        now_ms = self._clock.monotonic_ms()
        if len(self._sessions) >= self._slots:
            oldest = next(iter(self._sessions.values()), None)
            if oldest is None or now_ms - oldest.used_ms < _EVICTION_MS:
                return None
            del self._sessions[oldest.session_id]
        session_id = self._random.randint(1, 2**31 - 1)
        while session_id in self._sessions:
            session_id = self._random.randint(1, 2**31 - 1)
        session = self._sessions[session_id] = Session(session_id, uses_topic_ids, now_ms)
        return session


def _named(request: FetchRequest) -> Iterable[tuple[PartitionKey, FetchPartition]]:
    for topic in request.topics:
        for partition in topic.partitions:
            yield PartitionKey(topic.topic_id or NULL_UUID, topic.topic, partition.partition), partition
