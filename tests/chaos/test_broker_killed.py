"""kill -9 of the broker under load: what it acknowledged is there, once, in order; transactions are whole or absent."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.testing import Broker, History
from tests.chaos.load import records_with_keys, values_of
from tests.chaos.outages import Outages, chaos_seeds, drawn
from tests.recording.final import assert_good, note_logs
from tests.recording.librdkafka import RecordingProducer

pytestmark = pytest.mark.chaos

_PARTITIONS = 3
_KILLS = 4
_WAIT_S = 60.0


def _topic(broker: Broker, name: str) -> str:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic(name, _PARTITIONS, 1)])[name].result(_WAIT_S)
    return name


def _read(broker: Broker, topic: str) -> dict[int, list[int]]:
    """Partition → the committed values in order."""
    found = values_of(broker.bootstrap_servers, topic, _PARTITIONS)
    return {number: [int(value.partition(b".")[0]) for value in values] for number, values in found.items()}


def _killed(broker: Broker, seed: int, acknowledgements_between: int, kills: int = _KILLS) -> Outages:
    def carry_out(_victim: str) -> None:
        broker.kill()
        broker.restart()

    return Outages(drawn(seed, kills, acknowledgements_between), carry_out)


@chaos_seeds(1, slow=[2])
def test_p3_an_idempotent_producer_loses_and_repeats_nothing(seed: int) -> None:
    with Broker() as broker:
        topic = _topic(broker, "idempotent")
        acknowledged: list[int] = []
        history = History()
        with _killed(broker, seed, 8000) as outages:

            def delivered(value: int) -> Callable[[object, object], None]:
                def note(error: object, _message: object) -> None:
                    assert error is None, error
                    acknowledged.append(value)
                    outages.step()

                return note

            settings = {"bootstrap.servers": broker.bootstrap_servers, "enable.idempotence": True, "linger.ms": 1}
            producer = RecordingProducer(settings, history, "producer")
            for value in range(60_000):
                producer.produce(topic, b"%d" % value, partition=value % _PARTITIONS, on_delivery=delivered(value))
                if value % 100 == 0:
                    producer.poll(0.002)
            assert producer.flush(_WAIT_S) == 0
            assert outages.done.wait(_WAIT_S), "not every kill happened"
        assert sorted(acknowledged) == list(range(60_000))
        found = _read(broker, topic)
        assert found == {number: list(range(number, 60_000, _PARTITIONS)) for number in range(_PARTITIONS)}
        note_logs(history, broker.bootstrap_servers, {topic: _PARTITIONS})
        assert_good(history)


@chaos_seeds(1, slow=[2])
def test_t13_transactions_are_whole_or_absent(seed: int) -> None:
    _transactions_over_kills(seed, _KILLS, 60)


@pytest.mark.slow
def test_t13_500_kills_on_one_directory() -> None:
    _transactions_over_kills(3, 500, 8)


def _transactions_over_kills(seed: int, kills: int, transactions_between: int) -> None:
    with Broker() as broker:
        topic = _topic(broker, "transactional")
        committed: list[int] = []
        number = 0
        history = History()
        with _killed(broker, seed, transactions_between, kills) as outages:
            while not outages.done.is_set() or number < 300:
                settings = {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "t13"}
                producer = RecordingProducer(settings, history, f"producer from {number}")
                producer.init_transactions(_WAIT_S)
                try:
                    while not outages.done.is_set() or number < 300:
                        number += 1
                        _transaction(producer, topic, number)
                        if number % 2 == 0:
                            committed.append(number)
                        outages.step()
                except KafkaException:
                    # A producer that was hit is given up, as a crashed one would be; its number is not used again.
                    producer.given_up()
                    continue
        found = _read(broker, topic)
        whole = set.intersection(*(set(values) for values in found.values()))
        assert all(sorted(values) == sorted(whole) for values in found.values()), "a transaction is torn or twice"
        assert set(committed) <= whole, "a committed transaction is lost"
        # An unknown outcome may have been a commit; an odd number was aborted, and is never seen.
        assert all(value % 2 == 0 for value in whole)
        note_logs(history, broker.bootstrap_servers, {topic: _PARTITIONS})
        assert_good(history)


def _transaction(producer: RecordingProducer, topic: str, number: int) -> None:
    """One record in every partition; even numbers commit (and return), odd ones abort."""
    producer.begin_transaction()
    for partition in range(_PARTITIONS):
        producer.produce(topic, b"%d.%d" % (number, partition), partition=partition)
    if number % 2:
        producer.flush(_WAIT_S)
        producer.abort_transaction(_WAIT_S)
    else:
        producer.commit_transaction(_WAIT_S)


#: The cleaner never rests, and a segment is full after some hundred records.
_CLEANING = {"log.cleaner.backoff.ms": "10", "log.retention.check.interval.ms": "1000"}
_COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0", "internal.segment.bytes": "20000"}
_KEYS = 50


@chaos_seeds(1, slow=[2, 3, 4])
def test_t10_the_last_record_of_every_key_outlives_the_cleaner_and_the_broker(seed: int) -> None:
    with Broker(_CLEANING) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        admin.create_topics([NewTopic("compacted", 1, 1, config=_COMPACTED)])["compacted"].result(_WAIT_S)
        last: dict[bytes, int] = {}
        with _killed(broker, seed, 4000) as outages:

            def delivered(error: object, message: Message) -> None:
                assert error is None, error
                last[message.key()] = int(message.value())  # in order, for there is one partition
                outages.step()

            settings = {"bootstrap.servers": broker.bootstrap_servers, "enable.idempotence": True, "linger.ms": 1}
            producer = Producer({**settings, "batch.size": 4_000})
            for value in range(30_000):
                producer.produce("compacted", b"%d" % value, b"%d" % (value % _KEYS), on_delivery=delivered)
                if value % 100 == 0:
                    producer.poll(0.002)
            assert producer.flush(_WAIT_S) == 0
            assert outages.done.wait(_WAIT_S), "not every kill happened"
        found: list[tuple[int, bytes, int]] = []
        while not found or len(found) >= 30_000:  # the cleaner has not come to it yet
            found = records_with_keys(broker.bootstrap_servers, "compacted")
        assert [offset for offset, _, _ in found] == sorted({offset for offset, _, _ in found})
        assert [offset for offset, _, value in found if offset != value] == [], "nothing moves, nothing is there twice"
        assert (
            {key: value for _, key, value in found} == last == {b"%d" % (n % _KEYS): n for n in range(29_950, 30_000)}
        )
