"""Where records wait to be sent: one queue of batches a partition.

Users' threads append to the batch that fills; the core takes whole batches. Nobody calls this while somebody else does:
the shell holds its one lock around every call, for a few microseconds each. What needs no lock says so.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from ottla.base.rng import Rng
from ottla.base.types import TopicPartition
from ottla.client.core.producer.batch import ProducerBatch
from ottla.client.core.producer.outcome import WHOLE_BATCH, Outcome
from ottla.client.core.producer.partitioner import Partitioner, StickyPartition, by_key
from ottla.client.errors import IllegalStateError, RecordTooLargeError, UnknownTopicOrPartitionError
from ottla.wire.batch import HEADER_BYTES, RECORD_OVERHEAD_BYTES
from ottla.wire.errors import ErrorCode
from ottla.wire.records import BatchBuilder

Headers = Iterable[tuple[str, bytes | None]]
#: Makes what the user gets for a record: (outcome of its batch, place in the batch, timestamp_ms).
DeliveryMaker = Callable[[Outcome, int, int], Any]
#: Called with what the user got for the record, when its fate is known.
OnDelivery = Callable[[Any], object]

NO_TIMESTAMP_MS = -1
#: The partition of a key in a topic that is not known. While a thread goes on with it the topic may become known: then
#: it must not mean "any". No partitioner of a user's returns it by mistake.
NOT_KNOWN = -(2**63)


class Limits(NamedTuple):
    """The configured sizes, in bytes."""

    batch_size: int
    buffer_memory: int
    max_request_size: int


class PartitionQueue:
    """The batches of one partition: the one that fills, and those that are full or come back to be repeated."""

    __slots__ = ("count", "open", "ready", "tp")

    def __init__(self, tp: TopicPartition) -> None:
        self.tp = tp
        self.open: ProducerBatch | None = None
        self.ready: deque[ProducerBatch] = deque()
        self.count = 0

    @property
    def first(self) -> ProducerBatch | None:
        """The batch that would be taken next."""
        return self.ready[0] if self.ready else self.open


class _Topic:
    __slots__ = ("count", "queues", "sticky", "sticky_queue", "used_s")

    def __init__(self, sticky: StickyPartition, used_s: float) -> None:
        self.queues: list[PartitionQueue] = []
        #: How many of them the topic has now.
        self.count = 0
        self.sticky = sticky
        #: The queue of `sticky`'s partition, at hand for the most frequent path.
        self.sticky_queue: PartitionQueue | None = None
        #: When a batch was last begun.
        self.used_s = used_s


class Accumulator:
    """All unsent and unanswered batches of one producer."""

    def __init__(
        self,
        limits: Limits,
        rng: Rng,
        delivery: DeliveryMaker,
        *,
        partitioner: Partitioner | None = None,
        ignore_keys: bool = False,
        check: Callable[[], object] = lambda: None,
    ) -> None:
        """`check` raises when no batch may be begun. When that is so, `close_all` has been called."""
        self._limits = limits
        self._rng = rng
        self._delivery = delivery
        #: Chooses the partition of a record with a key (or of any, if the user gave it); None when any will do.
        self._choose = partitioner or (None if ignore_keys else by_key)
        self._chooses_for_all = partitioner is not None
        self._check = check
        self._topics: dict[str, _Topic] = {}
        self._used_bytes = 0
        #: Queues that have something to send.
        self._open: dict[TopicPartition, PartitionQueue] = {}
        #: Batches whose fate is open, in the order they were made.
        self._incomplete: dict[ProducerBatch, None] = {}
        #: Batches that were begun since the core has looked: it says when that was.
        self._undated: list[ProducerBatch] = []
        #: Somebody waits for room in `buffer.memory`: what fills is sent at once.
        self.room_wanted = False
        self._closed: Exception | None = None

    # users' threads, without the lock

    def knows(self, topic: str) -> bool:
        """Whether records of `topic` can be appended without waiting for metadata."""
        return topic in self._topics

    def partition_of(self, topic: str, key: bytes | None) -> int | None:
        """The partition of a key; None when any will do, NOT_KNOWN when the topic is not known."""
        choose = self._choose
        if choose is None or (key is None and not self._chooses_for_all):
            return None
        state = self._topics.get(topic)
        return NOT_KNOWN if state is None else choose(topic, key, state.count)

    def unsettled_records(self) -> int:
        """How many records have an open fate. The collector may ask, in the middle of anything."""
        return sum(batch.record_count for batch in list(self._incomplete))

    # users' threads, under the lock

    def append(
        self,
        topic: str,
        partition: int | None,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        on_delivery: OnDelivery | None,
    ) -> Any | None:
        """Add a record to the batch that fills; None when it has no room, or there is none: then `begin` one.

        Raises UnknownTopicOrPartitionError.
        """
        state = self._topics.get(topic)
        if state is None:
            return None
        queue = state.sticky_queue if partition is None else self._queue(state, topic, partition)
        if queue is None or (batch := queue.open) is None:
            return None
        index = batch.append(timestamp_ms, key, value, headers)
        if index < 0:
            return None
        delivery = self._delivery(batch.outcome, index, timestamp_ms)
        if on_delivery is not None:
            batch.callbacks.append((delivery, on_delivery))
        return delivery

    def begin(
        self,
        topic: str,
        partition: int | None,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        on_delivery: OnDelivery | None,
    ) -> Any | None:
        """Begin a batch with a record, after `append` has refused it.

        None when the topic is not known yet, or `buffer.memory` is full. Raises RecordTooLargeError,
        UnknownTopicOrPartitionError, the reason given to `close`, and what `check` raises.
        """
        self.require_open()
        state = self._topics.get(topic)
        if state is None:
            return None
        size = _size(key, value, headers)
        if size > self._limits.max_request_size:
            raise RecordTooLargeError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"the record takes about {size} bytes, max.request.size allows {self._limits.max_request_size}",
            )
        limit = max(self._limits.batch_size, size)
        if not self._has_room(limit):
            return None
        queue = state.sticky_queue if partition is None else self._queue(state, topic, partition)
        if queue is not None:
            self._close_open(state, queue)
        if partition is None:
            queue = state.sticky_queue  # it may have moved on
        if queue is None:
            raise IllegalStateError(f"topic {topic} has no partition")
        builder = BatchBuilder(limit)
        index = builder.try_append(timestamp_ms, key, value, headers)  # raises for what is no record
        batch = self._open_batch(queue, builder, limit)
        delivery = self._delivery(batch.outcome, index, timestamp_ms)
        if on_delivery is not None:
            batch.callbacks.append((delivery, on_delivery))
        return delivery

    def append_batch(self, topic: str, partition: int | None, builder: BatchBuilder) -> Any | None:
        """Add a whole batch, to any partition if None; None as in `begin`. Raises what `begin` raises."""
        self.require_open()
        state = self._topics.get(topic)
        if state is None:
            return None
        queue = state.sticky_queue if partition is None else self._queue(state, topic, partition)
        if queue is None:
            raise IllegalStateError(f"topic {topic} has no partition")
        if not self._has_room(builder.size_bytes):
            return None
        self._close_open(state, queue)
        batch = self._open_batch(queue, builder, builder.size_bytes)
        self._close_open(state, queue)
        return self._delivery(batch.outcome, WHOLE_BATCH, NO_TIMESTAMP_MS)

    def require_open(self) -> None:
        """Raise the reason given to `close`, and what `check` raises."""
        if self._closed is not None:
            raise self._closed.with_traceback(None)  # it would grow with every record that is refused
        self._check()

    def require_partitions(self, topic: str, partitions: Iterable[int | None]) -> None:
        """Raise UnknownTopicOrPartitionError if one of `partitions` of a known topic does not exist."""
        state = self._topics.get(topic)
        for partition in partitions:
            if partition is not None and state is not None:
                self._queue(state, topic, partition)

    # the core

    @property
    def is_empty(self) -> bool:
        """Whether no batch has an open fate."""
        return not self._incomplete

    def incomplete(self) -> list[ProducerBatch]:
        """Batches whose fate is open, oldest first."""
        return list(self._incomplete)

    def date(self, now_s: float) -> None:
        """Batches that are new were begun now: users' threads need no clock."""
        if self._undated:
            for batch in self._undated:
                batch.created_s = self._topics[batch.tp.topic].used_s = now_s
            self._undated.clear()

    def close_all(self) -> None:
        """Close the batches that fill, so that they go at once."""
        for queue in list(self._open.values()):
            self._close_open(self._topics[queue.tp.topic], queue)

    def set_partitions(self, topic: str, count: int, available: list[int], now_s: float) -> None:
        """The topic has `count` partitions, of which `available` have a leader.

        They can be fewer than before: it was deleted and made again. Batches of those that are gone stay until their
        time is over.
        """
        state = self._topics.get(topic)
        if state is None:
            state = self._topics[topic] = _Topic(StickyPartition(self._limits.batch_size, self._rng), now_s)
        for partition in range(len(state.queues), count):
            state.queues.append(PartitionQueue(TopicPartition(topic, partition)))
        state.count = count
        state.sticky.set_partitions(count, available)
        state.sticky_queue = state.queues[state.sticky.partition] if state.sticky.partition >= 0 else None

    def idle_topics(self, now_s: float, idle_s: float) -> tuple[dict[str, int], float | None]:
        """Topics in which no batch was open for `idle_s`, with how many partitions they have; and when the next one may
        be idle (None when there is no other)."""
        for batch in self._incomplete:
            self._topics[batch.tp.topic].used_s = now_s
        self.date(now_s)
        idle = {topic: len(s.queues) for topic, s in self._topics.items() if s.used_s + idle_s <= now_s}
        others = [state.used_s + idle_s for topic, state in self._topics.items() if topic not in idle]
        return idle, min(others, default=None)

    def forget(self, topic: str) -> None:
        """Drop what is known of a topic that has no batch."""
        del self._topics[topic]

    def waiting(self, now_s: float, linger_s: float) -> tuple[list[PartitionQueue], float | None]:
        """Queues with a batch that is due, and when the next one will be (None when nothing fills)."""
        due: list[PartitionQueue] = []
        next_s: float | None = None
        for queue in self._open.values():
            if queue.ready:
                due.append(queue)
                continue
            batch = queue.open
            if batch is None:
                continue
            at_s = batch.created_s + linger_s
            if self.room_wanted or at_s <= now_s:
                due.append(queue)
            elif next_s is None or at_s < next_s:
                next_s = at_s
        return due, next_s

    def take(self, queue: PartitionQueue) -> ProducerBatch:
        """Remove and return the first batch; if it was still filling it is closed."""
        if not queue.ready:
            self._close_open(self._topics[queue.tp.topic], queue)
        batch = queue.ready.popleft()
        self._forget_if_empty(queue)
        return batch

    def put_back(self, batch: ProducerBatch) -> None:
        """Queue a batch again, where its number belongs."""
        queue = self._topics[batch.tp.topic].queues[batch.tp.partition]
        behind = 0
        while behind < len(queue.ready) and queue.ready[behind].number < batch.number:
            behind += 1
        queue.ready.insert(behind, batch)
        self._open[queue.tp] = queue

    def split(self, batch: ProducerBatch) -> tuple[ProducerBatch, ProducerBatch]:
        """Put the halves of a batch that is not queued in its place: in the queue, in memory, and in age."""
        halves = batch.split()
        for half in halves:
            half.created_s = batch.created_s
        whole, self._incomplete = self._incomplete, {}
        for each in whole:
            self._incomplete.update(dict.fromkeys(halves if each is batch else (each,)))
        for half in halves:
            self.put_back(half)
        return halves

    def drop(self, batch: ProducerBatch) -> None:
        """Remove a batch from its queue, if it is in it."""
        queue = self._open.get(batch.tp)
        if queue is None:
            return
        if queue.open is batch:
            queue.open = None
        elif batch in queue.ready:
            queue.ready.remove(batch)
        self._forget_if_empty(queue)

    def queued(self) -> Iterator[ProducerBatch]:
        """Batches that are not on the wire."""
        for queue in list(self._open.values()):
            yield from list(queue.ready)
            if queue.open is not None:
                yield queue.open

    def oldest_s(self) -> float | None:
        """When the oldest batch with an open fate was begun."""
        batch = next(iter(self._incomplete), None)
        return batch.created_s if batch is not None else None

    def older_than(self, created_s: float) -> list[ProducerBatch]:
        """Batches with an open fate that were begun at `created_s` or before, oldest first."""
        first = next(iter(self._incomplete), None)
        if first is None or first.created_s > created_s:
            return []
        return [batch for batch in self._incomplete if batch.created_s <= created_s]

    def settled(self, batch: ProducerBatch) -> None:
        """The batch's fate is known: its memory is free again."""
        del self._incomplete[batch]
        self._used_bytes -= batch.reserved_bytes

    def close(self, reason: Exception) -> None:
        """Refuse every later record with `reason`, unless there is an older one."""
        self._closed = self._closed or reason
        self.close_all()

    # inside

    def _queue(self, state: _Topic, topic: str, partition: int) -> PartitionQueue:
        if not 0 <= partition < state.count:
            raise UnknownTopicOrPartitionError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"topic {topic} has partitions 0 to {state.count - 1}, not {partition}",
            )
        return state.queues[partition]

    def _open_batch(self, queue: PartitionQueue, builder: BatchBuilder, reserved_bytes: int) -> ProducerBatch:
        queue.count += 1
        batch = ProducerBatch(queue.tp, (queue.count,), builder, reserved_bytes)
        self._undated.append(batch)
        # no call from here on: a Ctrl-C in between would leave a batch that is waited for and never sent
        self._used_bytes += reserved_bytes
        self._incomplete[batch] = None
        self._open[queue.tp] = queue
        queue.open = batch
        return batch

    def _has_room(self, size_bytes: int) -> bool:
        return self._used_bytes == 0 or self._used_bytes + size_bytes <= self._limits.buffer_memory

    def _close_open(self, state: _Topic, queue: PartitionQueue) -> None:
        batch = queue.open
        if batch is None:
            return
        queue.open = None
        queue.ready.append(batch)
        if queue is state.sticky_queue and state.sticky.closed(batch.size_bytes):
            state.sticky_queue = state.queues[state.sticky.partition]

    def _forget_if_empty(self, queue: PartitionQueue) -> None:
        if queue.open is None and not queue.ready:
            self._open.pop(queue.tp, None)


def _size(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """An upper bound of the batch that this record would be alone."""
    extra = sum(len(name.encode()) + len(content or b"") + 10 for name, content in headers)
    return HEADER_BYTES + RECORD_OVERHEAD_BYTES + len(key or b"") + len(value or b"") + extra
