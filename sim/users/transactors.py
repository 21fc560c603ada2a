"""Users of the transactional producer. They commit, abort, are slow, are killed, and come back with the same id."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

from ottla.client.admin.types import TransactionOutcome
from ottla.client.core.producer.handle import TransactionHandle
from ottla.client.errors import (
    AbortableTransactionError,
    BufferExhaustedError,
    ClientError,
    CommitFailedError,
    FatalProducerError,
    KafkaError,
    ProducerFencedError,
    RequestTimeoutError,
)
from ottla.client.producer.producer import AsyncProducer
from ottla.testing.history.facts import Began, Ended, Ending, Failed, Sent
from ottla.wire.apis import ApiKey
from sim.seam import make_admin, make_producer, watch_strays
from sim.users.database import Database
from sim.users.process import Process
from sim.users.producers import settled

T = TypeVar("T")
#: After these errors the producer has to be closed; another one may have its transactional id.
OVER = (FatalProducerError, ProducerFencedError)
_PADDING = b"." * 300
#: How long a transaction waits for its user, at most. It is longer than any time-out of transactions here. In two-phase
#: commit there is none, and readers wait for what the users do in the end, but not for ever.
LONGEST_S = 20.0


class Transactional(Process):
    """What all programs with a transactional producer have in common: how a transaction begins and ends."""

    _txn = 0
    _record = 0

    @property
    def may_run_twice(self) -> bool:
        """In two-phase commit a transactional id is for one process: a second one that decides and then is gone for
        good leaves a transaction that nobody ends (docs/two-phase-commit.md, rules)."""
        return self.world.database is None

    async def begin(self, config: dict[str, object]) -> AsyncProducer:
        """A producer with initialized transactions; tries until it succeeds."""
        database = self.world.database
        if database is not None:
            await self._commit_decided(database)
        while True:
            producer = make_producer(config, self.world.loop, self.rng, self.crashed)
            self.clients.append(producer)
            if database is not None:
                watch_strays(producer, ApiKey.INIT_PRODUCER_ID, partial(database.stray, self.name, self.who))
            try:
                while True:
                    try:
                        await producer.init_transactions()
                        self.note("initialized")
                        if database is not None:
                            database.initialized(self.name, self.who)
                        return producer
                    except RequestTimeoutError as error:
                        if database is not None:
                            database.stray(self.name, self.who)
                        self.note("not initialized", repr(error))
            except (*OVER, KafkaError) as error:
                self.note("not initialized", repr(error))
                await producer.close()
                await self.pause(0.3)

    async def _commit_decided(self, database: Database) -> None:
        """What an earlier life has decided is committed first; then `init_transactions` aborts the rest."""
        decision = database.take(self.name, self.who)
        if decision is None:
            return
        admin = make_admin(
            {"bootstrap.servers": self.world.served.bootstrap, "client.id": f"{self.who}-admin"}, self.rng, self.crashed
        )
        outcome = None
        while outcome is None:
            try:
                outcome = await admin.end_transaction(decision.handle, commit=True, timeout_ms=5_000)
            except RequestTimeoutError as error:
                self.note("asked again", f"{decision.txn}: {error!r}")
        await admin.close()
        has_gone_on = outcome is TransactionOutcome.FENCED and decision.txn in database.committed
        if outcome is not TransactionOutcome.ENDED and not has_gone_on:
            if decision.contested:
                self.note("lost", f"{decision.txn} was decided, and another InitProducerId has aborted it")
                return
            self.world.anomaly("decided-lost", f"{decision.txn} was decided, and is {outcome.name}", decision.txn)
            return
        self._committed(decision.txn)

    async def _decide(self, producer: AsyncProducer, txn: str) -> None:
        """Two-phase commit: prepare, then decide. Raises OVER when another process may decide now."""
        database = self.world.database
        if database is None:
            return
        handle: TransactionHandle = await self._until_told(producer.prepare_transaction, txn)
        await self._dawdle()
        if not database.decide(self.name, self.who, txn, handle):
            raise FatalProducerError("another process has taken over")
        self.note("decided", txn)
        await self._dawdle()

    async def _dawdle(self) -> None:
        """The other system takes its time; longer than a transaction may be open without two-phase commit."""
        if not self.world.users_stopped and self.rng.random() < 0.05:
            await asyncio.sleep(self.rng.choice((0.1, 1.0, LONGEST_S)))

    def _committed(self, txn: str) -> None:
        self.note("committed", txn, Ended(txn, "committed"))
        if self.world.database is not None:
            self.world.database.committed.add(txn)

    def transaction_name(self) -> str:
        """The name of the next transaction."""
        self._txn += 1
        return f"{self.who}.{len(self.clients)}/T{self._txn}"

    async def begin_transaction(self, producer: AsyncProducer, txn: str) -> None:
        """The user's call."""
        await producer.begin_transaction()
        timeout_s = producer.config.transaction_timeout_ms / 1000
        self.note("begin", txn, Began(txn, self.name, timeout_s if self.world.database is None else None))

    async def send(self, producer: AsyncProducer, topic: str, uid: str, txn: str, partition: int | None = None) -> None:
        """Send one record of the transaction."""
        _, _, source = uid.partition(":")
        self.note("send", f"{uid} in {txn}", Sent(uid, txn, str(len(self.clients)), source or None))
        try:
            await producer.send(
                topic,
                uid.encode() + _PADDING[: self.rng.choice((1, 20, 100))],
                key=self.world.key_of(uid),
                partition=partition,
                timestamp_ms=self.world.loop.now_ms(),
                on_delivery=partial(settled, self, uid),
            )
        except ClientError as error:
            self.note("refused", f"{uid}: {error!r}", Failed(uid, type(error).__name__))
            raise

    async def end(self, producer: AsyncProducer, txn: str, *, commit: bool) -> bool:
        """Commit or abort, and again while the outcome is unknown. Returns whether it was committed. Raises OVER."""
        self.note("ending", txn, Ending(txn, commit))
        if commit:
            try:
                await self._decide(producer, txn)
                await self._until_told(producer.commit_transaction, txn)
            except AbortableTransactionError as error:
                self.note("not committed", f"{txn}: {error!r}", Ending(txn, commit=False))
            else:
                self._committed(txn)
                return True
        await self._until_told(producer.abort_transaction, txn)
        self.note("aborted", txn, Ended(txn, "aborted"))
        return False

    async def _until_told(self, call: Callable[[], Awaitable[T]], txn: str) -> T:
        while True:
            try:
                return await call()
            except RequestTimeoutError as error:
                self.note("asked again", f"{txn}: {error!r}")
            except (*OVER, AbortableTransactionError):
                raise
            except ClientError as error:
                self.world.unexpected(self.who, error)  # the documentation does not name this error
                raise FatalProducerError(repr(error)) from error

    def config(self) -> dict[str, object]:
        """The configuration of the producer."""
        draw = self.rng.choice
        request_ms = draw((500, 2_000, 6_000))
        timeout_ms = draw((2_000, 6_000, 15_000))
        ends: dict[str, object] = {"transaction.timeout.ms": timeout_ms}
        if self.world.database is not None:
            ends = {"transaction.two.phase.commit.enable": True}
        return {
            **ends,
            "bootstrap.servers": self.world.served.bootstrap,
            "client.id": self.who,
            "transactional.id": self.name,
            "request.timeout.ms": request_ms,
            "delivery.timeout.ms": request_ms + draw((0, 2_000, 20_000)),
            "linger.ms": 0,
            "batch.size": draw((100, 400, 16_384)),
            "max.in.flight.requests.per.connection": draw((1, 5, 5)),
            "retry.backoff.ms": draw((20, 100)),
            "max.block.ms": draw((1_000, 10_000, 60_000)),
        }


class Transactor(Transactional):
    """Writes transactions to several partitions."""

    async def live(self) -> None:
        producer = await self.begin(self.config())
        while not self.world.users_stopped:
            txn = self.transaction_name()
            try:
                await self._one(producer, txn)
            except OVER as error:
                self.note("over", f"{txn}: {error!r}", Ended(txn, "unknown"))
                await producer.close()
                producer = await self.begin(self.config())
            await self.pause(self.rng.choice((0.02, 0.3, 1.0)))
        await producer.close()
        self.note("closed")

    async def _one(self, producer: AsyncProducer, txn: str) -> None:
        await self.begin_transaction(producer, txn)
        commit = self.rng.random() < 0.75
        try:
            for _ in range(self.rng.choice((1, 2, 4, 10))):
                self._record += 1
                topic = self.rng.choice(self.world.topics)
                partition = self.rng.randrange(self.world.numbered[topic])
                await self.send(producer, topic, f"{self.who}.{len(self.clients)}-{self._record}", txn, partition)
                if self.rng.random() < 0.05:
                    await self.pause(self.rng.choice((0.1, 3.0)), LONGEST_S)
        except OVER:
            raise
        except (AbortableTransactionError, CommitFailedError, BufferExhaustedError, RequestTimeoutError) as error:
            self.note("given up", f"{txn}: {error!r}")
            commit = False
        await self.end(producer, txn, commit=commit)
