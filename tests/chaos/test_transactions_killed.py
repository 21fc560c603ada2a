"""The broker is killed again and again under three transactional producers; a reader that is not ours counts (T13).

Committed records are read once, aborted ones never. An end whose outcome the client could not learn may be either, but
not a part of it.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla import TopicPartition as Partition
from ottla.testing import Broker, History
from tests.chaos.outages import chaos_seeds, drawn
from tests.recording.final import assert_good, note_logs, note_positions
from tests.recording.librdkafka import RecordingConsumer, RecordingProducer

pytestmark = pytest.mark.chaos

_PARTITIONS = 4
_KILLS = 8


@dataclass
class _Worker:
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

    def run(self) -> None:
        while not self.stop.is_set():
            self.lives += 1
            settings = {"transactional.id": f"x{self.number}", "linger.ms": 0, "log_level": 0}
            who = f"x{self.number} life {self.lives}"
            producer = RecordingProducer({"bootstrap.servers": self.bootstrap, **settings}, self.history, who)
            try:
                producer.init_transactions(30)
                while not self.stop.is_set():
                    self.transaction(producer)
            except KafkaException:
                producer.given_up()
                continue  # fenced, or given up on: the next producer of this id goes on

    def transaction(self, producer: RecordingProducer) -> None:
        # Drawn for each transaction anew: what an outage does to one changes nothing in those after it.
        draw = random.Random(f"{self.seed} {self.number} {self.begun}")
        self.begun += 1
        values = []
        producer.begin_transaction()
        for _ in range(draw.randint(1, 10)):
            value = b"%d:%d" % (self.number, self.written)
            self.written += 1
            values.append(value)
            producer.produce("t", value, partition=draw.randrange(_PARTITIONS))
        try:
            committed = draw.random() < 0.7 and _commit(producer)
            if not committed:
                producer.abort_transaction(30)
        except KafkaException:
            self.unknown.append(values)
            raise
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


class _Reader:
    """A group of one that reads what is committed while the broker is killed, and commits what it has read."""

    group = "reads along"

    def __init__(self, bootstrap: str, history: History) -> None:
        settings = {"isolation.level": "read_committed", "auto.offset.reset": "earliest", "enable.auto.commit": False}
        base = {"bootstrap.servers": bootstrap, "group.id": self.group, "log_level": 0}
        self._consumer = RecordingConsumer({**base, **settings}, history, "reader")
        self._consumer.subscribe(["t"])
        self._thread = threading.Thread(target=self._run)
        self._reached: dict[int, int] = {}
        self._last: dict[int, int] | None = None
        self._failed: BaseException | None = None
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


def _read_committed(bootstrap: str) -> Counter[bytes]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "count",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition("t", number, 0) for number in range(_PARTITIONS)])
    seen: Counter[bytes] = Counter()
    ends = 0
    while ends < _PARTITIONS:
        message = consumer.poll(30)
        assert message is not None, "a partition's end was not reached"
        if message.error() is not None:
            ends += 1
        else:
            seen[message.value()] += 1
    consumer.close()
    return seen


@chaos_seeds(1, 2)
def test_t13_transactions_are_whole_over_kills_of_the_broker(seed: int) -> None:
    ended, stop, history = threading.Semaphore(0), threading.Event(), History()
    with Broker() as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
        admin.create_topics([NewTopic("t", _PARTITIONS, 1)])["t"].result()
        workers = [_Worker(number, broker.bootstrap_servers, seed, ended, stop, history) for number in range(3)]
        reader = _Reader(broker.bootstrap_servers, history)
        threads = [threading.Thread(target=worker.run) for worker in workers]
        for thread in threads:
            thread.start()
        for fault in drawn(seed, _KILLS, 300):
            for _ in range(fault.after_steps):
                assert ended.acquire(timeout=60), "no transaction ended for a minute"
            broker.kill()
            broker.start()
        assert ended.acquire(timeout=60)
        stop.set()
        for thread in threads:
            thread.join()
        seen = _read_committed(broker.bootstrap_servers)
        partitions = [Partition("t", number) for number in range(_PARTITIONS)]
        logs = note_logs(history, broker.bootstrap_servers, {"t": _PARTITIONS})
        reader.finish({tp.partition: max(r.offset for r in log if r.visible) for tp, log in logs.items()})
        history.drained(reader.group, partitions)
        note_positions(history, broker.bootstrap_servers, reader.group)
        assert_good(history)
    committed = {value for worker in workers for values in worker.committed for value in values}
    aborted = {value for worker in workers for values in worker.aborted for value in values}
    assert committed - seen.keys() == set(), "lost"
    assert {value for value, count in seen.items() if count > 1} == set(), "duplicated"
    assert aborted & seen.keys() == set(), "aborted, and read"
    for worker in workers:
        for values in worker.unknown:
            assert len(seen.keys() & set(values)) in (0, len(values)), "torn"
