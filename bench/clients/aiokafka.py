"""aiokafka."""

from __future__ import annotations

import asyncio

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from bench.clients.cost import Cost, Meter, touch
from bench.clients.loops import in_uvloop
from bench.clients.shape import Shape


def send(bootstrap: str, shape: Shape) -> Cost:
    """`await AIOKafkaProducer.send`."""

    async def run() -> Cost:
        topic, values = await asyncio.to_thread(shape.topic, bootstrap), shape.values()
        size = {"max_batch_size": 1_000_000, "max_request_size": 2_000_000}
        codec = None if shape.codec == "none" else shape.codec
        settings = {"linger_ms": 5, "acks": "all", "compression_type": codec, **size}
        async with AIOKafkaProducer(bootstrap_servers=bootstrap, **settings) as producer:
            await producer.partitions_for(topic)
            meter = Meter()
            for value in values:
                await producer.send(topic, value)
            await producer.flush()
            return meter.cost(shape.records)

    return in_uvloop(run)


def each(bootstrap: str, shape: Shape) -> Cost:
    """`async for record in AIOKafkaConsumer`."""
    topic = shape.filled(bootstrap)

    async def run() -> Cost:
        settings = {"enable_auto_commit": False, "max_partition_fetch_bytes": 10_485_760}
        async with AIOKafkaConsumer(bootstrap_servers=bootstrap, **settings) as consumer:
            consumer.assign([TopicPartition(topic, number) for number in range(shape.partitions)])
            await consumer.seek_to_beginning()
            left = shape.records
            meter = Meter()
            async for record in consumer:
                touch(record.value, record.offset)
                left -= 1
                if left == 0:
                    break
            return meter.cost(shape.records)

    return in_uvloop(run)
