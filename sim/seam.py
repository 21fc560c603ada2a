"""How a world makes its clients: they get its clock and its randomness, by arguments that every user can give."""

import random
from collections.abc import Callable, Mapping

from ottla.client.consumer.consumer import AsyncConsumer
from ottla.client.core.consumer.offset_reset import OffsetReset
from ottla.client.producer.producer import AsyncProducer
from sim.loop import SimLoop


def make_producer(config: Mapping[str, object], loop: SimLoop, rng: random.Random) -> AsyncProducer:
    """A producer of this world."""
    return AsyncProducer(config, clock=loop, rng=rng)


def make_consumer(
    config: Mapping[str, object], loop: SimLoop, rng: random.Random, on_reset: Callable[[OffsetReset], object]
) -> AsyncConsumer:
    """A consumer of this world."""
    return AsyncConsumer(config, on_reset=on_reset, clock=loop, rng=rng)


def forget(client: AsyncProducer | AsyncConsumer) -> None:
    """Its simulated process was killed. The object must not warn that it was not closed when it is collected."""
    client._closed = True
