"""The one place that reaches into the clients: it gives them the world's time and randomness.

Goes away once `AsyncProducer`, `AsyncConsumer` and `AsyncAdmin` take a clock and a random source as arguments.
"""

import random
from collections.abc import Mapping

from ottla.client.consumer.consumer import AsyncConsumer
from ottla.client.producer.producer import AsyncProducer
from sim.loop import SimLoop


def make_producer(config: Mapping[str, object], loop: SimLoop, rng: random.Random) -> AsyncProducer:
    """A producer of this world."""
    producer = AsyncProducer(config)
    producer._cluster.rng = rng
    producer._accumulator._rng = rng
    producer._accumulator._now_s = loop.time
    return producer


def make_consumer(config: Mapping[str, object], loop: SimLoop, rng: random.Random) -> AsyncConsumer:
    """A consumer of this world."""
    consumer = AsyncConsumer(config)
    consumer._cluster.rng = rng
    return consumer


def buried(client: AsyncProducer | AsyncConsumer) -> None:
    """Its process was killed: what is left of the object here says nothing when it is collected."""
    client._closed = True
