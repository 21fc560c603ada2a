"""aiokafka against our broker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from ottla.testing import History
from tests.recording.aio_kafka import RecordingConsumer, RecordingProducer
from tests.recording.final import assert_good, note_logs, note_positions

pytestmark = pytest.mark.interop

Fresh = Callable[[str], str]


async def _topic(bootstrap: str, name: str, partitions: int = 1) -> str:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    await admin.create_topics([NewTopic(name, partitions, 1)])
    await admin.close()
    return name


async def _take(consumer: AIOKafkaConsumer, wanted: int) -> list[bytes]:
    values: list[bytes] = []
    for _ in range(60):
        for records in (await consumer.getmany(timeout_ms=500)).values():
            values += [record.value for record in records]
        if len(values) >= wanted:
            return values
    raise AssertionError(f"{len(values)} of {wanted} records came")


@pytest.mark.parametrize("codec", [None, "gzip", "zstd"])
async def test_records_come_back_through_a_group(any_broker: str, fresh: Fresh, codec: str | None) -> None:
    topic, group, history = await _topic(any_broker, fresh("aio"), 2), fresh("aio-group"), History()
    base = {"bootstrap_servers": any_broker}
    producer = RecordingProducer(history, "producer", **base, enable_idempotence=True, compression_type=codec)
    async with producer:
        for n in range(100):
            await producer.send(topic, b"%d" % n, partition=n % 2)
    settings = {"group_id": group, "auto_offset_reset": "earliest"}
    async with RecordingConsumer(topic, history=history, who="consumer", **base, **settings) as consumer:
        assert sorted(await _take(consumer, 100)) == sorted(b"%d" % n for n in range(100))
        await consumer.commit()
        assert await consumer.committed(TopicPartition(topic, 1)) == 50
    await asyncio.to_thread(_judge, history, any_broker, {topic: 2}, group)


async def test_t1_transactions_commit_and_abort(any_broker: str, fresh: Fresh) -> None:
    topic, history = await _topic(any_broker, fresh("aio-txn")), History()
    base = {"bootstrap_servers": any_broker}
    producer = RecordingProducer(history, "producer", **base, transactional_id=fresh("aio-tid"))
    async with producer:
        for value, commit in ((b"yes", True), (b"no", False), (b"again", True)):
            await producer.begin_transaction()
            await producer.send_and_wait(topic, value)
            await (producer.commit_transaction() if commit else producer.abort_transaction())
    consumer = RecordingConsumer(history=history, who="consumer", **base, isolation_level="read_committed")
    async with consumer:
        consumer.assign([TopicPartition(topic, 0)])
        await consumer.seek_to_beginning()
        assert await _take(consumer, 2) == [b"yes", b"again"]
    await asyncio.to_thread(_judge, history, any_broker, {topic: 1}, None)


def _judge(history: History, bootstrap: str, topics: dict[str, int], group: str | None) -> None:
    note_logs(history, bootstrap, topics)
    if group is not None:
        note_positions(history, bootstrap, group)
    assert_good(history)
