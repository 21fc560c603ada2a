"""Our client."""

from __future__ import annotations

import asyncio

import pyarrow as pa
import pyarrow.compute as pc

from bench.clients.cost import Cost, Meter, told, touch
from bench.clients.loops import in_uvloop
from bench.clients.shape import TRANSACTION, Shape
from ottla import AsyncConsumer, AsyncProducer, Consumer, OffsetAndMetadata, Producer, TopicPartition

#: Rows of a table that is sent at once.
_ROWS = 50_000


def send(bootstrap: str, shape: Shape) -> Cost:
    """`Producer.send`, no callback."""
    topic, values = shape.topic(bootstrap), shape.values()
    with Producer(shape.producer(bootstrap)) as producer:
        producer.partitions_for(topic)
        meter = Meter()
        for value in values:
            producer.send(topic, value)
        producer.flush()
        return meter.cost(shape.records)


def send_with_callback(bootstrap: str, shape: Shape) -> Cost:
    """`Producer.send` with `on_delivery`."""
    topic, values = shape.topic(bootstrap), shape.values()
    with Producer(shape.producer(bootstrap)) as producer:
        producer.partitions_for(topic)
        meter = Meter()
        for value in values:
            producer.send(topic, value, on_delivery=told)
        producer.flush()
        return meter.cost(shape.records)


def send_arrow(bootstrap: str, shape: Shape) -> Cost:
    """`Producer.send_arrow`, tables of 50,000 rows."""
    topic, times = shape.topic(bootstrap), max(1, shape.records // _ROWS)
    rows = pa.record_batch({"value": pa.array(list(shape._replace(records=_ROWS).values()), pa.binary())})
    with Producer(shape.producer(bootstrap)) as producer:
        producer.send_arrow(topic, rows)
        producer.flush()
        meter = Meter()
        for _ in range(times):
            producer.send_arrow(topic, rows)
        producer.flush()
        return meter.cost(times * _ROWS)


def poll(bootstrap: str, shape: Shape) -> Cost:
    """`Consumer.poll`."""
    tps = shape.partitions_of(shape.filled(bootstrap))
    with Consumer(shape.consumer(bootstrap)) as consumer:
        consumer.assign(tps)
        consumer.seek_to_beginning(tps)
        left = shape.records
        meter = Meter()
        while left > 0:
            polled = consumer.poll(1.0)
            for record in polled:
                touch(record.value, record.offset)
            left -= len(polled)
        return meter.cost(shape.records)


def each(bootstrap: str, shape: Shape) -> Cost:
    """`for record in consumer`."""
    tps = shape.partitions_of(shape.filled(bootstrap))
    with Consumer(shape.consumer(bootstrap)) as consumer:
        consumer.assign(tps)
        consumer.seek_to_beginning(tps)
        left = shape.records
        meter = Meter()
        for record in consumer:
            touch(record.value, record.offset)
            left -= 1
            if left == 0:
                break
        return meter.cost(shape.records)


def columns(bootstrap: str, shape: Shape) -> Cost:
    """`Consumer.poll_arrow`."""
    tps = shape.partitions_of(shape.filled(bootstrap))
    with Consumer(shape.consumer(bootstrap)) as consumer:
        consumer.assign(tps)
        consumer.seek_to_beginning(tps)
        left = shape.records
        meter = Meter()
        while left > 0:
            left -= sum(batch.num_rows for batch in consumer.poll_arrow(1.0).values())
        return meter.cost(shape.records)


def async_send(bootstrap: str, shape: Shape) -> Cost:
    """`await AsyncProducer.send`."""

    async def run() -> Cost:
        topic, values = await asyncio.to_thread(shape.topic, bootstrap), shape.values()
        async with AsyncProducer(shape.producer(bootstrap)) as producer:
            await producer.partitions_for(topic)
            meter = Meter()
            for value in values:
                await producer.send(topic, value)
            await producer.flush()
            return meter.cost(shape.records)

    return in_uvloop(run)


def async_each(bootstrap: str, shape: Shape) -> Cost:
    """`async for record in AsyncConsumer`."""
    tps = shape.partitions_of(shape.filled(bootstrap))

    async def run() -> Cost:
        async with AsyncConsumer(shape.consumer(bootstrap)) as consumer:
            consumer.assign(tps)
            consumer.seek_to_beginning(tps)
            left = shape.records
            meter = Meter()
            async for record in consumer:
                touch(record.value, record.offset)
                left -= 1
                if left == 0:
                    break
            return meter.cost(shape.records)

    return in_uvloop(run)


def _transactional(bootstrap: str, shape: Shape, topic: str) -> tuple[dict[str, object], dict[str, object]]:
    reader = {**shape.consumer(bootstrap), "group.id": topic, "isolation.level": "read_committed"}
    return reader | {"max.poll.records": TRANSACTION}, {**shape.producer(bootstrap), "transactional.id": topic}


def transactions(bootstrap: str, shape: Shape) -> Cost:
    """`poll`, `send`, `send_offsets_to_transaction`, `commit_transaction`, 500 records each; one partition is read."""
    out = shape.topic(bootstrap)
    reader, writer = _transactional(bootstrap, shape, out)
    tp, left = TopicPartition(shape._replace(partitions=1).filled(bootstrap), 0), shape.records
    with Consumer(reader) as consumer, Producer(writer) as producer:
        producer.init_transactions()
        producer.partitions_for(out)
        consumer.assign([tp])
        consumer.seek(tp, 0)
        meter = Meter()
        while left > 0:
            polled = consumer.poll(1.0)
            if not polled:
                continue
            producer.begin_transaction()
            for record in polled:
                producer.send(out, record.value.upper())
            offsets = {tp: OffsetAndMetadata(polled[-1].offset + 1)}
            producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
            producer.commit_transaction()
            left -= len(polled)
        return meter.cost(shape.records)


def transactions_of_columns(bootstrap: str, shape: Shape) -> Cost:
    """The same by `poll_arrow` and `send_arrow`: a transaction is a fetch, not 500 records."""
    out = shape.topic(bootstrap)
    reader, writer = _transactional(bootstrap, shape, out)
    tp, left = TopicPartition(shape._replace(partitions=1).filled(bootstrap), 0), shape.records
    with Consumer(reader) as consumer, Producer(writer) as producer:
        producer.init_transactions()
        producer.partitions_for(out)
        consumer.assign([tp])
        consumer.seek(tp, 0)
        meter = Meter()
        while left > 0:
            for rows in consumer.poll_arrow(1.0).values():
                producer.begin_transaction()
                changed = pc.utf8_upper(rows.column("value").cast(pa.string()))
                producer.send_arrow(out, pa.record_batch({"value": changed}))
                offsets = {tp: OffsetAndMetadata(rows.column("offset")[-1].as_py() + 1)}
                producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
                producer.commit_transaction()
                left -= rows.num_rows
        return meter.cost(shape.records)
