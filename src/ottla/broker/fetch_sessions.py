"""Incremental fetch sessions (KIP-227): a client names its partitions once, and after that only what changes.

A session remembers for each partition what the client asked and what it was told last. So a request carries only
changes, and a response only partitions with news. There are `max.incremental.fetch.session.cache.slots` sessions at
most. When the cache is full, a session goes whose connection has gone, or the least recently used one if it was idle
for two minutes; otherwise the request is answered without a session. (A client may go on with its session on another
connection, so it stays as long as there is room.)

The cache is also full when its sessions have MAX_CACHED_PARTITIONS. A session that would grow beyond that, or beyond
MAX_SESSION_PARTITIONS, ends: its client hears that it is not known, and asks for everything again.

A fetch of many partitions that waits for records holds as much again, for as long as its client likes. All of them
together have MAX_CACHED_PARTITIONS, too; beyond that one is answered at once.
"""

import random
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Final, NamedTuple

from ottla.base.clock import Clock
from ottla.base.limits import MAX_CACHED_PARTITIONS, MAX_SESSION_PARTITIONS
from ottla.broker import session as connections
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

    __slots__ = ("connection", "counted", "epoch", "partitions", "session_id", "used_ms", "uses_topic_ids")

    def __init__(
        self, session_id: int, uses_topic_ids: bool, now_ms: int, connection: connections.Session | None
    ) -> None:
        self.session_id = session_id
        self.epoch = 1
        self.used_ms = now_ms
        self.uses_topic_ids = uses_topic_ids
        self.partitions: OrderedDict[PartitionKey, Cached] = OrderedDict()
        #: Partitions that count for it: those that it has, and those of requests that are being read.
        self.counted = 0
        #: By which its client came last.
        self.connection = connection

    @property
    def is_abandoned(self) -> bool:
        """Whether the connection by which its client came last has gone."""
        return self.connection is not None and self.connection.is_gone


class FetchContext:
    """What one request fetches, and which of the results its response carries.

    The partitions are there when `FetchSessions.fill` has gone through; `size` says before how many there may be. As in
    Apache Kafka, one that is named again has the place where it was named first, and is what it was named last.
    """

    def __init__(self, session: Session | None, request: FetchRequest, named: int, *, full: bool) -> None:
        self.session = session
        self.request = request
        self.named = named
        self.partitions: list[tuple[PartitionKey, Cached]] = []
        self.size = named if session is None else named + len(session.partitions)
        self.full = full
        #: Whether `fill` has begun, and will end what it cannot take over.
        self.is_begun = False
        self.session_id = session.session_id if session is not None else NO_SESSION

    def is_news(self, cached: Cached, high_watermark: int, log_start_offset: int) -> bool:
        """Whether the response must name a partition that has no records and no error. Remembers what it says."""
        if self.session is None:
            return True
        news = self.full or cached.high_watermark != high_watermark or cached.log_start_offset != log_start_offset
        cached.high_watermark, cached.log_start_offset = high_watermark, log_start_offset
        return news

    def served(self, key: PartitionKey) -> None:
        """Move a partition that gave records to the end, so that others come first next time."""
        if self.session is not None and key in self.session.partitions:
            self.session.partitions.move_to_end(key)


class FetchSessions:
    """The sessions of one broker."""

    def __init__(
        self,
        slots: int,
        clock: Clock,
        rng: random.Random,
        *,
        max_partitions: int = MAX_CACHED_PARTITIONS,
        max_of_one: int = MAX_SESSION_PARTITIONS,
    ) -> None:
        """`max_partitions`: of all sessions together, and of wide fetches that wait; `max_of_one`: of one session."""
        self._slots = slots
        self._max_partitions = max_partitions
        self._max_of_one = max_of_one
        self._clock = clock
        self._random = rng
        #: Least recently used first.
        self._sessions: OrderedDict[int, Session] = OrderedDict()
        #: What counts for all of them.
        self.cached_partitions = 0
        #: Partitions of wide fetches that wait, with a session or without, and how many there may be.
        self.waiting_partitions = 0
        self.max_waiting_partitions = max_partitions

    def __len__(self) -> int:
        return len(self._sessions)

    def open(
        self, request: FetchRequest, *, uses_topic_ids: bool, connection: connections.Session | None = None
    ) -> FetchContext | ErrorCode:
        """The context of a request, or the error that refuses it. Whoever calls has it filled."""
        session_id, epoch = request.session_id, request.session_epoch
        named = sum(len(topic.partitions) for topic in request.topics)
        session = self._sessions.get(session_id)
        if epoch in (_INITIAL_EPOCH, _FINAL_EPOCH):
            if session is not None:
                self._end(session)
            wants_one = epoch == _INITIAL_EPOCH and named > 0
            created = self._create(uses_topic_ids, named, connection) if wants_one else None
            return FetchContext(created, request, named, full=True)
        if session is None:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if session.epoch != epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        if session.uses_topic_ids != uses_topic_ids:
            return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        if not self._may_grow(session, request, named):
            self._end(session)
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        session.epoch = 1 if session.epoch == _MAX_EPOCH else session.epoch + 1
        session.used_ms = self._clock.monotonic_ms()
        session.connection = connection
        self._sessions.move_to_end(session.session_id)
        self._count(session, named)
        return FetchContext(session, request, named, full=False)

    def fill(self, context: FetchContext) -> Iterator[None]:
        """Take over what the request says, a partition in each step. A session ends that did not hear all of it."""
        context.is_begun = True
        session, is_filled = context.session, False
        try:
            yield from self._update(context, session)
            is_filled = True
        finally:
            if session is not None:
                self._count(session, -context.named)
                if not is_filled:
                    self._end_if_there(session)

    def given_up(self, context: FetchContext) -> None:
        """Nobody reads the request any more. Its session ends if it has heard nothing of it."""
        if context.session is not None and not context.is_begun:
            self._end_if_there(context.session)

    def begin_to_wait(self, context: FetchContext) -> bool:
        """Whether a fetch of many partitions may wait. If so, whoever calls says when it does no more."""
        partitions = len(context.partitions)
        if self.waiting_partitions + partitions > self.max_waiting_partitions:
            return False
        self.waiting_partitions += partitions
        return True

    def end_waiting(self, context: FetchContext) -> None:
        """A fetch that had begun to wait waits no more."""
        self.waiting_partitions -= len(context.partitions)

    def unanswered(self, context: FetchContext) -> int:
        """The client is throttled, and its answer empty. The id of its session; one that would be new is none."""
        if not context.full:
            return context.session_id
        session = self._sessions.get(context.session_id)
        if session is not None:
            self._end(session)
        return NO_SESSION

    def _update(self, context: FetchContext, session: Session | None) -> Iterator[None]:
        known: dict[PartitionKey, Cached] = {} if session is None else session.partitions
        for key, partition in _named(context.request):
            named = Cached(partition)
            cached = known.setdefault(key, named)
            if cached is not named:
                cached.request = partition
            elif session is not None:
                self._count(session, 1)
            yield
        if session is not None and not context.full:
            for topic in context.request.forgotten_topics_data:
                for number in topic.partitions:
                    if known.pop(PartitionKey(topic.topic_id, topic.topic, number), None) is not None:
                        self._count(session, -1)
                    yield
        context.partitions = list(known.items())

    def _create(self, uses_topic_ids: bool, partitions: int, connection: connections.Session | None) -> Session | None:
        now_ms = self._clock.monotonic_ms()
        if partitions > self._max_of_one or not self._has_room(partitions, None):
            return None
        session_id = self._random.randint(1, 2**31 - 1)
        while session_id in self._sessions:
            session_id = self._random.randint(1, 2**31 - 1)
        session = self._sessions[session_id] = Session(session_id, uses_topic_ids, now_ms, connection)
        self._count(session, partitions)
        return session

    def _may_grow(self, session: Session, request: FetchRequest, named: int) -> bool:
        """Whether there is room for the partitions that a request of a session names, as far as they are new."""
        if not named:
            return True
        if session.counted + named > self._max_of_one or self.cached_partitions + named > self._max_partitions:
            named = sum(key not in session.partitions for key, _ in _named(request))
        return session.counted + named <= self._max_of_one and self._has_room(named, session)

    def _has_room(self, partitions: int, session: Session | None) -> bool:
        """Make room for so many more partitions, of this session or of a new one (None); whether there is any."""
        slots = self._slots if session is not None else self._slots - 1

        def is_short() -> bool:
            return len(self._sessions) > slots or self.cached_partitions + partitions > self._max_partitions

        if not is_short():
            return True
        now_ms = self._clock.monotonic_ms()
        abandoned = [each for each in self._sessions.values() if each.is_abandoned]
        idle = (each for each in list(self._sessions.values()) if now_ms - each.used_ms >= _EVICTION_MS)
        for each in chain(abandoned, idle):
            if each is not session and each.session_id in self._sessions:
                self._end(each)
                if not is_short():
                    return True
        return False

    def _count(self, session: Session, partitions: int) -> None:
        """So many more count for a session, or fewer. No-op for one that has ended."""
        if self._sessions.get(session.session_id) is session:
            session.counted += partitions
            self.cached_partitions += partitions

    def _end_if_there(self, session: Session) -> None:
        if self._sessions.get(session.session_id) is session:
            self._end(session)

    def _end(self, session: Session) -> None:
        del self._sessions[session.session_id]
        self.cached_partitions -= session.counted


def _named(request: FetchRequest) -> Iterable[tuple[PartitionKey, FetchPartition]]:
    for topic in request.topics:
        for partition in topic.partitions:
            yield PartitionKey(topic.topic_id or NULL_UUID, topic.topic, partition.partition), partition
