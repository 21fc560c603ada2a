"""What our clients must stand while brokers are killed: what they wrote is there once and in order (P4), what they
turned from one topic into another came exactly once (T11, T13). The chaos tests run it on our broker, interop on three
of Apache Kafka's. What the clients were told is judged by `check_history`, too.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

from ottla import Admin, Consumer, Delivery, NewTopic, OffsetAndMetadata, Producer, TopicPartition, exactly_once
from ottla.client.errors import ClientError, RequestTimeoutError
from ottla.testing import History
from tests.chaos.outages import Outages
from tests.recording.final import assert_good, note_logs, note_positions
from tests.recording.notes import uid
from tests.recording.ours import RecordingConsumer, RecordingProducer

PARTITIONS = 2
_WAIT_S = 60.0


def create_topics(servers: str) -> None:
    """`in`, of one partition, and `out`."""
    with Admin({"bootstrap.servers": servers}) as admin:
        admin.create_topics([NewTopic("in", 1), NewTopic("out", PARTITIONS)])


def produce_through(servers: str, outages: Outages) -> None:
    """P4: an idempotent producer writes every record once and in order, and none fails."""
    done: list[Delivery] = []
    config = {"bootstrap.servers": servers, "linger.ms": 1, "buffer.memory": 500_000}
    sent = 0
    history = History()
    with outages, RecordingProducer(config, history, "producer") as producer:

        def delivered(delivery: Delivery) -> None:
            done.append(delivery)
            outages.step()

        while not outages.done.is_set() or sent < 50_000:
            producer.send("out", b"%d" % sent, partition=sent % PARTITIONS, on_delivery=delivered)
            sent += 1
        producer.flush(_WAIT_S)
    assert len(done) == sent
    assert [delivery.exception() for delivery in done if delivery.exception()] == []
    assert _read(servers, "out") == {n: list(range(n, sent, PARTITIONS)) for n in range(PARTITIONS)}
    note_logs(history, servers, {"out": PARTITIONS})
    assert_good(history)


def copy_through(servers: str, outages: Outages) -> None:
    """T11: consume, transform, produce is exactly once."""
    reading = {"group.id": "copy", "enable.auto.commit": False, "auto.offset.reset": "earliest"}
    bounded = {"isolation.level": "read_committed", "max.poll.records": 7}
    base = {"bootstrap.servers": servers}
    history = History()
    with (
        outages,
        RecordingConsumer(base | reading | bounded, history, "consumer") as consumer,
        RecordingProducer(base | {"transactional.id": "copy"}, history, "producer") as producer,
        RecordingProducer(base, history, "source") as source,
    ):
        consumer.subscribe(["in"])
        producer.init_transactions()
        sent, attempts = 0, itertools.count()
        while not outages.done.is_set() or sent < 500:
            for _ in range(20):  # there is always something to copy
                source.send("in", b"%d" % sent)
                sent += 1
            copy_once(consumer, producer, next(attempts))
            outages.step()
        source.flush(_WAIT_S)
        while _copied(consumer) < sent:
            copy_once(consumer, producer, next(attempts))
    assert _read(servers, "out") == {n: list(range(n, sent, PARTITIONS)) for n in range(PARTITIONS)}
    note_logs(history, servers, {"in": 1, "out": PARTITIONS})
    note_positions(history, servers, "copy")
    history.drained("copy", [TopicPartition("in", 0)], transforms=True)
    assert_good(history)


def copy_exactly_once_through(servers: str, outages: Outages) -> None:
    """T11: the loop of `exactly_once` copies every record once and in order, and never raises."""
    base = {"bootstrap.servers": servers}
    config = {**base, "group.id": "copy-loop", "max.poll.records": 7}
    sent = copied = 0
    with outages, Producer(base) as source, exactly_once("in", "out", "copy-loop", config) as work:
        source.send("in", b"%d" % sent).result(_WAIT_S)  # there is always something to copy
        sent += 1
        for batch in work:
            for _ in range(20 if sent < 500 or not outages.done.is_set() else 0):
                source.send("in", b"%d" % sent)
                sent += 1
            for record in batch:
                batch.send(record.value, partition=int(record.value) % PARTITIONS)
                copied = int(record.value) + 1
            outages.step()
            if outages.done.is_set() and sent >= 500:
                source.flush(_WAIT_S)
                if copied == sent:
                    break
    assert _read(servers, "out") == {n: list(range(n, sent, PARTITIONS)) for n in range(PARTITIONS)}


def _read(servers: str, topic: str) -> dict[int, list[int]]:
    """Partition → its committed values in order."""
    found: dict[int, list[int]] = {number: [] for number in range(PARTITIONS)}
    with Consumer({"bootstrap.servers": servers, "isolation.level": "read_committed"}) as consumer:
        assigned = [TopicPartition(topic, number) for number in found]
        consumer.assign(assigned)
        consumer.seek_to_beginning()
        ends = consumer.end_offsets(assigned)
        while any(consumer.position(tp) < ends[tp] for tp in assigned):
            for record in consumer.poll(1.0):
                found[record.partition].append(int(record.value.partition(b".")[0]))
    return found


def _copied(consumer: Consumer) -> int:
    tp = TopicPartition("in", 0)
    return consumer.position(tp, _WAIT_S) if consumer.assignment() else 0


def copy_once(consumer: RecordingConsumer, producer: RecordingProducer, attempt: int) -> None:
    """One poll, one transaction; a transaction that fails is aborted and its records are read again.

    The number of the attempt stands in what it writes: so it is known which of them was committed.
    """
    records = consumer.poll(0.5)
    if not records:
        return
    producer.begin_transaction()
    try:
        for record in records:
            value = b"%s.%d" % (record.value, attempt)
            source = uid("in", record.value)
            producer.send("out", value, source=source, partition=int(record.value) % PARTITIONS)
        positions = {tp: OffsetAndMetadata(consumer.position(tp)) for tp in consumer.assignment()}
        producer.send_offsets_to_transaction(positions, consumer.group_metadata())
        _until_known(producer.commit_transaction)
    except ClientError:
        _until_known(producer.abort_transaction)
        committed = consumer.committed(consumer.assignment())
        for tp in consumer.assignment():
            consumer.seek(tp, committed[tp].offset if tp in committed else 0)


def _until_known(end: Callable[[], None]) -> None:
    """An end that timed out is asked for again: only then is its outcome known."""
    while True:
        try:
            end()
        except RequestTimeoutError:
            continue
        return
