"""The producer for ordinary, blocking code: an AsyncProducer that lives on a loop in a background thread.

`send` does not cross threads: it appends to the accumulator in the caller's thread. Only a topic's first record, a full
buffer, `flush` and the transaction calls wait for the loop.
"""

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ottla.base.types import TopicPartition
from ottla.client.blocking.loop_thread import FORKED, LoopThread
from ottla.client.blocking.unclosed import Unclosed
from ottla.client.core.offsets import ConsumerGroupMetadata, OffsetAndMetadata
from ottla.client.core.producer.accumulator import OnDelivery
from ottla.client.core.producer.handle import TransactionHandle
from ottla.client.errors import ClientError, IllegalStateError
from ottla.client.producer.delivery import Delivery
from ottla.client.producer.producer import AsyncProducer

if TYPE_CHECKING:
    import pyarrow

_NO_HEADERS: tuple[tuple[str, bytes | None], ...] = ()


class Producer:
    """Sends records: plain, idempotent (the default), or transactional (`transactional.id`).

        with Producer({"bootstrap.servers": "127.0.0.1:9092"}) as producer:
            delivery = producer.send("topic", b"value", key=b"key")
            print(delivery.result())

    Close it, or use it in a `with` block. A producer that is dropped sends in the background what it still has. A
    producer that is open when the interpreter ends does the same for 10 s at most; what is lost is logged as an error.

    May be used by several threads at once. `on_delivery` is called in the background thread: it must not block, and
    must not call the producer's blocking methods.
    """

    def __init__(self, config: Mapping[str, object]) -> None:
        """Raises ConfigError. Does not wait for a broker."""
        self._producer = AsyncProducer(config)
        self._thread = LoopThread("ottla-producer", on_end=self._producer.loop_ended)
        self._take = self._producer.take
        self._batch_bytes = self._producer.config.batch_size
        self._thread.run(self._producer.start())
        self._unclosed = Unclosed(self, self._producer, self._thread)
        self._detached: TransactionHandle | None = None

    def send(
        self,
        topic: str,
        value: Any = None,
        *,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Iterable[tuple[str, bytes | None]] = _NO_HEADERS,
        on_delivery: OnDelivery | None = None,
    ) -> Delivery:
        """Queue a record and return at once with its Delivery; see `AsyncProducer.send` for what it may wait for.

        With a `batch.size` of 256 KiB or more it also waits, a millisecond at most, for a background thread that lags.
        """
        if self._thread.forked:
            raise IllegalStateError(FORKED)
        delivery = self._take(topic, value, key, partition, timestamp_ms, headers, on_delivery)
        if delivery is not None:
            return delivery
        headers = tuple(headers)  # they are read more than once, which a generator does not allow
        delivery = self._producer.try_send(topic, value, key, partition, timestamp_ms, headers, on_delivery)
        if delivery is not None:
            self._producer.give_way(self._batch_bytes)
            return delivery
        return self._thread.run(
            self._producer.send(
                topic,
                value,
                key=key,
                partition=partition,
                timestamp_ms=timestamp_ms,
                headers=headers,
                on_delivery=on_delivery,
            )
        )

    def send_arrow(
        self, topic: str, record_batch: "pyarrow.RecordBatch", *, partition: int | None = None
    ) -> list[Delivery]:
        """Queue the rows of a pyarrow RecordBatch or Table; see `AsyncProducer.send_arrow`."""
        if self._thread.forked:
            raise IllegalStateError(FORKED)
        producer = self._producer
        if not producer.knows(topic):
            self._thread.run(producer.ensure_topic(topic))
        deliveries = []
        for number, builder in producer.encode_arrow(topic, record_batch, partition):
            size_bytes = builder.size_bytes
            delivery = producer.try_send_batch(topic, number, builder)
            if delivery is None:
                delivery = self._thread.run(producer.send_batch(topic, number, builder))
            else:
                producer.give_way(size_bytes)
            deliveries.append(delivery)
        return deliveries

    def flush(self, timeout_s: float | None = None) -> None:
        """Send what is queued, and wait until each record's outcome is known. Raises RequestTimeoutError."""
        self._thread.run(self._producer.flush(timeout_s))

    def partitions_for(self, topic: str) -> list[int]:
        """The numbers of the topic's partitions. Raises RequestTimeoutError, UnknownTopicOrPartitionError."""
        return self._thread.run(self._producer.partitions_for(topic))

    def init_transactions(self) -> None:
        """Fence earlier producers of this `transactional.id`, end what they left, get an epoch. Call it first, once."""
        self._thread.run(self._producer.init_transactions())

    def begin_transaction(self) -> None:
        """Open a transaction; what is sent from now on belongs to it."""
        if self._thread.forked or not self._producer.begin_at_once():
            self._thread.run(self._producer.begin_transaction())

    def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group_metadata: ConsumerGroupMetadata
    ) -> None:
        """Commit a consumer's offsets with the transaction. CommitFailedError when its group has rebalanced since."""
        self._thread.run(self._producer.send_offsets_to_transaction(offsets, group_metadata))

    def commit_transaction(self) -> None:
        """Flush and commit. After RequestTimeoutError call it again: until it returns, the outcome is unknown."""
        self._thread.run(self._producer.commit_transaction())

    def abort_transaction(self) -> None:
        """Drop what was not sent, and abort. After RequestTimeoutError call it again."""
        self._thread.run(self._producer.abort_transaction())

    def prepare_transaction(self) -> TransactionHandle:
        """Flush; then only the decision is missing, and the handle names it (KIP-939). See `AsyncProducer`."""
        return self._thread.run(self._producer.prepare_transaction())

    def detach_transaction(self) -> TransactionHandle:
        """Flush, leave the transaction open, and close. The handle can end it later (`Admin.end_transaction`).

        After an interrupt call it again.
        """
        if self._detached is None:
            self._detached = self._thread.run(self._producer.detach_transaction())
        self._unclosed.closed()
        self._thread.stop()
        return self._detached

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """A transaction around a block: committed at its end, aborted when the block or the commit raises."""
        self.begin_transaction()
        try:
            yield
        except BaseException:
            self._thread.run(self._producer.abort_quietly())
            raise
        try:
            self.commit_transaction()
        except ClientError:
            self._thread.run(self._producer.abort_quietly())
            raise

    def close(self, timeout_s: float | None = None) -> None:
        """Send what was not sent yet, for at most `timeout_s`; abort an open transaction; disconnect. Idempotent."""
        try:
            if self._thread.is_running:
                self._thread.run(self._producer.close(timeout_s))
        finally:
            self._unclosed.closed()
            self._thread.stop()

    def __enter__(self) -> "Producer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
