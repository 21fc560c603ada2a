"""What Python itself takes: the loops of the others with an empty function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bench.clients.cost import Cost, Meter, told, touch
from bench.clients.shape import Shape


def _nothing(topic: str, value: bytes, *, on_delivery: Callable[[Any], object]) -> None:
    """What is left of `send` when it does nothing."""


def send(_bootstrap: str, shape: Shape) -> Cost:
    """`send` that does nothing, and a callback for each record that is called from a loop."""
    values = shape.values()
    meter = Meter()
    for value in values:
        _nothing("topic", value, on_delivery=told)
    for _ in range(shape.records):
        told(None)
    return meter.cost(shape.records)


def poll(_bootstrap: str, shape: Shape) -> Cost:
    """Records that are all there already, and are looked at."""
    from ottla.client.core.consumer.consumer_record import ConsumerRecord
    from ottla.wire.batch import TimestampType

    record = ConsumerRecord("t", 0, 0, 0, TimestampType.CREATE_TIME, None, shape.pool[0], (), 0)
    there = [record] * shape.records
    meter = Meter()
    for each in there:
        touch(each.value, each.offset)
    return meter.cost(shape.records)
