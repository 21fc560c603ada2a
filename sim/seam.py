"""How a world's clients are made: with its time and its randomness, by the arguments that every user has."""

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


def buried(client: AsyncProducer | AsyncConsumer) -> None:
    """Its process was killed: what is left of the object here says nothing when it is collected."""
    client._closed = True
