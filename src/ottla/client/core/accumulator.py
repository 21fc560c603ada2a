"""Where records wait to be sent: one queue of batches a partition, under one lock.

User threads append; the loop takes whole batches. The lock is held for a few microseconds at most and never while
anything is encoded, compressed or sent. The loop is woken once a batch, when its first record comes (it may have to
arm the linger timer) and so also when the batch before it became full.
"""

import random
import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

from ottla.base.types import TopicPartition
from ottla.client.core.delivery import WHOLE_BATCH, Delivery
from ottla.client.core.partitioner import Partitioner, StickyPartition, by_key
from ottla.client.core.producer_batch import ProducerBatch
from ottla.client.errors import IllegalStateError, RecordTooLargeError, UnknownTopicOrPartitionError
from ottla.wire.batch import HEADER_BYTES
from ottla.wire.errors import ErrorCode
from ottla.wire.records import BatchBuilder

Headers = Iterable[tuple[str, bytes | None]]
#: Called with the record's Delivery when its fate is known.
OnDelivery = Callable[[Delivery], object]

#: Most that a record takes beside its key, value and headers' bytes.
_RECORD_OVERHEAD_BYTES = 21


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


class _Topic:
    __slots__ = ("queues", "sticky", "sticky_queue")

    def __init__(self, sticky: StickyPartition) -> None:
        self.queues: list[PartitionQueue] = []
        self.sticky = sticky
        #: The queue of `sticky`'s partition, at hand for the most frequent path.
        self.sticky_queue: PartitionQueue | None = None


class Accumulator:
    """All unsent and unanswered batches of one producer. `wake` is called, under no lock, when the loop has to look."""

    def __init__(
        self,
        limits: Limits,
        rng: random.Random,
        *,
        wake: Callable[[], None],
        now_s: Callable[[], float],
        partitioner: Partitioner | None = None,
        ignore_keys: bool = False,
    ) -> None:
        self._limits = limits
        self._rng = rng
        self._wake = wake
        self._now_s = now_s
        self._partitioner = partitioner
        self._keyed = not ignore_keys
        self._lock = threading.Lock()
        self._topics: dict[str, _Topic] = {}
        self._used_bytes = 0
        self._open: dict[TopicPartition, PartitionQueue] = {}
        #: Batches whose fate is open, in the order they were made.
        self._incomplete: dict[ProducerBatch, None] = {}
        self._room_waiters: list[Callable[[], object]] = []
        self._closed: Exception | None = None

    # user threads

    def knows(self, topic: str) -> bool:
        """Whether records of `topic` can be appended without waiting for metadata."""
        return topic in self._topics

    def append(
        self,
        topic: str,
        partition: int | None,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        on_delivery: OnDelivery | None,
    ) -> Delivery | None:
        """Add a record; None when the topic is not known yet, or `buffer.memory` is full.

        Raises RecordTooLargeError, UnknownTopicOrPartitionError, and the reason given to `close`.
        """
        state = self._topics.get(topic)
        if state is None:
            return None
        if partition is None and (key is not None or self._partitioner is not None):
            partition = self._partition(topic, key, len(state.queues))
        with self._lock:
            queue = state.sticky_queue if partition is None else self._queue(state, topic, partition)
            if queue is not None and (batch := queue.open) is not None:
                index = batch.append(timestamp_ms, key, value, headers)
                if index >= 0:
                    delivery = Delivery(batch.outcome, index, timestamp_ms)
                    if on_delivery is not None:
                        batch.callbacks.append((delivery, on_delivery))
                    return delivery
            if self._closed is not None:
                raise self._closed
            begun = self._begin_batch(state, topic, partition, timestamp_ms, key, value, headers, on_delivery)
        self._wake()
        return begun

    def append_batch(self, topic: str, partition: int | None, builder: BatchBuilder) -> Delivery | None:
        """Add a whole batch, to any partition if None; None when `buffer.memory` is full. The topic is known."""
        with self._lock:
            if self._closed is not None:
                raise self._closed
            state = self._topics[topic]
            queue = state.sticky_queue if partition is None else self._queue(state, topic, partition)
            if queue is None:
                raise IllegalStateError(f"topic {topic} has no partition")
            if not self._reserve(builder.size_bytes):
                return None
            self._close_open(state, queue)
            batch = self._new_batch(queue, builder, builder.size_bytes)
            queue.open = batch
            self._close_open(state, queue)
        self._wake()
        return Delivery(batch.outcome, WHOLE_BATCH, -1)

    def partition_of(self, topic: str, key: bytes | None) -> int | None:
        """The partition of a key; None when any will do. The topic is known."""
        if key is None and self._partitioner is None:
            return None
        return self._partition(topic, key, len(self._topics[topic].queues))

    def require_partitions(self, topic: str, partitions: Iterable[int | None]) -> None:
        """Raise UnknownTopicOrPartitionError if one of `partitions` does not exist. The topic is known."""
        for partition in partitions:
            if partition is not None:
                self._queue(self._topics[topic], topic, partition)

    def when_room(self, waiter: Callable[[], object]) -> None:
        """Call `waiter` once when a batch has been settled, in the thread that settles it."""
        with self._lock:
            self._room_waiters.append(waiter)
        self._wake()

    def unsettled_records(self) -> int:
        """How many records have an open fate. Takes no lock: the collector may ask, inside one of ours."""
        return sum(batch.record_count for batch in list(self._incomplete))

    def incomplete(self, *, flush: bool = False) -> list[ProducerBatch]:
        """Batches whose fate is open; with `flush`, those that fill are closed so that they go at once."""
        with self._lock:
            if flush:
                for queue in list(self._open.values()):
                    self._close_open(self._topics[queue.tp.topic], queue)
            batches = list(self._incomplete)
        if flush:
            self._wake()
        return batches

    # the loop

    def set_partitions(self, topic: str, count: int, available: list[int]) -> None:
        """The topic has `count` partitions, of which `available` have a leader."""
        with self._lock:
            state = self._topics.get(topic)
            if state is None:
                state = self._topics[topic] = _Topic(StickyPartition(self._limits.batch_size, self._rng))
            for partition in range(len(state.queues), count):
                state.queues.append(PartitionQueue(TopicPartition(topic, partition)))
            state.sticky.set_partitions(count, available)
            state.sticky_queue = state.queues[state.sticky.partition] if state.sticky.partition >= 0 else None

    def waiting(self, now_s: float, linger_s: float) -> tuple[list[PartitionQueue], float | None]:
        """Queues with a batch that is due, and when the next one will be (None when nothing fills)."""
        due: list[PartitionQueue] = []
        next_s: float | None = None
        with self._lock:
            exhausted = bool(self._room_waiters)
            for queue in self._open.values():
                if queue.ready:
                    due.append(queue)
                    continue
                batch = queue.open
                if batch is None:
                    continue
                at_s = batch.created_s + linger_s
                if exhausted or at_s <= now_s:
                    due.append(queue)
                elif next_s is None or at_s < next_s:
                    next_s = at_s
        return due, next_s

    def first(self, queue: PartitionQueue) -> ProducerBatch | None:
        """The batch that would be taken next."""
        return queue.ready[0] if queue.ready else queue.open

    def take(self, queue: PartitionQueue) -> ProducerBatch:
        """Remove and return the first batch; if it was still filling it is closed."""
        with self._lock:
            if not queue.ready:
                self._close_open(self._topics[queue.tp.topic], queue)
            batch = queue.ready.popleft()
            self._forget_if_empty(queue)
            return batch

    def put_back(self, batch: ProducerBatch) -> None:
        """Queue a batch again, where its number belongs."""
        with self._lock:
            queue = self._topics[batch.tp.topic].queues[batch.tp.partition]
            behind = 0
            while behind < len(queue.ready) and queue.ready[behind].number < batch.number:
                behind += 1
            queue.ready.insert(behind, batch)
            self._open[queue.tp] = queue

    def split(self, batch: ProducerBatch) -> tuple[ProducerBatch, ProducerBatch]:
        """Put the halves of a batch that is not queued in its place: in the queue, in memory, and in age."""
        halves = batch.split(self._lock)
        with self._lock:
            whole, self._incomplete = self._incomplete, {}
            for each in whole:
                self._incomplete.update(dict.fromkeys(halves if each is batch else (each,)))
        for half in halves:
            self.put_back(half)
        return halves

    def drop(self, batch: ProducerBatch) -> None:
        """Remove a queued batch."""
        with self._lock:
            queue = self._topics[batch.tp.topic].queues[batch.tp.partition]
            if queue.open is batch:
                queue.open = None
            elif batch in queue.ready:
                queue.ready.remove(batch)
            self._forget_if_empty(queue)

    def queued(self) -> list[ProducerBatch]:
        """Batches that are not on the wire."""
        with self._lock:
            return [b for q in self._open.values() for b in (*q.ready, *([q.open] if q.open is not None else []))]

    def oldest_s(self) -> float | None:
        """When the oldest batch with an open fate was begun."""
        with self._lock:
            batch = next(iter(self._incomplete), None)
        return batch.created_s if batch is not None else None

    def older_than(self, created_s: float) -> list[ProducerBatch]:
        """Batches with an open fate that were begun at `created_s` or before, oldest first."""
        with self._lock:
            first = next(iter(self._incomplete), None)
            if first is None or first.created_s > created_s:
                return []
            return [batch for batch in self._incomplete if batch.created_s <= created_s]

    def settled(self, batch: ProducerBatch) -> None:
        """The batch's fate is known: its memory is free again."""
        with self._lock:
            if batch not in self._incomplete:
                return
            del self._incomplete[batch]
            self._used_bytes -= batch.reserved_bytes
            waiters, self._room_waiters = self._room_waiters, []
        for waiter in waiters:
            waiter()

    def close(self, reason: Exception) -> None:
        """Refuse every later record with `reason`, unless there is an older one."""
        with self._lock:
            self._closed = self._closed or reason
            for queue in list(self._open.values()):
                self._close_open(self._topics[queue.tp.topic], queue)
            waiters, self._room_waiters = self._room_waiters, []
        for waiter in waiters:
            waiter()

    # under the lock

    def _queue(self, state: _Topic, topic: str, partition: int) -> PartitionQueue:
        if not 0 <= partition < len(state.queues):
            raise UnknownTopicOrPartitionError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"topic {topic} has partitions 0 to {len(state.queues) - 1}, not {partition}",
            )
        return state.queues[partition]

    def _partition(self, topic: str, key: bytes | None, count: int) -> int | None:
        if self._partitioner is not None:
            return self._partitioner(topic, key, count)
        return by_key(topic, key, count) if self._keyed else None

    def _begin_batch(
        self,
        state: _Topic,
        topic: str,
        partition: int | None,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        on_delivery: OnDelivery | None,
    ) -> Delivery | None:
        size = _size(key, value, headers)
        if size > self._limits.max_request_size:
            raise RecordTooLargeError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"the record takes about {size} bytes, max.request.size allows {self._limits.max_request_size}",
            )
        if not self._reserve(max(self._limits.batch_size, size)):
            return None
        queue = state.sticky_queue if partition is None else state.queues[partition]
        if queue is not None:
            self._close_open(state, queue)
        if partition is None:
            queue = state.sticky_queue  # it may have moved on
        if queue is None:
            raise IllegalStateError(f"topic {topic} has no partition")
        limit = max(self._limits.batch_size, size)
        builder = BatchBuilder(limit)
        index = builder.try_append(timestamp_ms, key, value, headers)  # raises for what is no record
        batch = self._new_batch(queue, builder, limit)
        queue.open = batch
        delivery = Delivery(batch.outcome, index, timestamp_ms)
        if on_delivery is not None:
            batch.callbacks.append((delivery, on_delivery))
        return delivery

    def _new_batch(self, queue: PartitionQueue, builder: BatchBuilder, reserved_bytes: int) -> ProducerBatch:
        queue.count += 1
        batch = ProducerBatch(queue.tp, (queue.count,), builder, self._now_s(), reserved_bytes, self._lock)
        self._used_bytes += reserved_bytes
        self._incomplete[batch] = None
        self._open[queue.tp] = queue
        return batch

    def _reserve(self, size_bytes: int) -> bool:
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


def _size(key: bytes | None, value: bytes | None, headers: Iterable[tuple[str, bytes | None]]) -> int:
    """An upper bound of the batch that this record would be alone."""
    extra = sum(len(name.encode()) + len(content or b"") + 10 for name, content in headers)
    return HEADER_BYTES + _RECORD_OVERHEAD_BYTES + len(key or b"") + len(value or b"") + extra
