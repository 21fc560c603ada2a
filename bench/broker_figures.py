"""One broker seen from outside, with librdkafka, which is fast enough not to be what is measured."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Sequence
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from bench.broker_cpu import counted
from bench.figure import CPU, MICROSECONDS, RATE, SECONDS, TRANSACTIONS, Measure, Unit, Values, percentile
from bench.loud import loud_producer

NOTE = (
    "CPU is user and system time of the broker's process, all threads, in seconds for a million records or "
    "transactions. Aims: rates and acknowledged p50 1.0, transactions 3."
)
_WAIT_S = 60.0
_PREFIX = "bench-"
SIZES = {"100 B": (100, 1_500_000), "1 KB": (1_000, 400_000), "10 KB": (10_000, 50_000)}


def new_topic(bootstrap: str, partitions: int = 1) -> str:
    """A topic of its own for one measurement, ready to be written to."""
    name = f"{_PREFIX}{uuid.uuid4().hex[:10]}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(_WAIT_S)
    while len(admin.list_topics(name, _WAIT_S).topics[name].partitions) < partitions:
        pass
    return name


def delete_topics(bootstrap: str, topics: Sequence[str] = ()) -> None:
    """Delete these, or all that were made for measurements: a whole run would fill 60 GB of a disk."""
    admin = AdminClient({"bootstrap.servers": bootstrap})  # kept: without it the answers would be lost
    named = topics or [name for name in admin.list_topics(timeout=_WAIT_S).topics if name.startswith(_PREFIX)]
    for answer in admin.delete_topics(list(named)).values():
        answer.result(_WAIT_S)


def produce(bootstrap: str, topic: str, records: int, size: int, **settings: Any) -> float:
    """Records a second until the last acknowledgement, acks=all."""
    queue = {"queue.buffering.max.messages": 4_000_000, "queue.buffering.max.kbytes": 2_000_000}
    base = {"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 5, "batch.size": 1_000_000, **queue}
    producer = loud_producer({**base, **settings})
    producer.list_topics(topic, _WAIT_S)
    value = bytes(range(256)) * (size // 256 + 1)
    value = value[:size]
    start = time.perf_counter()
    for n in range(records):
        try:
            producer.produce(topic, value)
        except BufferError:
            producer.poll(0.01)
            producer.produce(topic, value)
        if n % 1000 == 0:
            producer.poll(0)
    producer.flush()
    return records / (time.perf_counter() - start)


def consume(bootstrap: str, topic: str, records: int, **settings: Any) -> float:
    """Records a second from the first one on."""
    fetch = {"fetch.max.bytes": 52_428_800, "max.partition.fetch.bytes": 10_485_760, "fetch.queue.backoff.ms": 10}
    queue = {"queued.min.messages": 3_000_000, "queued.max.messages.kbytes": 1_000_000}
    consumer: Any = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": topic, "enable.auto.commit": False, **fetch, **queue, **settings}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    first = 0
    while not first:
        first = len(consumer.consume(1000, 1.0))
    left, start = records - first, time.perf_counter()
    while left > 0:
        left -= len(consumer.consume(min(left, 10_000), 1.0))
    taken = time.perf_counter() - start
    consumer.close()
    return (records - first) / taken


def rates(bootstrap: str, scale: float) -> Values:
    """In and out, at three sizes."""
    found: Values = {}
    for name, (size, full) in SIZES.items():
        records = int(full * scale)
        topic = new_topic(bootstrap)
        with counted(found, f"in, {name}", records):
            found[f"in, {name}"] = produce(bootstrap, topic, records, size)
        with counted(found, f"out, {name}", records):
            found[f"out, {name}"] = consume(bootstrap, topic, records)
    return found


def producers(bootstrap: str, scale: float) -> Values:
    """What idempotence and compression do to the rate at 1 KB."""
    records, found = int(400_000 * scale), Values()
    more: dict[str, dict[str, Any]] = {"idempotent": {"enable.idempotence": True}, "lz4": {"compression.type": "lz4"}}
    for name, settings in more.items():
        topic = new_topic(bootstrap)
        with counted(found, f"in, 1 KB, {name}", records):
            found[f"in, 1 KB, {name}"] = produce(bootstrap, topic, records, 1000, **settings)
    return found


def acknowledged(bootstrap: str, scale: float) -> Values:
    """One record at a time, from produce() to its acknowledgement."""
    topic, records, cpu = new_topic(bootstrap), max(200, int(1500 * scale)), Values()
    taken: list[float] = []
    producer = loud_producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "acks": "all"})
    with counted(cpu, "acknowledged write", records):
        for _ in range(records):
            start = time.perf_counter()
            producer.produce(topic, b"x" * 100)
            producer.flush()
            taken.append((time.perf_counter() - start) * 1e6)
    return _told("acknowledged write", taken[50:]) | cpu


def _told(name: str, taken: list[float]) -> Values:
    return {f"{name}, p50": percentile(taken, 0.5), f"{name}, p99": percentile(taken, 0.99)}


def end_to_end(bootstrap: str, scale: float) -> Values:
    """From produce() to the consumer's hand, at 500 records a second."""
    topic, records, cpu = new_topic(bootstrap), max(400, int(3000 * scale)), Values()
    taken: list[float] = []
    consumer: Any = Consumer({"bootstrap.servers": bootstrap, "group.id": topic, "fetch.wait.max.ms": 500})
    consumer.assign([TopicPartition(topic, 0, 0)])

    def read() -> None:
        while len(taken) < records:
            message = consumer.poll(5.0)
            if message is not None and not message.error():
                taken.append((time.time() - float(message.value())) * 1e6)

    reader = threading.Thread(target=read)
    reader.start()
    producer = loud_producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "acks": "all"})
    with counted(cpu, "end to end", records):
        for _ in range(records):
            producer.produce(topic, b"%020.6f" % time.time())
            producer.poll(0)
            time.sleep(0.002)
        producer.flush()
        reader.join()
    consumer.close()
    return _told("end to end", taken[100:]) | cpu


def transactions(bootstrap: str, scale: float) -> Values:
    """Transactions of ten records, one after the other, one producer."""
    topic, times, cpu = new_topic(bootstrap), max(50, int(400 * scale)), Values()
    producer: Any = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic, "linger.ms": 0})
    producer.init_transactions()

    def commit(count: int) -> None:
        for _ in range(count):
            producer.begin_transaction()
            for _ in range(10):
                producer.produce(topic, b"x" * 100)
            producer.commit_transaction()

    commit(10)
    start = time.perf_counter()
    with counted(cpu, "transactions of 10 records", times):
        commit(times)
    return {"transactions of 10 records": times / (time.perf_counter() - start), **cpu}


FIGURES: dict[str, Measure] = {
    "rates": rates,
    "producers": producers,
    "acknowledged": acknowledged,
    "end_to_end": end_to_end,
    "transactions": transactions,
}


def unit_of(name: str) -> Unit:
    """The unit of a value of this module."""
    if name.startswith("kill -9"):
        return SECONDS
    if name.endswith("CPU"):
        return CPU
    if name.startswith(("in,", "out,")):
        return RATE
    if name.startswith("transactions"):
        return TRANSACTIONS
    return MICROSECONDS
