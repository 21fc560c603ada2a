"""CPU of Python clients' own process by record, beside the same loop with an empty function.

    python -m bench.client_cpu 127.0.0.1:9092 --rounds 5 --records 200000 --only ottla_send ottla_poll

Rates need a quiet machine; this does not. The clients run in turns, and the median of the rounds is printed:
nanoseconds of CPU of all threads of the process (`process_time`), of the user's thread alone (`thread_time`), and of
the clock. A transaction is a poll of 500 records, which are read, changed, sent, and committed with their offsets.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from bench.broker_figures import new_topic

_VALUE = b"x" * 100
_POLL = 5_000
#: Records of a transaction.
_TRANSACTION = 500


class Cost(NamedTuple):
    """Nanoseconds by record: of CPU of the process, of CPU of the user's thread, and of the clock."""

    process: float
    thread: float
    wall: float


class _Meter:
    def __init__(self) -> None:
        gc.collect()
        self._began = time.process_time_ns(), time.thread_time_ns(), time.perf_counter_ns()

    def cost(self, records: int) -> Cost:
        ended = time.process_time_ns(), time.thread_time_ns(), time.perf_counter_ns()
        return Cost(*((end - begin) / records for begin, end in zip(self._began, ended, strict=True)))


def _touch(value: object, offset: int) -> None:
    """What the cheapest user does with a record."""


def _nothing(topic: str, value: bytes, *, on_delivery: Callable[[Any], object]) -> None:
    """What is left of `send` when it does nothing."""


def _told(delivery: object) -> None:
    """What the cheapest user does with a delivery."""


def _told_with_error(error: object, message: object) -> None:
    """The same with confluent-kafka."""


def floor_of_send(_bootstrap: str, records: int) -> Cost:
    """`send` that does nothing, and a callback for each record that is called from a loop."""
    meter = _Meter()
    for _ in range(records):
        _nothing("topic", _VALUE, on_delivery=_told)
    for _ in range(records):
        _told(None)
    return meter.cost(records)


def floor_of_poll(_bootstrap: str, records: int) -> Cost:
    """Records that are all there already, and are looked at."""
    from ottla.client.core.consumer.consumer_record import ConsumerRecord
    from ottla.wire.batch import TimestampType

    record = ConsumerRecord("t", 0, 0, 0, TimestampType.CREATE_TIME, None, _VALUE, (), 0)
    there = [record] * records
    meter = _Meter()
    for each in there:
        _touch(each.value, each.offset)
    return meter.cost(records)


# ours


def _producer_settings(bootstrap: str) -> dict[str, object]:
    return {"bootstrap.servers": bootstrap, "linger.ms": 5, "batch.size": 1_000_000, "buffer.memory": 1_000_000_000}


def _consumer_settings(bootstrap: str) -> dict[str, object]:
    return {"bootstrap.servers": bootstrap, "enable.auto.commit": False, "max.poll.records": _POLL}


def ottla_send(bootstrap: str, records: int) -> Cost:
    """`Producer.send`, no callback."""
    from ottla import Producer

    topic = new_topic(bootstrap)
    with Producer(_producer_settings(bootstrap)) as producer:
        producer.partitions_for(topic)
        meter = _Meter()
        for _ in range(records):
            producer.send(topic, _VALUE)
        producer.flush()
        return meter.cost(records)


def ottla_send_with_callback(bootstrap: str, records: int) -> Cost:
    """`Producer.send` with `on_delivery`."""
    from ottla import Producer

    topic = new_topic(bootstrap)
    with Producer(_producer_settings(bootstrap)) as producer:
        producer.partitions_for(topic)
        meter = _Meter()
        for _ in range(records):
            producer.send(topic, _VALUE, on_delivery=_told)
        producer.flush()
        return meter.cost(records)


def ottla_send_arrow(bootstrap: str, records: int) -> Cost:
    """`Producer.send_arrow`, tables of 50,000 rows."""
    import pyarrow as pa

    from ottla import Producer

    topic = new_topic(bootstrap)
    rows = pa.record_batch({"value": pa.array([_VALUE] * 50_000, pa.binary())})
    with Producer(_producer_settings(bootstrap)) as producer:
        producer.send_arrow(topic, rows)
        producer.flush()
        meter = _Meter()
        for _ in range(max(1, records // 50_000)):
            producer.send_arrow(topic, rows)
        producer.flush()
        return meter.cost(max(1, records // 50_000) * 50_000)


def ottla_poll(bootstrap: str, records: int) -> Cost:
    """`Consumer.poll`."""
    from ottla import Consumer, TopicPartition

    tp = TopicPartition(_filled(bootstrap, records), 0)
    with Consumer(_consumer_settings(bootstrap)) as consumer:
        consumer.assign([tp])
        consumer.seek_to_beginning([tp])
        left = records
        meter = _Meter()
        while left > 0:
            polled = consumer.poll(1.0)
            for record in polled:
                _touch(record.value, record.offset)
            left -= len(polled)
        return meter.cost(records)


def ottla_for(bootstrap: str, records: int) -> Cost:
    """`for record in consumer`."""
    from ottla import Consumer, TopicPartition

    tp = TopicPartition(_filled(bootstrap, records), 0)
    with Consumer(_consumer_settings(bootstrap)) as consumer:
        consumer.assign([tp])
        consumer.seek_to_beginning([tp])
        left = records
        meter = _Meter()
        for record in consumer:
            _touch(record.value, record.offset)
            left -= 1
            if left == 0:
                break
        return meter.cost(records)


def ottla_columns(bootstrap: str, records: int) -> Cost:
    """`Consumer.poll_arrow`."""
    from ottla import Consumer, TopicPartition

    topic = _filled(bootstrap, records)
    tp = TopicPartition(topic, 0)
    with Consumer(_consumer_settings(bootstrap)) as consumer:
        consumer.assign([tp])
        consumer.seek_to_beginning([tp])
        consumer.poll_arrow(1.0)  # imports pyarrow
        consumer.seek(tp, 0)
        left = records
        meter = _Meter()
        while left > 0:
            left -= sum(batch.num_rows for batch in consumer.poll_arrow(1.0).values())
        return meter.cost(records)


def ottla_async_send(bootstrap: str, records: int) -> Cost:
    """`await AsyncProducer.send`."""

    async def run() -> Cost:
        from ottla import AsyncProducer

        topic = await asyncio.to_thread(new_topic, bootstrap)
        async with AsyncProducer(_producer_settings(bootstrap)) as producer:
            await producer.partitions_for(topic)
            meter = _Meter()
            for _ in range(records):
                await producer.send(topic, _VALUE)
            await producer.flush()
            return meter.cost(records)

    return _run(run)


def ottla_async_for(bootstrap: str, records: int) -> Cost:
    """`async for record in AsyncConsumer`."""

    async def run() -> Cost:
        from ottla import AsyncConsumer, TopicPartition

        tp = TopicPartition(_filled(bootstrap, records), 0)
        async with AsyncConsumer(_consumer_settings(bootstrap)) as consumer:
            consumer.assign([tp])
            consumer.seek_to_beginning([tp])
            left = records
            meter = _Meter()
            async for record in consumer:
                _touch(record.value, record.offset)
                left -= 1
                if left == 0:
                    break
            return meter.cost(records)

    return _run(run)


def _transactional(bootstrap: str, topic: str) -> tuple[dict[str, object], dict[str, object]]:
    reader = {**_consumer_settings(bootstrap), "group.id": topic, "isolation.level": "read_committed"}
    return reader | {"max.poll.records": _TRANSACTION}, {**_producer_settings(bootstrap), "transactional.id": topic}


def ottla_transactions(bootstrap: str, records: int) -> Cost:
    """`poll`, `send`, `send_offsets_to_transaction`, `commit_transaction`."""
    from ottla import Consumer, OffsetAndMetadata, Producer, TopicPartition

    out = new_topic(bootstrap)
    reader, writer = _transactional(bootstrap, out)
    tp, left = TopicPartition(_filled(bootstrap, records), 0), records
    with Consumer(reader) as consumer, Producer(writer) as producer:
        producer.init_transactions()
        producer.partitions_for(out)
        consumer.assign([tp])
        consumer.seek(tp, 0)
        meter = _Meter()
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
        return meter.cost(records)


def ottla_transactions_of_columns(bootstrap: str, records: int) -> Cost:
    """The same by `poll_arrow` and `send_arrow`: a transaction is a fetch, not 500 records."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from ottla import Consumer, OffsetAndMetadata, Producer, TopicPartition

    out = new_topic(bootstrap)
    reader, writer = _transactional(bootstrap, out)
    tp, left = TopicPartition(_filled(bootstrap, records), 0), records
    with Consumer(reader) as consumer, Producer(writer) as producer:
        producer.init_transactions()
        producer.partitions_for(out)
        consumer.assign([tp])
        consumer.seek(tp, 0)
        meter = _Meter()
        while left > 0:
            for rows in consumer.poll_arrow(1.0).values():
                producer.begin_transaction()
                changed = pc.utf8_upper(rows.column("value").cast(pa.string()))
                producer.send_arrow(out, pa.record_batch({"value": changed}))
                offsets = {tp: OffsetAndMetadata(rows.column("offset")[-1].as_py() + 1)}
                producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
                producer.commit_transaction()
                left -= rows.num_rows
        return meter.cost(records)


# confluent-kafka


def confluent_produce(bootstrap: str, records: int) -> Cost:
    """`Producer.produce` with `on_delivery`."""
    from confluent_kafka import Producer

    topic = new_topic(bootstrap)
    queue = {"queue.buffering.max.messages": 4_000_000}
    producer: Any = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "acks": "all", **queue})
    producer.list_topics(topic)
    meter = _Meter()
    for n in range(records):
        producer.produce(topic, _VALUE, on_delivery=_told_with_error)
        if n % 1000 == 0:
            producer.poll(0)
    producer.flush()
    return meter.cost(records)


def _confluent_consumer(bootstrap: str, topic: str) -> Any:
    from confluent_kafka import Consumer, TopicPartition

    settings = {"group.id": topic, "enable.auto.commit": False, "queued.min.messages": 3_000_000}
    consumer: Any = Consumer({"bootstrap.servers": bootstrap, "fetch.queue.backoff.ms": 10, **settings})
    consumer.assign([TopicPartition(topic, 0, 0)])
    return consumer


def confluent_poll(bootstrap: str, records: int) -> Cost:
    """`Consumer.poll`."""
    consumer = _confluent_consumer(bootstrap, _filled(bootstrap, records))
    left = records
    meter = _Meter()
    while left > 0:
        message = consumer.poll(1.0)
        if message is not None:
            _touch(message.value(), message.offset())
            left -= 1
    cost = meter.cost(records)
    consumer.close()
    return cost


def confluent_consume(bootstrap: str, records: int) -> Cost:
    """`Consumer.consume`, 5,000 at once."""
    consumer = _confluent_consumer(bootstrap, _filled(bootstrap, records))
    left = records
    meter = _Meter()
    while left > 0:
        messages = consumer.consume(_POLL, 1.0)
        for message in messages:
            _touch(message.value(), message.offset())
        left -= len(messages)
    cost = meter.cost(records)
    consumer.close()
    return cost


def confluent_transactions(bootstrap: str, records: int) -> Cost:
    """`consume`, `produce`, `send_offsets_to_transaction`, `commit_transaction`."""
    from confluent_kafka import Producer, TopicPartition

    topic, out = _filled(bootstrap, records), new_topic(bootstrap)
    consumer = _confluent_consumer(bootstrap, topic)
    producer: Any = Producer({"bootstrap.servers": bootstrap, "transactional.id": out})
    producer.init_transactions()
    producer.list_topics(out)
    left = records
    meter = _Meter()
    while left > 0:
        messages = consumer.consume(min(_TRANSACTION, left), 1.0)
        if not messages:
            continue
        producer.begin_transaction()
        for message in messages:
            producer.produce(out, message.value().upper())
        offsets = [TopicPartition(topic, 0, messages[-1].offset() + 1)]
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata())
        producer.commit_transaction()
        left -= len(messages)
    cost = meter.cost(records)
    consumer.close()
    return cost


# aiokafka


def aiokafka_send(bootstrap: str, records: int) -> Cost:
    """`await AIOKafkaProducer.send`."""

    async def run() -> Cost:
        from aiokafka import AIOKafkaProducer

        topic = await asyncio.to_thread(new_topic, bootstrap)
        size = {"max_batch_size": 1_000_000, "max_request_size": 2_000_000}
        async with AIOKafkaProducer(bootstrap_servers=bootstrap, linger_ms=5, acks="all", **size) as producer:
            await producer.partitions_for(topic)
            meter = _Meter()
            for _ in range(records):
                await producer.send(topic, _VALUE)
            await producer.flush()
            return meter.cost(records)

    return _run(run)


def aiokafka_for(bootstrap: str, records: int) -> Cost:
    """`async for record in AIOKafkaConsumer`."""

    async def run() -> Cost:
        from aiokafka import AIOKafkaConsumer, TopicPartition

        topic = _filled(bootstrap, records)
        settings = {"enable_auto_commit": False, "max_partition_fetch_bytes": 10_485_760}
        async with AIOKafkaConsumer(bootstrap_servers=bootstrap, **settings) as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            await consumer.seek_to_beginning()
            left = records
            meter = _Meter()
            async for record in consumer:
                _touch(record.value, record.offset)
                left -= 1
                if left == 0:
                    break
            return meter.cost(records)

    return _run(run)


def _run(work: Callable[[], Any]) -> Cost:
    import uvloop

    cost: Cost = uvloop.run(work())
    return cost


_topics: dict[int, str] = {}


def _filled(bootstrap: str, records: int) -> str:
    """A topic with so many records, made once; batches of 1 MB, as `send` makes them."""
    topic = _topics.get(records)
    if topic is None:
        from ottla import Producer

        topic = _topics[records] = new_topic(bootstrap)
        with Producer(_producer_settings(bootstrap)) as producer:
            for _ in range(records):
                producer.send(topic, _VALUE)
    return topic


FIGURES: dict[str, Callable[[str, int], Cost]] = {
    each.__name__: each
    for each in (
        floor_of_send,
        ottla_send,
        ottla_send_with_callback,
        ottla_send_arrow,
        confluent_produce,
        floor_of_poll,
        ottla_poll,
        ottla_for,
        confluent_poll,
        ottla_columns,
        confluent_consume,
        ottla_transactions,
        ottla_transactions_of_columns,
        confluent_transactions,
        ottla_async_send,
        aiokafka_send,
        ottla_async_for,
        aiokafka_for,
    )
}


def main() -> None:
    """Print a line for each figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bootstrap")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--only", nargs="+", default=list(FIGURES), choices=FIGURES)
    asked = parser.parse_args()
    found: dict[str, list[Cost]] = {name: [] for name in asked.only}
    for _ in range(asked.rounds):
        for name in asked.only:
            found[name].append(FIGURES[name](asked.bootstrap, asked.records))
    for name, costs in found.items():
        process, thread, wall = (statistics.median(values) for values in zip(*costs, strict=True))
        least = min(cost.process for cost in costs)
        cpu = f"process {process:7.0f} ns (least {least:7.0f}), user's thread {thread:7.0f} ns"
        print(f"{name:30} {cpu}, clock {wall:8.0f} ns", flush=True)


if __name__ == "__main__":
    main()
