"""The producer for asyncio; the blocking one (`client.blocking.producer`) drives the same object from a thread."""

import asyncio
import logging
import os
import random
import threading
import warnings
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from operator import index
from time import time_ns
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ottla.base.clock import Clock
from ottla.base.types import TopicPartition
from ottla.client.config.producer import producer_config
from ottla.client.core.metadata import ClusterSnapshot
from ottla.client.core.offsets import ConsumerGroupMetadata, OffsetAndMetadata, checked_group, checked_offsets
from ottla.client.core.producer.accumulator import NOT_KNOWN
from ottla.client.core.producer.core import ProducerCore
from ottla.client.core.producer.fates import RoomFreed, Settle
from ottla.client.core.producer.transaction_state import TxnState
from ottla.client.core.producer.transactions import TransactionHandle, Transactions
from ottla.client.errors import BufferExhaustedError, ClientError, IllegalStateError, InternalError, RequestTimeoutError
from ottla.client.net.cluster import Cluster
from ottla.client.net.retry import Deadline
from ottla.client.net.supervisor import Supervisor
from ottla.client.producer.delivery import Delivery, wait
from ottla.client.producer.refused import refused
from ottla.client.serdes import serialize, serializer
from ottla.client.shell.driver import Driver

if TYPE_CHECKING:
    import pyarrow

    from ottla.client.core.producer.batch import ProducerBatch
    from ottla.wire.records import BatchBuilder

log = logging.getLogger("ottla.producer")

#: Called with the record's Delivery when its fate is known.
OnDelivery = Callable[[Delivery], object]
_NO_HEADERS: tuple[tuple[str, bytes | None], ...] = ()


class AsyncProducer:
    """Sends records: plain, idempotent (the default), or transactional (`transactional.id`).

        async with AsyncProducer({"bootstrap.servers": "127.0.0.1:9092"}) as producer:
            delivery = await producer.send("topic", b"value", key=b"key")
            print(await delivery)

    Everything but the constructor belongs to one event loop; it is started by the first call.
    """

    #: Also of a producer whose constructor raised.
    _closed = True

    def __init__(
        self,
        config: Mapping[str, object],
        *,
        cluster: Cluster | None = None,
        clock: Clock | None = None,
        rng: random.Random | None = None,
    ) -> None:
        """Raises ConfigError. Nothing is connected yet.

        A `cluster` is shared: its connections outlive the producer, and whoever made it closes it. `clock` and `rng`
        are for tests that are in charge of time and chance; of the clock only the wall reading is used, for timestamps.
        """
        self.config = producer_config(config)
        self._key_serializer = serializer("key.serializer", self.config.key_serializer)
        self._value_serializer = serializer("value.serializer", self.config.value_serializer)
        self._bytes_only = self._key_serializer is None and self._value_serializer is None
        rng = rng or random.Random()
        self._time_ns = time_ns if clock is None else lambda: clock.now_ms() * 1_000_000
        self._shares_cluster = cluster is not None
        self._cluster = cluster or Cluster(self.config, rng, auto_create_topics=True)
        self._supervisor = Supervisor("the producer")
        self._supervisor.on_crash(self._crashed)
        self._core = ProducerCore(self.config, rng, Delivery)
        #: Held around every call of the core, by users' threads and by the loop.
        self._lock = threading.Lock()
        self._records = self._core.accumulator
        self._append = self._records.append
        self._chooses = self.config.partitioner_class is not None
        self._room_waiters: list[asyncio.Future[None]] = []
        self._driver: Driver | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake_requested = False
        self._process_id = os.getpid()
        self._closed = False

    def __del__(self) -> None:
        # its loop is gone, nothing can be sent any more; in a forked process it is the parent's producer
        if self._closed or self._driver is None or self._process_id != os.getpid():
            return
        unfinished = self.unfinished()
        warnings.warn("unclosed AsyncProducer", ResourceWarning, stacklevel=2, source=self)
        if unfinished:
            log.error("unclosed AsyncProducer: %s, and its event loop has ended", unfinished)

    # life

    async def start(self) -> None:
        """Begin to look for the cluster. Idempotent; every other call does it too."""
        if self._closed:
            raise IllegalStateError("the producer is closed")
        self._supervisor.check()
        if self._driver is None:
            self._loop = asyncio.get_running_loop()
            self._driver = Driver(self._core, self._cluster, self._supervisor, log, lock=self._lock)
            self._driver.handle(Settle, _settle)
            self._driver.handle(RoomFreed, self._room_freed)
            self._driver.feed(self._core.metadata, ClusterSnapshot(), self._cluster.snapshot)
            await self._cluster.start()

    async def close(self, timeout_s: float | None = None) -> None:
        """Send what was not sent yet, for at most `timeout_s`; abort an open transaction; disconnect. Idempotent."""
        if self._closed:
            return
        self._closed = True
        self._refuse(IllegalStateError("the producer is closed"))  # nobody would wait for what comes now
        try:
            if self._driver is not None and self._supervisor.failure is None:
                async with asyncio.timeout(timeout_s):
                    if self._transactions is not None and self._transactions.state in _UNFINISHED:
                        with suppress(ClientError):  # a commit that was under way has succeeded
                            await self._driver.call(self._core.end_transaction, False)
                    await self._flushed()
        except (TimeoutError, ClientError):
            pass  # what could not be sent is failed below
        finally:
            await self._stop(IllegalStateError("the producer is closed"))

    def unfinished(self) -> str:
        """What is lost if nobody waits: how many records have an open fate. In any thread."""
        records = self._records.unsettled_records()
        return f"{records} records were not acknowledged yet" if records else ""

    async def abandon(self) -> str:
        """Close it for somebody who did not: what is queued is sent, within `delivery.timeout.ms`; what was lost."""
        self._refuse(IllegalStateError("nobody closed the producer, and now it takes no more: it is ending"))
        queued = [(batch.outcome, batch.record_count) for batch in self._incomplete()]
        await self.close()
        failed = [(outcome.error, count) for outcome, count in queued if outcome.error is not None]
        return f"{sum(count for _, count in failed)} records were lost: {failed[0][0]}" if failed else ""

    def loop_ended(self, reason: Exception) -> None:
        """Nobody runs its loop any more: what is open fails with `reason`. In the loop's thread, which is ending."""
        self._closed = True
        unfinished = self.unfinished()
        if unfinished:
            log.critical("%s: %s", reason, unfinished)
        self._fail_at_once(reason)

    def _crashed(self, failure: InternalError) -> None:
        if self._driver is not None:
            self._driver.stop()
        self._fail_at_once(failure)

    def _fail_at_once(self, reason: Exception) -> None:
        """Settle what is open, in the middle of anything, and touch nothing else."""
        self._refuse(reason)
        for batch in self._incomplete():
            _settle(Settle(batch, error=reason))

    def _refuse(self, reason: Exception) -> None:
        with self._lock:
            self._records.close(reason)

    def _incomplete(self) -> "list[ProducerBatch]":
        with self._lock:
            return self._records.incomplete()

    async def _stop(self, reason: Exception) -> None:
        self._closed = True
        self._refuse(reason)
        if self._driver is not None:
            self._driver.feed(self._core.close, reason)
            self._driver.stop()
        await self._supervisor.close(IllegalStateError(str(reason)))
        if not self._shares_cluster:
            await self._cluster.close()

    async def __aenter__(self) -> "AsyncProducer":
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # sending

    async def send(
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
        """Queue a record and return at once with its Delivery, which can be awaited.

        Waits, for `max.block.ms` at most, only for metadata of a new topic and for room in `buffer.memory`.
        Raises BufferExhaustedError, RequestTimeoutError, RecordTooLargeError, SerializationError,
        UnknownTopicOrPartitionError, and for a transactional producer what its state demands.
        """
        if headers.__class__ is not tuple:
            headers = tuple(headers)  # they are gone through more than once, a generator could not be
        delivery = self.try_send(topic, value, key, partition, timestamp_ms, headers, on_delivery)
        if delivery is None:
            delivery = await self._until_sent(
                topic, lambda: self.try_send(topic, value, key, partition, timestamp_ms, headers, on_delivery)
            )
        return delivery

    def try_send(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: int | None,
        timestamp_ms: int | None,
        headers: Iterable[tuple[str, bytes | None]],
        on_delivery: OnDelivery | None,
    ) -> Delivery | None:
        """Queue a record without waiting, from any thread; None when `make_way` has to be awaited first."""
        if self._bytes_only:
            if key is not None and key.__class__ is not bytes:
                key = serialize(None, topic, "key", key)
            if value is not None and value.__class__ is not bytes:
                value = serialize(None, topic, "value", value)
        else:
            key = serialize(self._key_serializer, topic, "key", key)
            value = serialize(self._value_serializer, topic, "value", value)
        try:
            if timestamp_ms is None:
                timestamp_ms = self._time_ns() // 1_000_000
            else:
                timestamp_ms = index(timestamp_ms)  # a float would be cut to whole milliseconds
            if (key is not None or self._chooses) and partition is None:
                partition = self._records.partition_of(topic, key)
                if partition == NOT_KNOWN:
                    with self._lock:
                        self._records.require_open()
                    return None
            with self._lock:
                delivery: Delivery | None = self._append(
                    topic, partition, timestamp_ms, key, value, headers, on_delivery
                )
                if delivery is not None:
                    return delivery
                delivery = self._records.begin(topic, partition, timestamp_ms, key, value, headers, on_delivery)
        except (TypeError, ValueError, AttributeError, OverflowError) as fault:
            raise refused(topic, partition, timestamp_ms, headers, fault) from fault
        if delivery is not None:
            self._wake()
        return delivery

    async def send_arrow(
        self, topic: str, record_batch: "pyarrow.RecordBatch", *, partition: int | None = None
    ) -> list[Delivery]:
        """Queue the rows of a pyarrow RecordBatch or Table; one Delivery for each record batch that they make.

        Columns: `key` and `value` (binary or string; a missing one is null), `headers`, `timestamp_ms`, and
        `partition`, which is obeyed where it is not null. Raises what `send` raises, and ValueError for a bad column.
        """
        await self.ensure_topic(topic)
        rows = self.encode_arrow(topic, record_batch, partition)
        return [await self.send_batch(topic, number, builder) for number, builder in rows]

    async def ensure_topic(self, topic: str) -> None:
        """Wait until records of `topic` can be queued. Raises RequestTimeoutError, UnknownTopicOrPartitionError."""
        await self.start()
        if not self._records.knows(topic):
            await self.make_way(topic, Deadline(self.config.max_block_ms))

    async def send_batch(self, topic: str, partition: int | None, builder: "BatchBuilder") -> Delivery:
        """Queue a whole batch, waiting for room. Raises BufferExhaustedError."""
        delivery = self.try_send_batch(topic, partition, builder)
        if delivery is None:
            delivery = await self._until_sent(topic, lambda: self.try_send_batch(topic, partition, builder))
        return delivery

    def encode_arrow(
        self, topic: str, record_batch: "pyarrow.RecordBatch", partition: int | None
    ) -> "Iterator[tuple[int | None, BatchBuilder]]":
        """The record batches that rows make, each with its partition; in any thread. The topic is known."""
        from ottla.client.producer.columns import LEAST_BATCH_BYTES, split_by_partition
        from ottla.wire.columns import encode_in_batches

        limit = max(self.config.batch_size, min(self.config.max_request_size, LEAST_BATCH_BYTES))
        now_ms = self._time_ns() // 1_000_000
        of_key = partial(self._records.partition_of, topic)
        pieces = list(split_by_partition(record_batch, partition, of_key))
        self._records.require_partitions(topic, (number for number, _ in pieces))
        for number, rows in pieces:
            for builder in encode_in_batches(rows, limit, now_ms=now_ms):
                yield number, builder

    def try_send_batch(self, topic: str, partition: int | None, builder: "BatchBuilder") -> Delivery | None:
        """Queue a whole batch without waiting, from any thread; None when `make_way` has to be awaited first."""
        with self._lock:
            delivery = self._records.append_batch(topic, partition, builder)
        if delivery is not None:
            self._wake()
        return delivery

    async def make_way(self, topic: str, deadline: Deadline) -> None:
        """Wait until `topic` is known, or there is room. Raises BufferExhaustedError, RequestTimeoutError."""
        was_known = self._records.knows(topic)
        await self.start()
        assert self._driver is not None
        if not was_known and self._records.knows(topic):
            return  # a cluster that others have used knew it, and there is room
        if not self._records.knows(topic):
            async with self._supervisor.scope():
                await self._cluster.wait_for_topic(topic, deadline.left_ms, by=self._driver)
            if not self._records.knows(topic):  # the cluster has known it all the time
                self._driver.feed(self._core.metadata, ClusterSnapshot(), self._cluster.snapshot)
            return
        room = self._supervisor.future()
        self._room_waiters.append(room)
        self._driver.feed(self._core.want_room)
        try:
            async with asyncio.timeout(deadline.left_ms / 1000):
                await room
        except TimeoutError as error:
            if isinstance(error, ClientError):
                raise
            raise BufferExhaustedError(
                f"buffer.memory ({self.config.buffer_memory} bytes) stayed full for {deadline.timeout_ms:.0f} ms"
            ) from None

    async def flush(self, timeout_s: float | None = None) -> None:
        """Send what is queued, and wait until each record's fate is known. Raises RequestTimeoutError."""
        await self.start()
        try:
            async with asyncio.timeout(timeout_s):
                await self._flushed()
        except TimeoutError:
            raise RequestTimeoutError(f"records are still unacknowledged after {timeout_s} s") from None

    async def partitions_for(self, topic: str) -> list[int]:
        """The numbers of the topic's partitions. Raises RequestTimeoutError, UnknownTopicOrPartitionError."""
        await self.start()
        async with self._supervisor.scope():
            await self._cluster.wait_for_topic(topic, self.config.max_block_ms)
        return sorted(self._cluster.snapshot.topics[topic].partitions)

    # transactions (SPEC T1)

    async def init_transactions(self) -> None:
        """Fence earlier producers of this `transactional.id`, end what they left, get an epoch. Once, first.

        Raises IllegalStateError, RequestTimeoutError (call it again), FatalProducerError.
        """
        await self._transact("init_transactions()", self._core.init_transactions)

    async def begin_transaction(self) -> None:
        """Open a transaction; what is sent from now on belongs to it. Raises IllegalStateError, FatalProducerError."""
        await self._transact("begin_transaction()", self._core.begin_transaction)

    async def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group_metadata: ConsumerGroupMetadata
    ) -> None:
        """Commit a consumer's offsets with the transaction. Raises CommitFailedError when the group has moved on."""
        checked, group = checked_offsets(offsets) or {}, checked_group(group_metadata)
        await self._transact("send_offsets_to_transaction()", self._core.send_offsets, checked, group)

    async def commit_transaction(self) -> None:
        """Flush and commit. After RequestTimeoutError call it again: the outcome is open until it returns.

        Raises AbortableTransactionError (abort it), FatalProducerError (close the producer), IllegalStateError.
        """
        await self._transact("commit_transaction()", self._core.end_transaction, True)

    async def abort_transaction(self) -> None:
        """Drop what was not sent, and abort. After RequestTimeoutError call it again.

        Raises FatalProducerError, IllegalStateError.
        """
        await self._transact("abort_transaction()", self._core.end_transaction, False)

    async def detach_transaction(self) -> TransactionHandle:
        """Flush, leave the transaction open, and close: whoever has the handle ends it (`Admin.end_transaction`).

        Raises IllegalStateError if nothing was sent, AbortableTransactionError, FatalProducerError.
        """
        handle: TransactionHandle = await self._transact("detach_transaction()", self._core.end_transaction, None)
        await self._stop(IllegalStateError("the transaction was detached: this producer is closed"))
        return handle

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """A transaction around a block: committed at its end, aborted when it raises, also when the commit does."""
        await self.begin_transaction()
        try:
            yield
        except BaseException:
            await self.abort_quietly()
            raise
        try:
            await self.commit_transaction()
        except ClientError:
            await self.abort_quietly()
            raise

    async def abort_quietly(self) -> None:
        """Abort what can be aborted, for somebody who has a better error to raise than that it could not be."""
        if self._transactions is not None and self._transactions.state in _OPEN:
            try:
                await self.abort_transaction()
            except ClientError as error:
                log.warning("the transaction was not aborted: %s", error)

    # inside

    @property
    def _transactions(self) -> Transactions | None:
        return self._core.transactions

    def _wake(self) -> None:
        """Have the core look, soon. In any thread."""
        if not self._wake_requested and self._loop is not None and not self._closed:
            self._wake_requested = True
            self._loop.call_soon_threadsafe(self._woken)

    def _woken(self) -> None:
        self._wake_requested = False
        if self._driver is not None:
            self._driver.feed(self._core.woken)

    async def _until_sent(self, topic: str, attempt: Callable[[], Delivery | None]) -> Delivery:
        deadline = Deadline(self.config.max_block_ms)
        while True:
            await self.make_way(topic, deadline)
            delivery = attempt()
            if delivery is not None:
                return delivery

    async def _flushed(self) -> None:
        assert self._driver is not None
        batches = self._incomplete()
        self._driver.feed(self._core.flush)
        for batch in batches:
            await wait(batch.outcome)

    async def _transact(self, call: str, event: Callable[..., None], *arguments: object) -> Any:
        await self.start()
        assert self._driver is not None
        if self._core.transactions is None:
            raise IllegalStateError(f"{call} needs a transactional.id in the producer's configuration")
        return await self._driver.call(event, *arguments)

    def _room_freed(self, _: RoomFreed) -> None:
        waiters, self._room_waiters = self._room_waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


_OPEN = frozenset({TxnState.IN_TRANSACTION, TxnState.ABORTABLE_ERROR, TxnState.ABORTING})
#: What `close` waits for: an abort comes when a commit that is under way is over, if it is needed then.
_UNFINISHED = _OPEN | {TxnState.COMMITTING}


def _settle(fate: Settle) -> None:
    """Tell the users of a batch its fate."""
    batch = fate.batch
    if batch.outcome.done:  # it was told when the client ended, in the middle of anything
        return
    batch.outcome.settle(fate.base_offset, fate.log_append_time_ms, fate.error)
    for delivery, callback in batch.callbacks:
        _call(callback, delivery)


def _call(callback: Callable[[Any], object], delivery: object) -> None:
    try:
        callback(delivery)
    except BaseException:  # SystemExit too: here it would end the loop, and with it all other records
        log.exception("on_delivery raised")
