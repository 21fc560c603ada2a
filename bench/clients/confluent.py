"""confluent-kafka."""

from __future__ import annotations

from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from bench.clients.cost import Cost, Meter, told_with_error, touch
from bench.clients.shape import POLL, TRANSACTION, Shape


def produce(bootstrap: str, shape: Shape) -> Cost:
    """`Producer.produce` with `on_delivery`."""
    topic, values = shape.topic(bootstrap), shape.values()
    queue = {"queue.buffering.max.messages": 4_000_000, "queue.buffering.max.kbytes": 2_000_000}
    settings = {"linger.ms": 5, "acks": "all", "compression.type": shape.codec}
    producer: Any = Producer({"bootstrap.servers": bootstrap, **settings, **queue})
    producer.list_topics(topic)
    meter = Meter()
    for number, value in enumerate(values):
        producer.produce(topic, value, on_delivery=told_with_error)
        if number % 1000 == 0:
            producer.poll(0)
    producer.flush()
    return meter.cost(shape.records)


def _consumer(bootstrap: str, topic: str, partitions: int) -> Any:
    settings = {"group.id": topic, "enable.auto.commit": False, "queued.min.messages": 3_000_000}
    consumer: Any = Consumer({"bootstrap.servers": bootstrap, "fetch.queue.backoff.ms": 10, **settings})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    return consumer


def poll(bootstrap: str, shape: Shape) -> Cost:
    """`Consumer.poll`."""
    consumer = _consumer(bootstrap, shape.filled(bootstrap), shape.partitions)
    left = shape.records
    meter = Meter()
    while left > 0:
        message = consumer.poll(1.0)
        if message is not None:
            touch(message.value(), message.offset())
            left -= 1
    cost = meter.cost(shape.records)
    consumer.close()
    return cost


def consume(bootstrap: str, shape: Shape) -> Cost:
    """`Consumer.consume`, 5,000 at once."""
    consumer = _consumer(bootstrap, shape.filled(bootstrap), shape.partitions)
    left = shape.records
    meter = Meter()
    while left > 0:
        messages = consumer.consume(POLL, 1.0)
        for message in messages:
            touch(message.value(), message.offset())
        left -= len(messages)
    cost = meter.cost(shape.records)
    consumer.close()
    return cost


def transactions(bootstrap: str, shape: Shape) -> Cost:
    """`consume`, `produce`, `send_offsets_to_transaction`, `commit_transaction`, 500 records each."""
    topic, out = shape._replace(partitions=1).filled(bootstrap), shape.topic(bootstrap)
    consumer = _consumer(bootstrap, topic, 1)
    settings = {"transactional.id": out, "compression.type": shape.codec}
    producer: Any = Producer({"bootstrap.servers": bootstrap, **settings})
    producer.init_transactions()
    producer.list_topics(out)
    left = shape.records
    meter = Meter()
    while left > 0:
        messages = consumer.consume(min(TRANSACTION, left), 1.0)
        if not messages:
            continue
        producer.begin_transaction()
        for message in messages:
            producer.produce(out, message.value().upper())
        offsets = [TopicPartition(topic, 0, messages[-1].offset() + 1)]
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata())
        producer.commit_transaction()
        left -= len(messages)
    cost = meter.cost(shape.records)
    consumer.close()
    return cost
