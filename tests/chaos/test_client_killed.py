"""kill -9 of the broker under our own clients: what they wrote is there once and in order (P4), what they turned from
one topic into another came exactly once (T11, T13)."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator

import pytest

from ottla import Admin, Consumer, Delivery, NewTopic, OffsetAndMetadata, Producer, TopicPartition
from ottla.client.errors import ClientError, RequestTimeoutError
from ottla.testing import Broker

pytestmark = pytest.mark.chaos

_PARTITIONS = 2
_WAIT_S = 60.0
#: Broker kills, and how many steps of the work lie between two of them at most.
_SHORT, _LONG = 3, 12
_AMOUNTS = [
    pytest.param(1, _SHORT, id="short"),
    pytest.param(2, _LONG, id="long", marks=pytest.mark.slow),
]


class _Killer:
    """Kills and restarts the broker each time a number of steps, drawn from a seed, has been done."""

    def __init__(self, broker: Broker, seed: int, kills: int, steps_between: int) -> None:
        draw = random.Random(seed)
        self._broker = broker
        self._left = [draw.randint(1, steps_between) for _ in range(kills)]
        self._kills = kills
        self._due = threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run)
        self.done = threading.Event()

    def step(self) -> None:
        """One more is done: perhaps it is time. From one thread."""
        if self._left:
            self._left[0] -= 1
            if self._left[0] == 0:
                self._left.pop(0)
                self._due.release()

    def __enter__(self) -> _Killer:
        self._thread.start()
        return self

    def __exit__(self, *_raised: object) -> None:
        for _ in self._left:  # what failed shall not wait for kills that do not come
            self._due.release()
        self._thread.join(_WAIT_S)

    def _run(self) -> None:
        for _ in range(self._kills):
            self._due.acquire()
            self._broker.kill()
            self._broker.restart()
        self.done.set()


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as started:
        with Admin({"bootstrap.servers": started.bootstrap_servers}) as admin:
            admin.create_topics([NewTopic("in", 1, 1), NewTopic("out", _PARTITIONS, 1)])
        yield started


def _read(broker: Broker, topic: str, partitions: int) -> dict[int, list[int]]:
    """Partition → its committed values in order."""
    found: dict[int, list[int]] = {number: [] for number in range(partitions)}
    config = {"bootstrap.servers": broker.bootstrap_servers, "isolation.level": "read_committed"}
    with Consumer(config) as consumer:
        assigned = [TopicPartition(topic, number) for number in found]
        consumer.assign(assigned)
        consumer.seek_to_beginning()
        ends = consumer.end_offsets(assigned)
        while any(consumer.position(tp) < ends[tp] for tp in assigned):
            for record in consumer.poll(1.0):
                found[record.partition].append(int(record.value))
    return found


@pytest.mark.parametrize(("seed", "kills"), _AMOUNTS)
def test_p4_our_idempotent_producer_writes_every_record_once_and_in_order(
    broker: Broker, seed: int, kills: int
) -> None:
    done: list[Delivery] = []
    config = {"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 1, "buffer.memory": 500_000}
    sent = 0
    with _Killer(broker, seed, kills, 30_000) as killer, Producer(config) as producer:

        def delivered(delivery: Delivery) -> None:
            done.append(delivery)
            killer.step()

        while not killer.done.is_set() or sent < 50_000:
            producer.send("out", b"%d" % sent, partition=sent % _PARTITIONS, on_delivery=delivered)
            sent += 1
        producer.flush(_WAIT_S)
    assert len(done) == sent
    assert [delivery.exception() for delivery in done if delivery.exception()] == []
    assert _read(broker, "out", _PARTITIONS) == {n: list(range(n, sent, _PARTITIONS)) for n in range(_PARTITIONS)}


@pytest.mark.parametrize(("seed", "kills"), _AMOUNTS)
def test_t11_our_consume_transform_produce_is_exactly_once(broker: Broker, seed: int, kills: int) -> None:
    servers = {"bootstrap.servers": broker.bootstrap_servers}
    reading = {"group.id": "copy", "enable.auto.commit": False, "auto.offset.reset": "earliest"}
    bounded = {"isolation.level": "read_committed", "max.poll.records": 7}
    with (
        _Killer(broker, seed, kills, 40) as killer,
        Consumer(servers | reading | bounded) as consumer,
        Producer(servers | {"transactional.id": "copy"}) as producer,
        Producer(servers) as source,
    ):
        consumer.subscribe(["in"])
        producer.init_transactions()
        sent = 0
        while not killer.done.is_set() or sent < 500:
            for _ in range(20):  # there is always something to copy
                source.send("in", b"%d" % sent)
                sent += 1
            _copy(consumer, producer)
            killer.step()
        source.flush(_WAIT_S)
        while _copied(consumer) < sent:
            _copy(consumer, producer)
    found = _read(broker, "out", _PARTITIONS)
    assert found == {n: list(range(n, sent, _PARTITIONS)) for n in range(_PARTITIONS)}


def _copied(consumer: Consumer) -> int:
    tp = TopicPartition("in", 0)
    return consumer.position(tp, _WAIT_S) if consumer.assignment() else 0


def _copy(consumer: Consumer, producer: Producer) -> None:
    """One poll, one transaction; a transaction that fails is aborted and its records are read again."""
    records = consumer.poll(0.5)
    if not records:
        return
    producer.begin_transaction()
    try:
        for record in records:
            producer.send("out", record.value, partition=int(record.value) % _PARTITIONS)
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
