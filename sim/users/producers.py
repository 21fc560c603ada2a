"""Users of the idempotent producer without transactions."""

from functools import partial

from ottla.base.types import TopicPartition
from ottla.client.errors import BufferExhaustedError, RequestTimeoutError
from ottla.client.producer.delivery import Delivery
from ottla.client.producer.producer import AsyncProducer
from ottla.testing.history.facts import Acknowledged, Failed, Sent, Unknown
from sim.seam import make_producer
from sim.users.process import Process

_PADDING = b"." * 600
#: What `send` may raise by its documentation while a cluster is faulty: the record was not taken.
REFUSALS = (BufferExhaustedError, RequestTimeoutError)


class PlainProducer(Process):
    """Sends bursts of records, flushes now and then, closes its producer and makes a new one."""

    async def live(self) -> None:
        while not self.world.users_stopped:
            producer = make_producer(self._config(), self.world.loop, self.rng, self.crashed)
            self.clients.append(producer)
            until_s = self.world.loop.time() + self.rng.uniform(5.0, 60.0)
            numbers = 0
            while not self.world.users_stopped and self.world.loop.time() < until_s:
                for _ in range(self.rng.choice((1, 2, 5, 12))):
                    numbers += 1
                    await self._send(producer, f"{self.who}.{len(self.clients)}-{numbers}")
                await self._between(producer)
            await producer.close()
            self.note("closed")

    async def _send(self, producer: AsyncProducer, uid: str) -> None:
        topic = self.rng.choice(self.world.topics)
        partition = self.rng.choice((None, *range(self.world.numbered[topic])))
        key = self.rng.choice((None, b"a", b"b")) if partition is None else None
        value = uid.encode() + _PADDING[: self.rng.choice((1, 20, 100, 300))]
        self.note("send", uid, Sent(uid, producer=str(len(self.clients))))
        try:
            await producer.send(
                topic,
                value,
                key=self.world.key_of(uid) or key,
                partition=partition,
                timestamp_ms=self.world.loop.now_ms(),
                on_delivery=partial(settled, self, uid),
            )
        except REFUSALS as error:
            self.note("refused", f"{uid}: {error!r}", Failed(uid, type(error).__name__))

    async def _between(self, producer: AsyncProducer) -> None:
        what = self.rng.random()
        if what < 0.1:
            try:
                await producer.flush(self.rng.choice((0.5, 30.0)))
            except RequestTimeoutError as error:
                self.note("not flushed", repr(error))
        else:
            await self.pause(self.rng.choice((0.02, 0.3, 1.0)))

    def _config(self) -> dict[str, object]:
        draw = self.rng.choice
        request_ms = draw((300, 1_000, 5_000))
        linger_ms = draw((0, 0, 5, 100))
        config = {
            "bootstrap.servers": self.world.served.bootstrap,
            "client.id": self.who,
            "request.timeout.ms": request_ms,
            "delivery.timeout.ms": linger_ms + request_ms + draw((0, 1_000, 5_000, 60_000)),
            "linger.ms": linger_ms,
            "batch.size": draw((100, 200, 1_000, 16_384)),
            "max.in.flight.requests.per.connection": draw((1, 2, 5, 5, 5)),
            "retry.backoff.ms": draw((20, 100)),
            "max.block.ms": draw((500, 10_000)),
            "retries": draw((2**31 - 1, 2**31 - 1, 2**31 - 1, 3)),
            "compression.type": draw(("none", "none", "lz4")),
            "buffer.memory": draw((40_000, 33_554_432)),
        }
        self.note("started", ", ".join(f"{key}={value}" for key, value in config.items() if "." in key[:12]))
        return config


def settled(process: Process, uid: str, delivery: Delivery) -> None:
    """The `on_delivery` of every record."""
    error = delivery.exception()
    if error is None:
        where = delivery.result()
        tp = TopicPartition(where.topic, where.partition)
        process.note("acked", f"{uid} at {tp}@{where.offset}", Acknowledged(uid, tp, where.offset))
    else:
        process.note("failed", f"{uid}: {error!r}", Unknown(uid, type(error).__name__))
