"""What users do with the asyncio clients (SPEC C4), gone on our own broker and on Apache Kafka."""

from __future__ import annotations

import asyncio

import pytest

from ottla import AsyncConsumer, AsyncProducer
from ottla.client.errors import ClientError
from tests.client.journeys import PATIENCE_S, fresh, make_topic, read_all


async def c4_asyncio_reads_and_writes(servers: str) -> None:
    topic = await asyncio.to_thread(make_topic, servers)
    async with AsyncProducer({"bootstrap.servers": servers}) as producer:
        deliveries = [await producer.send(topic, b"%d" % number) for number in range(5)]
        assert [(await delivery).offset for delivery in deliveries] == [0, 1, 2, 3, 4]
    config = {"bootstrap.servers": servers, "auto.offset.reset": "earliest", "group.id": fresh("c4")}
    async with AsyncConsumer(config) as consumer:
        consumer.subscribe([topic])
        found = []
        async for record in consumer:
            found.append(record.value)
            if len(found) == 5:
                break
    assert found == [b"0", b"1", b"2", b"3", b"4"]


async def c4_a_cancelled_call_harms_nothing(servers: str) -> None:
    topic = await asyncio.to_thread(make_topic, servers)
    config = {"bootstrap.servers": servers, "auto.offset.reset": "earliest", "group.id": fresh("c4")}
    async with AsyncConsumer(config) as consumer, AsyncProducer({"bootstrap.servers": servers}) as producer:
        consumer.subscribe([topic])
        for timeout_s in (0.0, 0.001, 0.01, 0.05):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(consumer.poll(PATIENCE_S), timeout_s)
        await producer.send(topic, b"1")
        flush = asyncio.ensure_future(producer.flush())
        await asyncio.sleep(0)
        flush.cancel()
        assert [record.value for record in await consumer.poll(PATIENCE_S)] == [b"1"]


async def c4_a_transaction_around_a_block(servers: str) -> None:
    topic = await asyncio.to_thread(make_topic, servers)
    async with AsyncProducer({"bootstrap.servers": servers, "transactional.id": fresh("c4")}) as producer:
        await producer.init_transactions()
        async with producer.transaction():
            await producer.send(topic, b"in")
        with pytest.raises(ClientError):
            async with producer.transaction():
                await producer.send(topic, b"out")
                raise ClientError("changed my mind")
    assert [r.value for r in await asyncio.to_thread(read_all, servers, topic)] == [b"in"]


ALL = [c4_asyncio_reads_and_writes, c4_a_cancelled_call_harms_nothing, c4_a_transaction_around_a_block]
