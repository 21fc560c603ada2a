"""The producer for asyncio; the blocking one (`client.blocking.producer`) drives the same object from a thread."""

import asyncio
import logging
import os
import random
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from operator import index
from time import time_ns
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ottla.base.clock import Clock
from ottla.base.limits import GIVE_WAY_S, LARGE_BATCH_BYTES, MAX_SPARE_BATCH_BYTES
from ottla.client.config.producer import producer_config
from ottla.client.core.metadata import ClusterSnapshot
from ottla.client.core.producer.accumulator import NOT_KNOWN
from ottla.client.core.producer.core import ProducerCore
from ottla.client.core.producer.fates import RoomFreed, Settle
from ottla.client.errors import (
    BufferExhaustedError,
    ClientError,
    IllegalStateError,
    InternalError,
    KafkaError,
    RequestTimeoutError,
)
from ottla.client.net.cluster import Cluster
from ottla.client.net.retry import Deadline
from ottla.client.net.supervisor import Supervisor
from ottla.client.net.topics import wait_for_topic
from ottla.client.producer.delivery import Delivery, wait
from ottla.client.producer.intake import Intake
from ottla.client.producer.refused import refused
from ottla.client.producer.transactional import Transactional
from ottla.client.serdes import serialize, serializer
from ottla.client.shell.driver import Driver
from ottla.wire.spare_memory import SpareMemory

if TYPE_CHECKING:
    import pyarrow

    from ottla.client.core.producer.batch import ProducerBatch
    from ottla.wire.records import BatchBuilder

log = logging.getLogger("ottla.producer")

#: Called with the record's Delivery when its fate is known, by the loop: not in the sender's context (`contextvars`).
OnDelivery = Callable[[Delivery], object]
#: Of the large batches of all producers of this process.
_SPARE = SpareMemory(MAX_SPARE_BATCH_BYTES)
_NO_HEADERS: tuple[tuple[str, bytes | None], ...] = ()
_Headers = Iterable[tuple[str, bytes | None]]
_Take = Callable[[str, Any, Any, int | None, int | None, _Headers, OnDelivery | None], Delivery | None]


class AsyncProducer(Transactional):
    """Sends records: plain, idempotent (the default), or transactional (`transactional.id`).

        async with AsyncProducer({"bootstrap.servers": "127.0.0.1:9092"}) as producer:
            delivery = await producer.send("topic", b"value", key=b"key")
            print(await delivery)

    Everything but the constructor belongs to one event loop. The first call starts the producer.
    """

    #: For `__del__` of a producer whose constructor has raised.
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

        A `cluster` is shared: the producer does not close it. With `clock` and `rng` a test controls time and chance;
        the producer uses only the wall time of the clock, for the timestamps of records.
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
        super().__init__(ProducerCore(self.config, rng, Delivery, _SPARE))
        self._records = self._core.accumulator
        self._append = self._records.append
        self._chooses = self.config.partitioner_class is not None
        intake = Intake(self._records.topics, self._lock, self._time_ns, self._records.hashes_keys)
        #: The short way of `try_send`, which most records can go. None: this record must go the long way.
        self.take: _Take = _declined if self._chooses or not self._bytes_only else intake.take
        self._room_waiters: list[asyncio.Future[None]] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake_requested = False
        #: A batch was begun before the loop had heard of the one before; when it has; and the thread that it runs in.
        self._is_behind = False
        self._heard = threading.Event()
        self._loop_thread = 0
        self._process_id = os.getpid()
        self._closed = False

    def __del__(self) -> None:
        # its loop has ended, so it cannot send any more; in a forked process it is the parent's producer
        if self._closed or self._driver is None or self._process_id != os.getpid():
            return
        unfinished = self.unfinished()
        warnings.warn("unclosed AsyncProducer", ResourceWarning, stacklevel=2, source=self)
        if unfinished:
            log.error("unclosed AsyncProducer: %s, and its event loop has ended: call close() before that", unfinished)

    # life

    async def start(self) -> None:
        """Begin to connect to the cluster. Idempotent; every other call does this, too."""
        if self._closed:
            raise IllegalStateError("the producer is closed")
        self._supervisor.check()
        if self._driver is None:
            self._loop, self._loop_thread = asyncio.get_running_loop(), threading.get_ident()
            self._driver = Driver(self._core, self._cluster, self._supervisor, log, lock=self._lock)
            self._driver.handle(Settle, _settle)
            self._driver.handle(RoomFreed, self._room_freed)
            self._driver.feed(self._core.metadata, ClusterSnapshot(), self._cluster.snapshot)
            await self._cluster.start()

    async def close(self, timeout_s: float | None = None) -> None:
        """Abort an open transaction, send the records that wait, for at most `timeout_s`, and disconnect. Idempotent.

        Records that were not acknowledged in this time fail.
        """
        if self._closed:
            return
        self._closed = True
        self._refuse(IllegalStateError("the producer is closed"))  # nobody would wait for records that come now
        try:
            if self._driver is not None and self._supervisor.failure is None:
                async with asyncio.timeout(timeout_s):
                    await self._abort_what_is_open()
                    await self._flushed()
        except (TimeoutError, ClientError):
            pass  # `_stop` fails the records that were not acknowledged
        finally:
            await self._stop(IllegalStateError("the producer is closed"))

    def unfinished(self) -> str:
        """What would be lost if the process ended now, in words; "" if nothing. Any thread may ask."""
        records = self._records.unsettled_records()
        return f"{records} records were not acknowledged yet" if records else ""

    async def abandon(self) -> str:
        """Close it because the user did not: send what waits, within `delivery.timeout.ms`. Returns what was lost."""
        self._refuse(IllegalStateError("nobody closed the producer: it is ending, and accepts no more records"))
        queued = [(batch.outcome, batch.record_count) for batch in self._incomplete()]
        await self.close()
        failed = [(outcome.error, count) for outcome, count in queued if outcome.error is not None]
        return f"{sum(count for _, count in failed)} records were lost: {failed[0][0]}" if failed else ""

    def loop_ended(self, reason: Exception) -> None:
        """Its loop has ended: every record that is not settled fails with `reason`. Called in the loop's thread."""
        self._closed = True
        unfinished = self.unfinished()
        if unfinished:
            log.critical("%s: %s", reason, unfinished)
        self._fail_at_once(reason)

    @property
    def _has_ended(self) -> bool:
        return self._closed or self._supervisor.failure is not None

    def _crashed(self, failure: InternalError) -> None:
        if self._driver is not None:
            self._driver.stop()
        self._fail_at_once(failure)

    def _fail_at_once(self, reason: Exception) -> None:
        """Settle every batch and do nothing else: this may run in the middle of any other method."""
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
        """Queue a record and return its Delivery, which can be awaited.

        It waits, for `max.block.ms` at most, only for metadata of a new topic and for room in `buffer.memory`.
        Raises BufferExhaustedError, RequestTimeoutError, RecordTooLargeError, SerializationError,
        UnknownTopicOrPartitionError, and what a transactional producer's state demands.
        """
        delivery = self.take(topic, value, key, partition, timestamp_ms, headers, on_delivery)
        if delivery is not None:
            return delivery
        if headers.__class__ is not tuple:
            headers = tuple(headers)  # they are read more than once, which a generator does not allow
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
        """Queue a record without waiting, from any thread. None: await `make_way` first, then call this again."""
        taken = self.take(topic, value, key, partition, timestamp_ms, headers, on_delivery)
        if taken is not None:
            return taken
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
                timestamp_ms = index(timestamp_ms)  # refuses a float, which would lose its fraction
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
        except ClientError as error:
            self._not_taken(error)
            raise
        if delivery is not None:
            self._wake()
        return delivery

    async def send_arrow(
        self, topic: str, record_batch: "pyarrow.RecordBatch", *, partition: int | None = None
    ) -> list[Delivery]:
        """Queue the rows of a pyarrow RecordBatch or Table. Returns one Delivery for each record batch that they make.

        Columns: `key` and `value` (binary or string; a missing one means null), `headers`, `timestamp_ms`, and
        `partition` (null: by the key). Raises what `send` raises, and ValueError for a column that cannot be used.
        """
        await self.ensure_topic(topic)
        rows = self.encode_arrow(topic, record_batch, partition)
        return [await self.send_batch(topic, number, builder) for number, builder in rows]

    async def ensure_topic(self, topic: str) -> None:
        """Wait until the producer knows `topic`. Raises RequestTimeoutError, UnknownTopicOrPartitionError."""
        await self.start()
        if not self.knows(topic):
            await self.make_way(topic, Deadline(self.config.max_block_ms))

    def knows(self, topic: str) -> bool:
        """Whether `ensure_topic` has nothing to wait for. In any thread. The topic is not forgotten before its rows
        come, except by who takes longer than `metadata.max.idle.ms`."""
        with self._lock:
            return self._records.expect(topic)

    async def send_batch(self, topic: str, partition: int | None, builder: "BatchBuilder") -> Delivery:
        """Queue a whole batch; waits for room in `buffer.memory`. Raises BufferExhaustedError."""
        delivery = self.try_send_batch(topic, partition, builder)
        if delivery is None:
            delivery = await self._until_sent(topic, lambda: self.try_send_batch(topic, partition, builder))
        return delivery

    def encode_arrow(
        self, topic: str, record_batch: "pyarrow.RecordBatch", partition: int | None
    ) -> "Iterator[tuple[int | None, BatchBuilder]]":
        """The record batches that the rows make, each with its partition. In any thread, after `ensure_topic`."""
        from ottla.client.producer.columns import LEAST_BATCH_BYTES, require_sizes, split_by_partition
        from ottla.wire.columns import encode_in_batches

        wanted = min(self.config.max_request_size, LEAST_BATCH_BYTES, self._records.bearable_bytes(topic))
        limit = max(self.config.batch_size, wanted)
        now_ms = self._time_ns() // 1_000_000
        of_key = partial(self._records.partition_of, topic)
        pieces = list(split_by_partition(record_batch, partition, of_key))
        try:
            self._records.require_partitions(topic, (number for number, _ in pieces))
            require_sizes(record_batch, self.config.max_request_size)
        except ClientError as error:
            self._not_taken(error)
            raise
        for number, rows in pieces:
            for builder in encode_in_batches(rows, limit, now_ms=now_ms, spare=_SPARE):
                yield number, builder

    def try_send_batch(self, topic: str, partition: int | None, builder: "BatchBuilder") -> Delivery | None:
        """Queue a whole batch without waiting, from any thread. None: await `make_way` first, then call this again."""
        try:
            with self._lock:
                delivery = self._records.append_batch(topic, partition, builder)
        except ClientError as error:
            self._not_taken(error)
            raise
        if delivery is not None:
            self._wake()
        return delivery

    async def make_way(self, topic: str, deadline: Deadline) -> None:
        """Wait until the producer knows `topic`; if it does, until there is room. Raises BufferExhaustedError,
        RequestTimeoutError, KafkaError."""
        try:
            await self._make_way(topic, deadline)
        except ClientError as error:
            self._not_taken(error)
            raise

    def _not_taken(self, error: ClientError) -> None:
        """A record was refused. Its transaction has failed, unless it is a call that the state does not allow."""
        if isinstance(error, KafkaError | RequestTimeoutError | BufferExhaustedError):
            with self._lock:
                self._core.not_taken(error)
            self._wake()

    async def _make_way(self, topic: str, deadline: Deadline) -> None:
        was_known = self._records.knows(topic)
        await self.start()
        assert self._driver is not None
        if not was_known and self._records.knows(topic):
            return  # `start` has found it: a shared cluster knew the topic
        if not self._records.knows(topic):
            async with self._supervisor.scope():
                await wait_for_topic(self._cluster, topic, deadline.left_ms, by=self._driver)
            if not self._records.knows(topic):  # no update came, because the cluster knew the topic already
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
                f"buffer.memory ({self.config.buffer_memory} bytes) was full for max.block.ms "
                f"({deadline.timeout_ms:.0f} ms): the brokers do not acknowledge records as fast as they are sent"
            ) from None

    async def flush(self, timeout_s: float | None = None) -> None:
        """Send all queued records and wait until each one's fate is known. Raises RequestTimeoutError."""
        await self.start()
        try:
            async with asyncio.timeout(timeout_s):
                await self._flushed()
        except TimeoutError:
            raise RequestTimeoutError(f"flush(): not all records were acknowledged within {timeout_s} s") from None

    async def partitions_for(self, topic: str) -> list[int]:
        """The numbers of the topic's partitions. Raises RequestTimeoutError, UnknownTopicOrPartitionError."""
        await self.start()
        async with self._supervisor.scope():
            await wait_for_topic(self._cluster, topic, self.config.max_block_ms)
        return sorted(self._cluster.snapshot.topics[topic].partitions)

    # inside

    def _wake(self) -> None:
        """Wake the core soon. Any thread may call this."""
        if self._wake_requested:
            self._is_behind = True
        elif self._loop is not None and not self._closed:
            self._wake_requested = True
            self._heard.clear()
            self._loop.call_soon_threadsafe(self._woken)

    def give_way(self, size_bytes: int, at_most_s: float = GIVE_WAY_S) -> None:
        """A thread has queued something, in batches of this size: large ones wait here for a loop that is behind.

        A busy thread gives Python's lock away every 5 ms (`sys.getswitchinterval`), and the loop needs it around each
        call of the system. Until then nothing would be sent.
        """
        if self._is_behind and size_bytes >= LARGE_BATCH_BYTES and threading.get_ident() != self._loop_thread:
            self._heard.wait(at_most_s)

    def _woken(self) -> None:
        self._wake_requested = self._is_behind = False
        self._heard.set()
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

    def _room_freed(self, _: RoomFreed) -> None:
        waiters, self._room_waiters = self._room_waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


def _settle(fate: Settle) -> None:
    """Set the outcome of a batch, and call the user's functions."""
    batch = fate.batch
    if batch.outcome.done:  # `_fail_at_once` has settled it already
        return
    batch.outcome.settle(fate.base_offset, fate.log_append_time_ms, fate.error)
    for delivery, callback in batch.to_call():
        try:
            callback(delivery)
        except BaseException:  # also SystemExit: here it would end the loop, and all other records would fail
            log.exception("on_delivery raised")


def _declined(*_: object) -> None:
    """`take` of a producer that has a serializer or a partitioner of the user: every record goes the long way."""
