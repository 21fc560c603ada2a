"""Where records wait to be sent: each partition has a queue of batches.

The user's threads append records to the open batch of a partition; the core takes whole batches. Only one thread may
call this at a time: the shell holds its lock around every call, for a few microseconds each. Methods that need no lock
say so.
"""

from collections import OrderedDict, deque
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
from ottla.wire.spare_memory import SpareMemory

Headers = Iterable[tuple[str, bytes | None]]
#: Makes what the user gets for a record, from the outcome of its batch, its place in the batch and its timestamp_ms.
DeliveryMaker = Callable[[Outcome, int, int], Any]
#: Called with what the user got for the record, when the record's fate is known.
OnDelivery = Callable[[Any], object]

NO_TIMESTAMP_MS = -1
#: The partition of a key while its topic is not known. It is not None, because None means "any partition", and another
#: thread may learn the topic before this one uses the value. No partitioner returns such a number by mistake.
NOT_KNOWN = -(2**63)
#: The length field of a batch has 31 bits.
_MAX_BATCH_BYTES = 2**31 - 1


class Limits(NamedTuple):
    """The configured sizes, in bytes."""

    batch_size: int
    buffer_memory: int
    max_request_size: int


class PartitionQueue:
    """The batches of one partition: the open one, which takes more records, and those that are ready to be sent."""

    __slots__ = ("count", "last_bytes", "open", "ready", "tp")

    def __init__(self, tp: TopicPartition) -> None:
        self.tp = tp
        self.open: ProducerBatch | None = None
        self.ready: deque[ProducerBatch] = deque()
        self.count = 0
        #: How large the last batch was that was closed: the next one begins with as much room.
        self.last_bytes = 0

    @property
    def first(self) -> ProducerBatch | None:
        """The batch that would be taken next."""
        return self.ready[0] if self.ready else self.open


class Topic:
    """The queues of one topic."""

    __slots__ = ("bearable_bytes", "count", "is_expected", "queues", "sticky", "sticky_queue", "used_s")

    def __init__(self, sticky: StickyPartition, used_s: float) -> None:
        self.queues: list[PartitionQueue] = []
        #: How many partitions the topic has now. `queues` may be longer: a new topic of the name may have fewer.
        self.count = 0
        self.sticky = sticky
        #: The queue of `sticky`'s partition. It is kept here because most records take this path.
        self.sticky_queue: PartitionQueue | None = None
        #: When a batch was last begun.
        self.used_s = used_s
        #: Somebody has it in mind, and will begin one.
        self.is_expected = False
        #: No batch is known to be too large for it that has not more bytes before compression.
        self.bearable_bytes = _MAX_BATCH_BYTES


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
        spare: SpareMemory | None = None,
    ) -> None:
        """`check` raises when no batch may be begun now. The event that makes it raise also closes or drops the open
        batches, so `append` needs no check. Large batches are built in memory of `spare`."""
        self._limits = limits
        self._rng = rng
        self._delivery = delivery
        #: Chooses the partition of a record with a key; the user's own partitioner, of every record. None: any will do.
        self._choose = partitioner or (None if ignore_keys else by_key)
        self._chooses_for_all = partitioner is not None
        #: Whether the partition of a record with a key is that of Kafka's hash.
        self.hashes_keys = self._choose is by_key
        self._check = check
        self._spare = spare
        self.topics: dict[str, Topic] = {}
        #: How much of `buffer.memory` is used.
        self._used_bytes = 0
        #: Queues that have something to send.
        self._to_send: dict[TopicPartition, PartitionQueue] = {}
        #: Batches that are not settled, in the order in which they were begun. A plain dict finds its first key only
        #: behind all that were taken out before it, and here the first are taken out.
        self._incomplete: OrderedDict[ProducerBatch, None] = OrderedDict()
        #: Batches that were begun since the last `set_dates`.
        self._undated: list[ProducerBatch] = []
        #: A caller waits for room in `buffer.memory`: open batches are sent at once.
        self.room_wanted = False
        #: Why no more records are accepted.
        self._closed: Exception | None = None

    # the user's threads, without the lock

    def knows(self, topic: str) -> bool:
        """Whether records of `topic` can be appended without waiting for metadata."""
        return topic in self.topics

    def partition_of(self, topic: str, key: bytes | None) -> int | None:
        """The partition of a key; None if any will do, NOT_KNOWN if the topic is not known."""
        choose = self._choose
        if choose is None or (key is None and not self._chooses_for_all):
            return None
        state = self.topics.get(topic)
        return NOT_KNOWN if state is None else choose(topic, key, state.count)

    def bearable_bytes(self, topic: str) -> int:
        """The most bytes that a batch of `topic` may have before compression, as far as is known: larger ones were
        split (KIP-126)."""
        state = self.topics.get(topic)
        return _MAX_BATCH_BYTES if state is None else state.bearable_bytes

    def unsettled_records(self) -> int:
        """How many records are not settled. The garbage collector may call this in the middle of any other method."""
        return sum(batch.record_count for batch in list(self._incomplete))

    # the user's threads, under the lock. `append` and `begin` are two methods with one signature, because nearly every
    # record needs only the first: it does the least that is possible

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
        """Add a record to the open batch. None if there is none, or if it is full: the caller then calls `begin`.

        Raises UnknownTopicOrPartitionError.
        """
        state = self.topics.get(topic)
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
            batch.callbacks += (delivery, on_delivery)
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
        """Begin a batch with a record that `append` did not take.

        None if the topic is not known yet, or if `buffer.memory` is full. Raises RecordTooLargeError,
        UnknownTopicOrPartitionError, the reason given to `close`, and what `check` raises.
        """
        self.require_open()
        state = self.topics.get(topic)
        if state is None:
            return None
        size = size_of(key, value, headers)
        require_size(size, self._limits.max_request_size)
        limit = max(self._limits.batch_size, size)
        if not self._has_room(limit):
            return None
        queue = state.sticky_queue if partition is None else self._queue(state, topic, partition)
        if queue is not None:
            self._close_open(state, queue)
        if partition is None:
            queue = state.sticky_queue  # closing the batch may have changed the partition
        if queue is None:
            raise IllegalStateError(f"topic {topic} has no partition")
        builder = BatchBuilder(limit, queue.last_bytes, self._spare)
        index = builder.try_append(timestamp_ms, key, value, headers)  # raises if these are not parts of a record
        batch = self._open_batch(queue, builder, limit)
        delivery = self._delivery(batch.outcome, index, timestamp_ms)
        if on_delivery is not None:
            batch.callbacks += (delivery, on_delivery)
        return delivery

    def expect(self, topic: str) -> bool:
        """Whether `topic` is known. Then the next look for idle topics takes it for one that is used now."""
        state = self.topics.get(topic)
        if state is not None:
            state.is_expected = True
        return state is not None

    def append_batch(self, topic: str, partition: int | None, builder: BatchBuilder) -> Any | None:
        """Add a whole batch; to any partition if `partition` is None. Returns None, and raises, as `begin` does."""
        self.require_open()
        state = self.topics.get(topic)
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
            raise self._closed.with_traceback(None)  # else the traceback grows with each record that is refused
        self._check()

    def require_partitions(self, topic: str, partitions: Iterable[int | None]) -> None:
        """Raise UnknownTopicOrPartitionError if the topic is known and does not have one of `partitions`."""
        state = self.topics.get(topic)
        for partition in partitions:
            if partition is not None and state is not None:
                self._queue(state, topic, partition)

    # the core

    @property
    def is_empty(self) -> bool:
        """Whether every batch is settled."""
        return not self._incomplete

    @property
    def has_much_room(self) -> bool:
        """Whether an eighth of `buffer.memory` is free."""
        memory = self._limits.buffer_memory
        return self._used_bytes <= memory - memory // 8

    def incomplete(self) -> list[ProducerBatch]:
        """Batches that are not settled, oldest first."""
        return list(self._incomplete)

    def set_dates(self, now_s: float) -> None:
        """Set `created_s` of new batches. The core does this, so that the user's threads need no clock."""
        if self._undated:
            for batch in self._undated:
                batch.created_s = self.topics[batch.tp.topic].used_s = now_s
            self._undated.clear()

    def close_all(self) -> None:
        """Close the open batches, so that they are sent at once."""
        for queue in list(self._to_send.values()):
            self._close_open(self.topics[queue.tp.topic], queue)

    def set_partitions(self, topic: str, count: int, available: list[int], now_s: float) -> None:
        """The topic has `count` partitions, of which `available` have a leader.

        There can be fewer than before: then the topic was deleted and created again. Batches of partitions that no
        longer exist stay until `delivery.timeout.ms` has passed.
        """
        state = self.topics.get(topic)
        if state is None:
            state = self.topics[topic] = Topic(StickyPartition(self._limits.batch_size, self._rng), now_s)
        for partition in range(len(state.queues), count):
            state.queues.append(PartitionQueue(TopicPartition(topic, partition)))
        state.count = count
        state.sticky.set_partitions(count, available)
        state.sticky_queue = state.queues[state.sticky.partition] if state.sticky.partition >= 0 else None

    def idle_topics(self, now_s: float, idle_s: float) -> tuple[dict[str, int], float | None]:
        """Topics without any batch for `idle_s`, each with its number of partitions. And the time at which the next
        topic may be idle; None if there is no other."""
        for batch in self._incomplete:
            self.topics[batch.tp.topic].used_s = now_s
        self.set_dates(now_s)
        for state in self.topics.values():
            if state.is_expected:
                state.is_expected, state.used_s = False, now_s
        idle = {topic: len(s.queues) for topic, s in self.topics.items() if s.used_s + idle_s <= now_s}
        others = [state.used_s + idle_s for topic, state in self.topics.items() if topic not in idle]
        return idle, min(others, default=None)

    def forget(self, topic: str) -> None:
        """Forget a topic that has no batch."""
        del self.topics[topic]

    def waiting(self, now_s: float, linger_s: float) -> tuple[list[PartitionQueue], float | None]:
        """Queues with a batch that is due, and the time at which the next batch is due (None if there is no other)."""
        due: list[PartitionQueue] = []
        next_s: float | None = None
        for queue in self._to_send.values():
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
        """Remove and return the first batch; an open batch is closed first."""
        if not queue.ready:
            self._close_open(self.topics[queue.tp.topic], queue)
        batch = queue.ready.popleft()
        self._forget_if_empty(queue)
        return batch

    def put_back(self, batch: ProducerBatch) -> None:
        """Put a batch into its queue again, at its place in the order of numbers."""
        queue = self.topics[batch.tp.topic].queues[batch.tp.partition]
        behind = 0
        while behind < len(queue.ready) and queue.ready[behind].number < batch.number:
            behind += 1
        queue.ready.insert(behind, batch)
        self._to_send[queue.tp] = queue

    def split(self, batch: ProducerBatch) -> tuple[ProducerBatch, ProducerBatch]:
        """Replace a batch, which is not in its queue, by its halves: in the queue, and in the order by age."""
        halves = batch.split()
        state = self.topics[batch.tp.topic]
        state.bearable_bytes = min(state.bearable_bytes, max(half.size_bytes for half in halves))
        for half in halves:
            half.created_s = batch.created_s
        whole, self._incomplete = self._incomplete, OrderedDict()
        for each in whole:
            self._incomplete.update(dict.fromkeys(halves if each is batch else (each,)))
        for half in halves:
            self.put_back(half)
        return halves

    def drop(self, batch: ProducerBatch) -> None:
        """Remove a batch from its queue, if it is in it."""
        queue = self._to_send.get(batch.tp)
        if queue is None:
            return
        if queue.open is batch:
            queue.open = None
        elif batch in queue.ready:
            queue.ready.remove(batch)
        self._forget_if_empty(queue)

    def queued(self) -> Iterator[ProducerBatch]:
        """Batches that are not on the wire."""
        for queue in list(self._to_send.values()):
            yield from list(queue.ready)
            if queue.open is not None:
                yield queue.open

    def oldest_s(self) -> float | None:
        """When the oldest batch that is not settled was begun."""
        batch = next(iter(self._incomplete), None)
        return batch.created_s if batch is not None else None

    def older_than(self, created_s: float) -> list[ProducerBatch]:
        """Batches that are not settled and were begun at `created_s` or before, oldest first."""
        first = next(iter(self._incomplete), None)
        if first is None or first.created_s > created_s:
            return []
        return [batch for batch in self._incomplete if batch.created_s <= created_s]

    def settled(self, batch: ProducerBatch) -> None:
        """The batch is settled: its part of `buffer.memory` is free again."""
        del self._incomplete[batch]
        self._used_bytes -= batch.reserved_bytes

    def close(self, reason: Exception) -> None:
        """Refuse every later record with `reason`, or with the reason of an earlier call."""
        self._closed = self._closed or reason
        self.close_all()

    # inside

    def _queue(self, state: Topic, topic: str, partition: int) -> PartitionQueue:
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
        # only assignments from here on, no calls: a Ctrl-C between them would leave a batch that is never sent
        self._used_bytes += reserved_bytes
        self._incomplete[batch] = None
        self._to_send[queue.tp] = queue
        queue.open = batch
        return batch

    def _has_room(self, size_bytes: int) -> bool:
        return self._used_bytes == 0 or self._used_bytes + size_bytes <= self._limits.buffer_memory

    def _close_open(self, state: Topic, queue: PartitionQueue) -> None:
        batch = queue.open
        if batch is None:
            return
        queue.open = None
        queue.ready.append(batch)
        queue.last_bytes = batch.size_bytes
        if queue is state.sticky_queue and state.sticky.closed(batch.size_bytes):
            state.sticky_queue = state.queues[state.sticky.partition]

    def _forget_if_empty(self, queue: PartitionQueue) -> None:
        if queue.open is None and not queue.ready:
            self._to_send.pop(queue.tp, None)


def size_of(key: bytes | None, value: bytes | None, headers: Iterable[tuple[str, bytes | None]]) -> int:
    """An upper bound for the size of a batch with only this record."""
    extra = sum(len(name.encode()) + len(content or b"") + 10 for name, content in headers)
    return HEADER_BYTES + RECORD_OVERHEAD_BYTES + len(key or b"") + len(value or b"") + extra


def require_size(size: int, most: int) -> None:
    """Raise RecordTooLargeError if a record is larger than `max.request.size` allows."""
    if size > most:
        raise RecordTooLargeError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"the record takes about {size} bytes, but max.request.size allows {most}; "
            "send a smaller record, or raise max.request.size",
        )
