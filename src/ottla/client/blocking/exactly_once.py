"""`exactly_once` for users, with `with` and with `async with`; and its loop for ordinary, blocking code."""

import threading
from collections.abc import Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any

from ottla.base.types import TopicPartition
from ottla.client.blocking.loop_thread import LoopThread
from ottla.client.core.consumer.consumer_record import ConsumerRecord
from ottla.client.core.consumer.subscription import Wanted
from ottla.client.core.offsets import OffsetAndMetadata
from ottla.client.errors import AbortableTransactionError, IllegalStateError
from ottla.client.exactly_once.batch import AnyBatch, not_delivered
from ottla.client.exactly_once.settings import Settings, settings
from ottla.client.exactly_once.work import TWO_WORKERS, AsyncExactlyOnce
from ottla.client.producer.delivery import Delivery

_NO_HEADERS: tuple[tuple[str, bytes | None], ...] = ()


class Batch(AnyBatch):
    """A batch of blocking code."""

    def __init__(
        self,
        records: list[ConsumerRecord],
        offsets: dict[TopicPartition, OffsetAndMetadata],
        work: AsyncExactlyOnce,
        thread: LoopThread,
    ) -> None:
        super().__init__(records, offsets, work.settings)
        self._producer = work.producer
        self._thread = thread

    def send(
        self,
        value: Any = None,
        *,
        key: Any = None,
        topic: str | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Iterable[tuple[str, bytes | None]] = _NO_HEADERS,
        to_source: bool = False,
    ) -> Delivery:
        """Write a record to the sink, or to `topic`, in the transaction of this batch; see `AsyncBatch.send`."""
        self._require_open()
        to, headers = self._destination(topic, to_source=to_source), tuple(headers)
        try:
            delivery = self._producer.try_send(to, value, key, partition, timestamp_ms, headers, None)
            if delivery is not None:
                return delivery
            return self._thread.run(
                self._producer.send(to, value, key=key, partition=partition, timestamp_ms=timestamp_ms, headers=headers)
            )
        except AbortableTransactionError as error:
            return not_delivered(to, error)

    def flush(self) -> None:
        """Wait until all that was sent is at the brokers; readers see it when the batch is committed."""
        self._thread.run(self._producer.flush())


class ExactlyOnce:
    """Batches of the source, for `for`. Belongs to one thread; heartbeats go on in the background.

    Others may call `batch.send`, if that thread waits for them before it asks for the next batch.
    """

    def __init__(self, wanted: Settings) -> None:
        self._asking: int | None = None
        self._thread = LoopThread("ottla-exactly-once")
        try:
            self._work = AsyncExactlyOnce(wanted)
            self._thread.run(self._work.start())
        except BaseException:
            self._thread.stop()
            raise

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        """The next batch; see `AsyncExactlyOnce.following` for what it raises."""
        here = threading.get_ident()
        if here != (self._asking or here):
            raise IllegalStateError(TWO_WORKERS)
        self._asking = here
        found = self._thread.run(self._work.following())
        if found is None:
            raise StopIteration
        batch = Batch(*found, self._work, self._thread)
        self._work.handed_out(batch)
        return batch

    def stop(self) -> None:
        """End the loop after the batch that it is working on, which is committed. For any thread, or a signal."""
        self._work.stop()

    def close(self, error: BaseException | None = None) -> None:
        """End the last batch, leave the group, disconnect; see `AsyncExactlyOnce.close`. The `with` block calls it.

        A first Ctrl-C makes it short, the next one ends it where it is.
        """
        try:
            if self._thread.is_running:
                try:
                    self._thread.run(self._work.close(error))
                except BaseException as interrupted:
                    if self._thread.is_running:
                        self._thread.run(self._work.close(error or interrupted))  # the first goes on meanwhile
                    raise
        finally:
            self._thread.stop()


class exactly_once:  # noqa: N801  users call it, and enter what it returns
    """Read topics, and write what becomes of their records to a topic, exactly once, whoever dies at whatever moment.

        with exactly_once("lines", "words", "splitter-1", {"bootstrap.servers": "…", "group.id": "splitter"}) as work:
            for batch in work:
                for record in batch:
                    for word in record.value.split():
                        batch.send(word)

    With `async with`, `async for` and `await batch.send(…)` it is the same for asyncio. Each batch is one transaction:
    it is committed, with the offsets of its records, when the loop asks for the next one. If the block raises, the
    batch is aborted, and read again by the next process. If the group has rebalanced or brokers were away, the batch is
    aborted, and the loop gets its records again. Only what is sent with `batch.send` counts exactly once. One task (one
    thread) asks for batches; who shares out their records waits for all of them before the next batch.
    """

    def __init__(
        self,
        source: str | Wanted,
        sink: str,
        transactional_id: str,
        config: Mapping[str, object],
        *,
        until_end: bool = False,
    ) -> None:
        """`source`: a topic, several, or a pattern, as `Consumer.subscribe` takes it. `sink`: the topic of
        `batch.send`. `config` has Kafka's keys of consumer and producer; it needs `bootstrap.servers` and `group.id`.

        Processes that share the work have the same `group.id`, and each a `transactional_id` of its own, which stays
        the same when the process is started again. With `until_end` the loop ends when everything was read. Raises
        ConfigError, KafkaError for a name that no topic can have. Nothing is connected yet.
        """
        self._settings = settings(source, sink, transactional_id, config, until_end=until_end)
        self._work: ExactlyOnce | AsyncExactlyOnce | None = None

    def __enter__(self) -> ExactlyOnce:
        self._require_unused()
        work = self._work = ExactlyOnce(self._settings)
        return work

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert isinstance(self._work, ExactlyOnce)
        self._work.close(error)

    async def __aenter__(self) -> AsyncExactlyOnce:
        self._require_unused()
        work = AsyncExactlyOnce(self._settings)
        await work.start()
        self._work = work
        return work

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert isinstance(self._work, AsyncExactlyOnce)
        await self._work.close(error)

    def _require_unused(self) -> None:
        if self._work is not None:
            raise IllegalStateError("this exactly_once was entered before: make a new one")
