"""What chaos tests let a broker do while it is killed: transactions, a reader, topics that come and go.

The clients are confluent-kafka's. What they are told is noted, for `check_history` and for a count at the end.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

from ottla import Admin
from ottla.testing import History
from tests.recording.librdkafka import RecordingConsumer, RecordingProducer

PARTITIONS = 4
#: How often a worker that stops tries to end what it has left open, thirty seconds each.
_TRIES_AT_THE_END = 4
_MARKERS_S = 60.0
#: Whose broker is killed often connects again soon.
OFTEN_KILLED = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200, "log_level": 0}


@dataclass
class Worker:
    """One transactional producer, and what became of each of its transactions."""

    number: int
    bootstrap: str
    seed: int
    ended: threading.Semaphore
    stop: threading.Event
    history: History
    lives: int = 0
    committed: list[list[bytes]] = field(default_factory=list)
    aborted: list[list[bytes]] = field(default_factory=list)
    unknown: list[list[bytes]] = field(default_factory=list)
    begun: int = 0
    written: int = 0
    #: The last transaction has no known end: it may be open, and hold back whoever reads what is committed.
    is_open: bool = False

    def run(self) -> None:
        """Transactions, until `stop`. None is left open, if the broker lets somebody end it within two minutes."""
        tries = _TRIES_AT_THE_END
        while not self.stop.is_set() or (self.is_open and tries > 0):
            tries -= self.stop.is_set()
            self.lives += 1
            settings = {"transactional.id": f"x{self.number}", "linger.ms": 0, **OFTEN_KILLED}
            who = f"x{self.number} life {self.lives}"
            producer = RecordingProducer({"bootstrap.servers": self.bootstrap, **settings}, self.history, who)
            try:
                producer.init_transactions(30)
                self.is_open = False
                while not self.stop.is_set():
                    self.transaction(producer)
            except KafkaException:
                producer.given_up()
                continue  # fenced, or given up on: the next producer of this id goes on

    def transaction(self, producer: RecordingProducer) -> None:
        """One of them."""
        # Drawn for each transaction anew: what an outage does to one changes nothing in those after it.
        draw = random.Random(f"{self.seed} {self.number} {self.begun}")
        self.begun += 1
        values = []
        self.is_open = True
        producer.begin_transaction()
        for _ in range(draw.randint(1, 10)):
            value = b"%d:%d" % (self.number, self.written)
            self.written += 1
            values.append(value)
            producer.produce("t", value, partition=draw.randrange(PARTITIONS))
        try:
            committed = draw.random() < 0.7 and _commit(producer)
            if not committed:
                if draw.random() < 0.5:
                    producer.flush(5)  # else most of it was never written
                producer.abort_transaction(30)
        except KafkaException:
            self.unknown.append(values)
            raise
        self.is_open = False
        (self.committed if committed else self.aborted).append(values)
        self.ended.release()


def _commit(producer: RecordingProducer) -> bool:
    """Whether it was committed; False when the transaction must be aborted."""
    while True:
        try:
            producer.commit_transaction(30)
        except KafkaException as fault:
            if fault.args[0].txn_requires_abort():
                return False
            if not fault.args[0].retriable():
                raise
        else:
            return True


class Reader:
    """A group of one that reads what is committed while the broker is killed, and commits what it has read."""

    group = "reads along"

    def __init__(self, bootstrap: str, history: History) -> None:
        settings = {"isolation.level": "read_committed", "auto.offset.reset": "earliest", "enable.auto.commit": False}
        base = {"bootstrap.servers": bootstrap, "group.id": self.group, **OFTEN_KILLED}
        self._consumer = RecordingConsumer({**base, **settings}, history, "reader")
        self._consumer.subscribe(["t"])
        self._reached: dict[int, int] = {}
        self._last: dict[int, int] | None = None
        self._failed: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)  # a test that has failed does not wait for it
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._is_done():
                messages = self._consumer.consume(100, timeout=0.2)
                self._reached.update((each.partition(), each.offset()) for each in messages if each.error() is None)
                if messages:
                    self._commit()
            self._consumer.close()
        except BaseException as failed:  # noqa: BLE001  # raised where it is waited for
            self._failed = failed

    def _commit(self) -> None:
        # The broker was killed, or the group has rebalanced meanwhile: the next commit has it.
        with suppress(KafkaException):
            self._consumer.commit(asynchronous=False)

    def _is_done(self) -> bool:
        return self._last is not None and all(self._reached.get(p, -1) >= at for p, at in self._last.items())

    def finish(self, last: dict[int, int]) -> None:
        """Read up to the last offset of each partition."""
        self._last = last
        self._thread.join(60)
        assert not self._thread.is_alive(), f"it has come to {self._reached}, not to {last}"
        if self._failed is not None:
            raise self._failed


def values_of(bootstrap: str, topic: str, partitions: int) -> dict[int, list[bytes]]:
    """The committed values of each partition, in order."""
    settings = {"isolation.level": "read_committed", "enable.partition.eof": True, "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "count", **settings})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    found: dict[int, list[bytes]] = {number: [] for number in range(partitions)}
    ended: set[int] = set()
    while len(ended) < partitions:
        message = consumer.poll(60)
        assert message is not None, f"the broker sent nothing; the ends of {ended} were reached"
        if message.error() is None:
            found[message.partition()].append(message.value())
        else:
            assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
            ended.add(message.partition())
    consumer.close()
    return found


def markers_are_written(bootstrap: str) -> None:
    """Wait until every transaction that is decided has all of its markers: until then a reader may see half of it.

    So it is with Apache Kafka, too. A broker that has just started writes what the one before could not.
    """
    give_up = time.monotonic() + _MARKERS_S
    with Admin({"bootstrap.servers": bootstrap}) as admin:
        while left := admin.list_transactions(states=("PrepareCommit", "PrepareAbort")):
            assert time.monotonic() < give_up, f"decided, and not written after {_MARKERS_S:.0f} s: {left}"


def none_is_open(workers: Sequence[Worker]) -> None:
    """All have ended what they began: an open transaction would hide what is committed behind it."""
    assert [f"x{worker.number}" for worker in workers if worker.is_open] == [], "transactions that nobody could end"


def judge(workers: Sequence[Worker], bootstrap: str) -> None:
    """Committed records were read once, aborted ones never; of an unknown end all or nothing."""
    none_is_open(workers)
    seen = Counter(value for values in values_of(bootstrap, "t", PARTITIONS).values() for value in values)
    committed = {value for worker in workers for values in worker.committed for value in values}
    aborted = {value for worker in workers for values in worker.aborted for value in values}
    assert committed - seen.keys() == set(), "lost"
    assert {value for value, count in seen.items() if count > 1} == set(), "duplicated"
    assert aborted & seen.keys() == set(), "aborted, and read"
    for worker in workers:
        for values in worker.unknown:
            assert len(seen.keys() & set(values)) in (0, len(values)), "torn"


class Keys:
    """An idempotent producer that writes the keys of the compacted topic `keys`, and knows the last value of each."""

    def __init__(self, bootstrap: str, stop: threading.Event) -> None:
        self._bootstrap, self._stop = bootstrap, stop
        self._last: dict[bytes, int] = {}
        self._written = 0
        self._refused: list[object] = []

    def run(self) -> None:
        """Write, until `stop`."""
        settings = {"enable.idempotence": True, "linger.ms": 5, "delivery.timeout.ms": 120_000, **OFTEN_KILLED}
        producer = Producer({"bootstrap.servers": self._bootstrap, **settings, "batch.size": 2_000})
        while not self._stop.is_set():
            for _ in range(20):
                producer.produce("keys", b"%d" % self._written, self._key(), on_delivery=self._delivered)
                self._written += 1
            producer.poll(0.1)
            while len(producer) > 2_000 and not self._stop.is_set():
                producer.poll(0.1)
        assert producer.flush(120) == 0

    def _key(self) -> bytes:
        """One that is written often, or one that is written rarely: so that a pass keeps something, and not all."""
        n = self._written
        return b"often %d" % (n % 40) if n % 5 else b"rarely %d" % (n // 5 % 100)

    def _delivered(self, error: object, message: Message) -> None:
        if error is not None:
            self._refused.append(error)
        else:
            self._last[message.key()] = int(message.value())  # in order: there is one partition, and one producer

    def judge(self) -> None:
        """The last value of every key is there, and no key's values go back."""
        assert self._refused == []
        found: dict[bytes, int] = {}
        for _, key, value in records_with_keys(self._bootstrap, "keys"):
            assert value > found.get(key, -1), "a key's values go back"
            found[key] = value
        assert found == self._last


def records_with_keys(bootstrap: str, topic: str) -> list[tuple[int, bytes, int]]:
    """Offset, key and value of all records of partition 0."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "reads keys", "enable.partition.eof": True}
    consumer = Consumer({**settings, "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[tuple[int, bytes, int]] = []
    while True:
        message = consumer.poll(60)
        assert message is not None, "the broker sent nothing"
        if message.error() is not None:
            assert message.error().code() == KafkaError._PARTITION_EOF
            consumer.close()
            return found
        found.append((message.offset(), message.key(), int(message.value())))


class Churn:
    """Topics that are made, filled, trimmed and deleted; what was told to be made or deleted is so at the end."""

    def __init__(self, bootstrap: str, stop: threading.Event) -> None:
        self._admin = AdminClient({"bootstrap.servers": bootstrap, **OFTEN_KILLED})
        self._producer = Producer({"bootstrap.servers": bootstrap, "delivery.timeout.ms": 3_000, **OFTEN_KILLED})
        self._stop = stop
        self._deleted: set[str] = set()
        self._made: set[str] = set()

    def run(self) -> None:
        """Topics, until `stop`. What a killed broker has not answered may be or not."""
        number = 0
        while not self._stop.is_set():
            number += 1
            with suppress(KafkaException, TimeoutError):
                self._one(f"churn-{number}")

    def _one(self, name: str) -> None:
        topic = NewTopic(name, 2, 1, config={"internal.segment.bytes": "1000"})
        self._admin.create_topics([topic], operation_timeout=5)[name].result(5)
        self._made.add(name)
        for value in range(30):
            self._producer.produce(name, b"%100d" % value, partition=0)
            self._producer.flush(3)
        self._admin.delete_records([TopicPartition(name, 0, 20)])[TopicPartition(name, 0)].result(5)
        if int(name.rpartition("-")[2]) % 16:
            self._made.discard(name)
            self._admin.delete_topics([name], operation_timeout=5)[name].result(5)
            self._deleted.add(name)

    def judge(self) -> None:
        """Hold the topics against what was told."""
        there = set(self._admin.list_topics(timeout=30).topics)
        assert self._made <= there, "topics are lost"
        assert not self._deleted & there, "topics are back"


def make_small(admin: AdminClient, *topics: str) -> None:
    """So that the coordinators' logs have segments to clean, too."""
    small = ConfigEntry("internal.segment.bytes", "5000", incremental_operation=AlterConfigOpType.SET)
    wanted = [ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[small]) for topic in topics]
    for changed in admin.incremental_alter_configs(wanted).values():
        changed.result()
