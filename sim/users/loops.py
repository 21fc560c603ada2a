"""Users of `exactly_once` (SPEC T11): each input record becomes one output record, in the loop of the client."""

import asyncio
from collections.abc import Iterable, Mapping

from ottla.base.types import TopicPartition
from ottla.client.core.offsets import ConsumerGroupMetadata, OffsetAndMetadata
from ottla.client.errors import (
    AbortableTransactionError,
    BufferExhaustedError,
    ClientError,
    CommitFailedError,
    IllegalStateError,
    KafkaError,
    MaxPollIntervalExceededError,
    RequestTimeoutError,
)
from ottla.client.exactly_once.batch import AsyncBatch
from ottla.client.exactly_once.settings import Settings
from ottla.client.exactly_once.work import AsyncExactlyOnce
from ottla.client.producer.delivery import Delivery
from ottla.client.producer.producer import AsyncProducer
from ottla.testing.history.facts import Began, Ended, Ending, Failed, Read, Sent, Sought, TransactionOutcome
from sim.seam import watched
from sim.users.producers import settled
from sim.users.readers import MistakeError, uid_of
from sim.users.transactors import LONGEST_S, OVER
from sim.users.transformers import OUTPUT, Transformer

_PADDING = b"." * 100
#: What may end the loop by its documentation, and what this user's own code raises. After that it begins anew.
_ENDS = (
    *OVER,
    AbortableTransactionError,
    BufferExhaustedError,
    CommitFailedError,
    MaxPollIntervalExceededError,
    MistakeError,
    RequestTimeoutError,
)


class Looper(Transformer):
    """One worker of the pipeline."""

    async def live(self) -> None:
        while not self.drained:
            producer = self._producer()
            work = self._work(producer)
            error: BaseException | None = None
            try:
                await work.start()
            except (*OVER, KafkaError, RequestTimeoutError) as fault:
                self.note("not initialized", repr(fault))
                await self.pause(0.3)
                continue
            try:
                await self._loop(work)
            except _ENDS as fault:
                self.note("the loop raised", repr(fault))
                error = fault
            try:
                await work.close(error)
            except _ENDS as fault:
                self.note("close raised", repr(fault))
            producer.give_up()
        self.note("closed")

    def _producer(self) -> "NotingProducer":
        producer = watched(NotingProducer(self, self.config()), self.crashed)
        self.clients.append(producer)
        return producer

    def _work(self, producer: "NotingProducer") -> AsyncExactlyOnce:
        # a poll makes one transaction: it must be small enough for the timeouts
        sizes = {"max.poll.records": self.rng.choice((8, 20)), "max.partition.fetch.bytes": 100_000}
        consumer = self.consumer(self.world.topics, **{"enable.auto.commit": False}, **sizes)
        seek = consumer.seek

        def noted(tp: TopicPartition, offset: int) -> None:
            self.note("rewound", f"{tp}@{offset}", Sought({tp: offset}))
            seek(tp, offset)

        # it has subscribed already, with callbacks that note what comes and goes
        vars(consumer).update(seek=noted, subscribe=lambda wanted: None)
        timeout_ms = producer.config.transaction_timeout_ms
        settings = Settings(tuple(self.world.topics), OUTPUT, self.name, {}, {}, timeout_ms, until_end=False)
        return AsyncExactlyOnce(settings, consumer=consumer, producer=producer, rng=self.rng)

    async def _loop(self, work: AsyncExactlyOnce) -> None:
        loop = self.world.loop
        until_s = loop.time() + self.rng.uniform(10.0, 90.0)

        def look() -> None:
            if self.drained or (loop.time() > until_s and not self.world.users_stopped):
                work.stop()
            else:
                loop.call_later(1.0, look)

        look()
        impatient = self.rng.random() < 0.3
        was_cancelled = False
        while True:
            try:
                async with asyncio.timeout(self.rng.choice((0.01, 0.3, 3.0)) if impatient else None):
                    batch = await anext(work)
            except StopAsyncIteration:
                return
            except TimeoutError as error:
                if isinstance(error, ClientError):
                    raise
                self.note("lost patience")
                was_cancelled = True
                continue
            except IllegalStateError as error:
                if not was_cancelled:
                    raise
                self.note("the loop raised", repr(error))
                return
            self.has_polled([Read(TopicPartition(r.topic, r.partition), r.offset, uid_of(r.value)) for r in batch])
            await self._work_on(batch)

    async def _work_on(self, batch: AsyncBatch) -> None:
        for record in batch:
            uid = f"{self.who}.{len(self.clients)}-{self._count()}:{uid_of(record.value)}"
            await batch.send(uid.encode() + _PADDING[: self.rng.choice((1, 20, 100))])
        what = self.rng.random()
        if what < 0.05:
            batch.abort()
        elif what < 0.08:
            raise MistakeError("in the block")
        elif what < 0.2:
            await batch.flush()
        await self.pause(1.0 if self.rng.random() < 0.05 else 0.02, LONGEST_S)


class NotingProducer(AsyncProducer):
    """A producer that notes what its user, the loop, does with it."""

    def __init__(self, process: Looper, config: Mapping[str, object]) -> None:
        super().__init__(config, clock=process.world.loop, rng=process.rng)
        self._process = process
        self._txn = ""
        self._commits: bool | None = None

    async def begin_transaction(self) -> None:
        await super().begin_transaction()
        self._txn, self._commits = self._process.transaction_name(), None
        timeout_s = self.config.transaction_timeout_ms / 1000
        self._process.note("begin", self._txn, Began(self._txn, self._process.name, timeout_s))

    async def send(
        self,
        topic: str,
        value: bytes | None = None,
        *,
        key: object = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Iterable[tuple[str, bytes | None]] = (),
        on_delivery: object = None,
    ) -> Delivery:
        process, uid = self._process, uid_of(value)
        _, _, source = uid.partition(":")
        process.note("send", f"{uid} in {self._txn}", Sent(uid, self._txn, str(len(process.clients)), source))

        def told(delivery: Delivery) -> None:
            settled(process, uid, delivery)

        now_ms = process.world.loop.now_ms()
        try:
            key = process.world.key_of(uid)
            return await super().send(topic, value, key=key, partition=partition, timestamp_ms=now_ms, on_delivery=told)
        except ClientError as error:
            process.note("refused", f"{uid}: {error!r}", Failed(uid, type(error).__name__))
            raise

    async def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group_metadata: ConsumerGroupMetadata
    ) -> None:
        await super().send_offsets_to_transaction(offsets, group_metadata)
        self._process.note_offsets(self._txn, offsets, group_metadata)

    async def commit_transaction(self) -> None:
        self._ends(commit=True)
        try:
            await super().commit_transaction()
        except AbortableTransactionError:
            self._ends(commit=False)
            raise
        self._ended("committed")

    async def abort_transaction(self) -> None:
        self._ends(commit=False)
        await super().abort_transaction()
        self._ended("aborted")

    def give_up(self) -> None:
        """Nobody will learn how the transaction ends, if one is open."""
        if self._txn:
            self._ended("unknown")

    def _ends(self, *, commit: bool) -> None:
        if self._commits is not commit:
            self._commits = commit
            self._process.note("ending", self._txn, Ending(self._txn, commit))

    def _ended(self, outcome: TransactionOutcome) -> None:
        self._process.note(outcome, self._txn, Ended(self._txn, outcome))
        self._txn = ""
