"""Python clients on one broker, record by record, 100 bytes: ours, confluent-kafka, aiokafka."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from bench.broker_figures import new_topic
from bench.figure import RATE, Measure, Unit, Values

_VALUE = b"x" * 100
_RECORDS = 500_000


def ours(bootstrap: str, scale: float) -> Values:
    """ottla.Producer.send and ottla.Consumer.poll, each record's value and offset looked at; and as Arrow columns."""
    from ottla import Consumer, Producer, TopicPartition

    topic, records = new_topic(bootstrap), int(_RECORDS * scale)
    with Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "batch.size": 1_000_000}) as producer:
        producer.partitions_for(topic)
        start = time.perf_counter()
        for _ in range(records):
            producer.send(topic, _VALUE)
        producer.flush()
        sent = records / (time.perf_counter() - start)
    found: Values = {"send": sent}
    settings = {"bootstrap.servers": bootstrap, "enable.auto.commit": False, "max.poll.records": 5000}
    tp = TopicPartition(topic, 0)
    with Consumer(settings) as consumer:
        consumer.assign([tp])
        consumer.seek_to_beginning([tp])
        left, start = records, 0.0
        while left > 0:
            polled = consumer.poll(1.0)
            start = start or time.perf_counter()
            for record in polled:
                _touch(record.value, record.offset)
            left -= len(polled)
        found["poll"] = records / (time.perf_counter() - start)
        consumer.seek(tp, 0)
        left, start = records, 0.0
        while left > 0:
            batches = consumer.poll_arrow(1.0)
            start = start or time.perf_counter()
            left -= sum(batch.num_rows for batch in batches.values())
        found["poll as columns or a list"] = records / (time.perf_counter() - start)
    return found


def _touch(value: object, offset: int) -> None:
    """What the cheapest user does with a record."""


def confluent(bootstrap: str, scale: float) -> Values:
    """confluent-kafka: produce, poll, consume."""
    from confluent_kafka import Consumer, Producer, TopicPartition

    topic, records = new_topic(bootstrap), int(_RECORDS * scale)
    queue = {"queue.buffering.max.messages": 4_000_000}
    producer: Any = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "acks": "all", **queue})
    producer.list_topics(topic)
    start = time.perf_counter()
    for n in range(records):
        producer.produce(topic, _VALUE)
        if n % 1000 == 0:
            producer.poll(0)
    producer.flush()
    found: Values = {"send": records / (time.perf_counter() - start)}
    settings = {"group.id": topic, "enable.auto.commit": False, "queued.min.messages": 3_000_000}
    consumer: Any = Consumer({"bootstrap.servers": bootstrap, "fetch.queue.backoff.ms": 10, **settings})
    consumer.assign([TopicPartition(topic, 0, 0)])
    left, start = records, 0.0
    while left > 0:
        message = consumer.poll(1.0)
        if message is None:
            continue
        start = start or time.perf_counter()
        _touch(message.value(), message.offset())
        left -= 1
    found["poll"] = records / (time.perf_counter() - start)
    consumer.assign([TopicPartition(topic, 0, 0)])
    left, start = records, 0.0
    while left > 0:
        messages = consumer.consume(5000, 1.0)
        start = start or time.perf_counter()
        for message in messages:
            _touch(message.value(), message.offset())
        left -= len(messages)
    found["poll as columns or a list"] = records / (time.perf_counter() - start)
    consumer.close()
    return found


def aiokafka(bootstrap: str, scale: float) -> Values:
    """aiokafka: send, getmany."""
    import uvloop

    found: Values = uvloop.run(_aiokafka(bootstrap, int(_RECORDS * scale)))
    return found


async def _aiokafka(bootstrap: str, records: int) -> Values:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

    topic = await asyncio.to_thread(new_topic, bootstrap)
    size = {"max_batch_size": 1_000_000, "max_request_size": 2_000_000}
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, linger_ms=5, acks="all", **size) as producer:
        await producer.partitions_for(topic)
        start = time.perf_counter()
        for _ in range(records):
            await producer.send(topic, _VALUE)
        await producer.flush()
        found: Values = {"send": records / (time.perf_counter() - start)}
    settings = {"enable_auto_commit": False, "max_partition_fetch_bytes": 10_485_760}
    async with AIOKafkaConsumer(bootstrap_servers=bootstrap, **settings) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        await consumer.seek_to_beginning()
        left, start = records, 0.0
        while left > 0:
            polled = await consumer.getmany(timeout_ms=1000, max_records=5000)
            start = start or time.perf_counter()
            for batch in polled.values():
                for record in batch:
                    _touch(record.value, record.offset)
                left -= len(batch)
        found["poll"] = records / (time.perf_counter() - start)
    return found


FIGURES: dict[str, Measure] = {"ottla": ours, "confluent-kafka": confluent, "aiokafka": aiokafka}


def unit_of(_name: str) -> Unit:
    """The unit of a value of this module."""
    return RATE
