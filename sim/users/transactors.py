"""Users of the transactional producer. They commit, abort, are slow, are killed, and come back with the same id."""

from functools import partial

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
from sim.seam import make_producer
from sim.users.process import Process
from sim.users.producers import settled

#: After these errors the producer has to be closed; another one may have its transactional id.
OVER = (FatalProducerError, ProducerFencedError)
_PADDING = b"." * 300


class Transactional(Process):
    """What all programs with a transactional producer have in common: how a transaction begins and ends."""

    _txn = 0
    _record = 0

    async def begin(self, config: dict[str, object]) -> AsyncProducer:
        """A producer with initialized transactions; tries until it succeeds."""
        while True:
            producer = make_producer(config, self.world.loop, self.rng, self.crashed)
            self.clients.append(producer)
            try:
                while True:
                    try:
                        await producer.init_transactions()
                        self.note("initialized")
                        return producer
                    except RequestTimeoutError as error:
                        self.note("not initialized", repr(error))
            except (*OVER, KafkaError) as error:
                self.note("not initialized", repr(error))
                await producer.close()
                await self.pause(0.3)

    def transaction_name(self) -> str:
        """The name of the next transaction."""
        self._txn += 1
        return f"{self.who}.{len(self.clients)}/T{self._txn}"

    async def begin_transaction(self, producer: AsyncProducer, txn: str) -> None:
        """The user's call."""
        await producer.begin_transaction()
        timeout_s = producer.config.transaction_timeout_ms / 1000
        self.note("begin", txn, Began(txn, self.name, timeout_s))

    async def send(self, producer: AsyncProducer, topic: str, uid: str, txn: str, partition: int | None = None) -> None:
        """Send one record of the transaction."""
        _, _, source = uid.partition(":")
        self.note("send", f"{uid} in {txn}", Sent(uid, txn, str(len(self.clients)), source or None))
        try:
            await producer.send(
                topic,
                uid.encode() + _PADDING[: self.rng.choice((1, 20, 100))],
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
                await self._until_told(producer.commit_transaction, txn)
            except AbortableTransactionError as error:
                self.note("not committed", f"{txn}: {error!r}", Ending(txn, commit=False))
            else:
                self.note("committed", txn, Ended(txn, "committed"))
                return True
        await self._until_told(producer.abort_transaction, txn)
        self.note("aborted", txn, Ended(txn, "aborted"))
        return False

    async def _until_told(self, call: object, txn: str) -> None:
        assert callable(call)
        while True:
            try:
                await call()
            except RequestTimeoutError as error:
                self.note("asked again", f"{txn}: {error!r}")
            except (*OVER, AbortableTransactionError):
                raise
            except ClientError as error:
                self.world.unexpected(self.who, error)  # the documentation does not name this error
                raise FatalProducerError(repr(error)) from error
            else:
                return

    def config(self) -> dict[str, object]:
        """The configuration of the producer."""
        draw = self.rng.choice
        request_ms = draw((500, 2_000, 6_000))
        return {
            "bootstrap.servers": self.world.served.bootstrap,
            "client.id": self.who,
            "transactional.id": self.name,
            "transaction.timeout.ms": draw((2_000, 6_000, 15_000)),
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
                    await self.pause(self.rng.choice((0.1, 3.0)))
        except OVER:
            raise
        except (AbortableTransactionError, CommitFailedError, BufferExhaustedError, RequestTimeoutError) as error:
            self.note("given up", f"{txn}: {error!r}")
            commit = False
        await self.end(producer, txn, commit=commit)
