"""The short way of a record into an open batch: what `send` does for nearly every record, in the user's thread.

A compiled module: plain Python, typed by `intake.pxd`. It takes a record that needs nothing but a place in a batch that
is open: bytes for a topic that is known. Every other record it declines, and `AsyncProducer.try_send` takes the long
way, which also finds out what is wrong with it. So there are no messages here, and no second meaning of anything.
"""

from collections.abc import Callable
from typing import Any

from ottla.client.producer.delivery import Delivery, delivery_of
from ottla.wire.hashing import partition_for_key

#: What appending raises for arguments that make no record.
_NO_RECORD = (TypeError, ValueError, AttributeError, OverflowError)


class Intake:
    """Takes records of one producer, in any thread."""

    def __init__(self, topics: dict[str, Any], lock: Any, time_ns: Callable[[], int], hashes_keys: bool) -> None:
        """`topics` are the accumulator's, guarded by `lock`. With `hashes_keys` Kafka's hash gives a key's partition;
        without it, records with a key are declined."""
        self.topics = topics
        self.lock = lock
        self.time_ns = time_ns
        self.hashes_keys = hashes_keys

    def take(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: int | None,
        timestamp_ms: int | None,
        headers: Any,
        on_delivery: Callable[[Any], object] | None,
    ) -> Delivery | None:
        """Append a record to the open batch of its partition. None if it was declined: then nothing has changed."""
        if (value is not None and type(value) is not bytes) or type(headers) is not tuple:
            return None
        if key is not None and (type(key) is not bytes or not self.hashes_keys):
            return None
        if (partition is not None and type(partition) is not int) or type(topic) is not str:
            return None
        if timestamp_ms is not None and type(timestamp_ms) is not int:
            return None
        try:
            if timestamp_ms is None:
                time = self.time_ns()
                time = time // 1_000_000
            else:
                time = timestamp_ms
            with self.lock:
                return self.put(topic, value, key, partition, time, headers, on_delivery)
        except _NO_RECORD:
            return None

    def put(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int | None,
        timestamp_ms: int,
        headers: tuple[Any, ...],
        on_delivery: Callable[[Any], object] | None,
    ) -> Delivery | None:
        """`take` under the lock."""
        state = self.topics.get(topic)
        if state is None or timestamp_ms < 0:
            return None
        if partition is None and key is None:
            queue = state.sticky_queue
        else:
            count = state.count
            if count < 1:
                return None
            number = partition_for_key(key or b"", count) if partition is None else partition
            if number < 0 or number >= count:
                return None
            queue = state.queues[number]
        batch: Any = None if queue is None else queue.open
        if batch is None:
            return None
        builder = batch.builder
        if builder is None:
            return None
        index = builder.try_append(timestamp_ms, key, value, headers)
        if index < 0:
            return None
        delivery = delivery_of(batch.outcome, index, timestamp_ms)
        if on_delivery is not None:
            callbacks = batch.callbacks
            callbacks += (delivery, on_delivery)
        return delivery
