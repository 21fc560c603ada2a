"""The one place that reaches into the clients: it gives them the world's time and randomness.

Goes away once `AsyncConsumer` takes a clock and a random source as arguments, as `AsyncProducer` does.
"""

import random
from collections.abc import Callable, Mapping

from ottla.client.consumer.consumer import AsyncConsumer
from ottla.client.consumer.resets import OffsetReset
from ottla.client.producer.producer import AsyncProducer
from sim.loop import SimLoop

#: When every world begins, by the wall clock.
_EPOCH_MS = 1_700_000_000_000


class SimClock:
    """The world's time as a `Clock`."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop

    def now_ms(self) -> int:
        return _EPOCH_MS + self.monotonic_ms()

    def monotonic_ms(self) -> int:
        return int(self._loop.time() * 1000)


def make_producer(config: Mapping[str, object], loop: SimLoop, rng: random.Random) -> AsyncProducer:
    """A producer of this world."""
    return AsyncProducer(config, clock=SimClock(loop), rng=rng)


def make_consumer(
    config: Mapping[str, object], rng: random.Random, on_reset: Callable[[OffsetReset], object]
) -> AsyncConsumer:
    """A consumer of this world."""
    consumer = AsyncConsumer(config, on_reset=on_reset)
    consumer._cluster.rng = rng
    return consumer


def buried(client: AsyncProducer | AsyncConsumer) -> None:
    """Its process was killed: what is left of the object here says nothing when it is collected."""
    client._closed = True
