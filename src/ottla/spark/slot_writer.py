"""Rows to records: the producers of the sink's tasks."""

import os
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ottla.client.blocking.producer import Producer
from ottla.client.core.delivery import Delivery
from ottla.spark import faults
from ottla.spark.ledger import Handle, SlotMarker, encode
from ottla.spark.options import SinkOptions
from ottla.spark.protocol import slot_id


def _send(producer: Producer, options: SinkOptions, batch: Any) -> list[Delivery]:
    """Queue the rows of a RecordBatch, each for its topic and partition; one Delivery for each record batch made."""
    columns = {name: batch.column(name) for name in batch.schema.names}
    if not options.include_headers:
        columns.pop("headers", None)
    topics = columns.pop("topic", None)
    if options.topic is not None:
        topics = None  # as in Spark's connector, the option overrides the column
    rows = pa.RecordBatch.from_pydict(columns)
    if topics is None:
        assert options.topic is not None
        return producer.send_arrow(options.topic, rows)
    deliveries: list[Delivery] = []
    for topic in pc.unique(topics).to_pylist():
        if topic is None:
            raise ValueError("a row has no topic: its column topic is null, and the option topic is not set")
        deliveries += producer.send_arrow(topic, rows.filter(pc.equal(topics, topic)))
    return deliveries


class SlotWriter:
    """One attempt at one slot: a transaction that begins here and is left open by `finish`."""

    def __init__(self, options: SinkOptions, slot: int) -> None:
        """Fences every earlier attempt at the slot and has its transaction aborted."""
        self._options = options
        self._producer = Producer({**options.client, "transactional.id": slot_id(options.sink_id, slot)})
        self._producer.init_transactions()
        self._producer.begin_transaction()

    def send(self, batch: Any) -> None:
        """Queue rows. Waits when `buffer.memory` is full; raises when this attempt was fenced."""
        _send(self._producer, self._options, batch)

    def finish(self, marker: SlotMarker) -> Handle:
        """Write the marker, wait until all is acknowledged, and leave the transaction open."""
        key, value = encode(self._options.sink_id, marker)
        self._producer.send(self._options.ledger_topic, value, key=key, partition=0)
        return Handle(*self._producer.detach_transaction())

    def give_up(self) -> None:
        """Abort, unless a newer attempt has done so."""
        self._producer.close(timeout_s=5)


_PLAIN: dict[tuple[Any, ...], Producer] = {}


class PlainWriter:
    """At least once: an idempotent producer that is kept from batch to batch."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        key = (os.getpid(), *sorted((name, str(value)) for name, value in options.client.items()))
        if key not in _PLAIN:
            _PLAIN[key] = Producer(options.client)
        self._producer = _PLAIN[key]

    def write(self, batches: Iterator[Any], batch_id: int) -> int:
        """Write all rows and wait until they are acknowledged; how many there were."""
        rows = 0
        deliveries: list[Delivery] = []
        for batch in batches:
            if batch.num_rows:
                if not rows:
                    faults.reach("sink.write-begun", batch_id)
                deliveries += _send(self._producer, self._options, batch)
                rows += batch.num_rows
                faults.reach("sink.mid-write", batch_id)
        self._producer.flush()
        for delivery in deliveries:
            delivery.result(0)
        faults.reach("sink.flushed", batch_id)
        return rows
