"""confluent-kafka (librdkafka) against our broker: what most of the world's Python talks with."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic

from ottla import TopicPartition as Partition
from ottla.testing import History
from tests.recording.final import assert_good, note_logs, note_positions
from tests.recording.librdkafka import RecordingConsumer, RecordingProducer
from tests.recording.notes import uid

pytestmark = pytest.mark.interop

Fresh = Callable[[str], str]
_WAIT_S = 60.0


def _topic(bootstrap: str, name: str, partitions: int = 1) -> str:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for done in admin.create_topics([NewTopic(name, partitions, 1)]).values():
        done.result(_WAIT_S)
    return name


def _read(bootstrap: str, topic: str, partitions: int, history: History, **settings: Any) -> list[Any]:
    """Every record of a topic up to its end."""
    base = {"bootstrap.servers": bootstrap, "group.id": f"{topic}-reader", "enable.partition.eof": True}
    who = f"reader {len(history.events)}"
    consumer = RecordingConsumer({**base, "enable.auto.commit": False, **settings}, history, who)
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    found: list[Any] = []
    ended: set[int] = set()
    while len(ended) < partitions:
        message = consumer.poll(_WAIT_S)
        assert message is not None, "the broker sent nothing"
        if message.error():
            ended.add(message.partition())
        else:
            found.append(message)
    consumer.close()
    return found


def _judge(history: History, bootstrap: str, topics: dict[str, int], *groups: str) -> None:
    note_logs(history, bootstrap, topics)
    for group in groups:
        note_positions(history, bootstrap, group)
    assert_good(history)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("idempotent", [False, True])
def test_records_come_back_as_they_went(any_broker: str, fresh: Fresh, codec: str, idempotent: bool) -> None:
    topic, history = _topic(any_broker, fresh("plain"), 2), History()
    settings = {"compression.type": codec, "enable.idempotence": idempotent, "linger.ms": 5}
    producer = RecordingProducer({"bootstrap.servers": any_broker, **settings}, history, "producer")
    for n in range(500):
        key = None if n % 3 else f"k{n}".encode()
        headers = [("h", b"x"), ("n", None)]
        producer.produce(topic, b"v%d" % n * 20, key, partition=n % 2, headers=headers, timestamp=1000 + n)
    assert producer.flush(_WAIT_S) == 0
    found = sorted(_read(any_broker, topic, 2, history), key=lambda m: m.timestamp()[1])
    assert [m.value() for m in found] == [b"v%d" % n * 20 for n in range(500)]
    assert [m.key() for m in found] == [None if n % 3 else f"k{n}".encode() for n in range(500)]
    assert found[0].headers() == [("h", b"x"), ("n", None)]
    assert [m.offset() for m in found if m.partition() == 1] == list(range(250))
    _judge(history, any_broker, {topic: 2})


def test_t8_aborted_records_are_seen_by_read_uncommitted_alone(any_broker: str, fresh: Fresh) -> None:
    topic, history = _topic(any_broker, fresh("txn"), 2), History()
    settings = {"bootstrap.servers": any_broker, "transactional.id": fresh("tid")}
    producer = RecordingProducer(settings, history, "producer")
    producer.init_transactions(_WAIT_S)
    for round_number in range(4):
        producer.begin_transaction()
        for n in range(10):
            producer.produce(topic, b"%d-%d" % (round_number, n), partition=n % 2)
        if round_number % 2:
            producer.flush(_WAIT_S)
            producer.abort_transaction(_WAIT_S)
        else:
            producer.commit_transaction(_WAIT_S)
    committed = {m.value() for m in _read(any_broker, topic, 2, history, **{"isolation.level": "read_committed"})}
    every = {m.value() for m in _read(any_broker, topic, 2, history, **{"isolation.level": "read_uncommitted"})}
    assert committed == {b"%d-%d" % (r, n) for r in (0, 2) for n in range(10)}
    assert every == {b"%d-%d" % (r, n) for r in range(4) for n in range(10)}
    _judge(history, any_broker, {topic: 2})


def test_t2_a_second_producer_fences_the_first(any_broker: str, fresh: Fresh) -> None:
    topic, settings, history = _topic(any_broker, fresh("fence")), {"transactional.id": fresh("tid")}, History()
    old = RecordingProducer({"bootstrap.servers": any_broker, **settings}, history, "old")
    old.init_transactions(_WAIT_S)
    old.begin_transaction()
    old.produce(topic, b"old")
    old.flush(_WAIT_S)
    new = RecordingProducer({"bootstrap.servers": any_broker, **settings}, history, "new")
    new.init_transactions(_WAIT_S)
    new.begin_transaction()
    new.produce(topic, b"new")
    new.commit_transaction(_WAIT_S)
    with pytest.raises(Exception, match=r"FENCED|INVALID_PRODUCER_EPOCH|fenced|epoch"):
        old.commit_transaction(_WAIT_S)
    found = _read(any_broker, topic, 1, history, **{"isolation.level": "read_committed"})
    assert [m.value() for m in found] == [b"new"]
    _judge(history, any_broker, {topic: 1})


def test_t11_consume_transform_produce_commits_offsets_with_the_records(any_broker: str, fresh: Fresh) -> None:
    source, target, group = _topic(any_broker, fresh("src")), _topic(any_broker, fresh("dst")), fresh("ctp")
    history = History()
    seed = RecordingProducer({"bootstrap.servers": any_broker}, history, "source")
    for n in range(100):
        seed.produce(source, b"%d" % n)
    seed.flush(_WAIT_S)
    settings = {"group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    base = {"bootstrap.servers": any_broker}
    consumer = RecordingConsumer({**base, "isolation.level": "read_committed", **settings}, history, "consumer")
    consumer.subscribe([source])
    producer = RecordingProducer({**base, "transactional.id": fresh("tid")}, history, "producer")
    producer.init_transactions(_WAIT_S)
    taken = 0
    while taken < 100:
        messages = consumer.consume(50, timeout=_WAIT_S)
        producer.begin_transaction()
        for message in messages:
            producer.produce(target, b"got " + message.value(), source=uid(source, message.value()))
        ends = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(ends, consumer.consumer_group_metadata(), _WAIT_S)
        producer.commit_transaction(_WAIT_S)
        taken += len(messages)
    (committed,) = consumer.committed([TopicPartition(source, 0)], _WAIT_S)
    consumer.close()
    assert committed.offset == 100
    found = _read(any_broker, target, 1, history, **{"isolation.level": "read_committed"})
    assert [m.value() for m in found] == [b"got %d" % n for n in range(100)]
    history.drained(group, [Partition(source, 0)], transforms=True)
    _judge(history, any_broker, {source: 1, target: 1}, group)


def _poll_until(consumers: list[Any], condition: Callable[[], bool]) -> None:
    until = time.monotonic() + _WAIT_S
    while not condition():
        assert time.monotonic() < until, "the group did not settle"
        for consumer in consumers:
            consumer.poll(0.02)


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_g11_members_join_share_and_leave(any_broker: str, fresh: Fresh, strategy: str) -> None:
    topic, group, history = _topic(any_broker, fresh("group"), 4), fresh("g"), History()

    def member(who: str) -> Any:
        settings = {"partition.assignment.strategy": strategy, "session.timeout.ms": 6000}
        consumer = RecordingConsumer({"bootstrap.servers": any_broker, "group.id": group, **settings}, history, who)
        consumer.subscribe([topic])
        return consumer

    def sizes(members: list[Any]) -> list[int]:
        return sorted(len(each.assignment()) for each in members)

    first = member("first")
    _poll_until([first], lambda: sizes([first]) == [4])
    second, third = member("second"), member("third")
    trio = [first, second, third]
    _poll_until(trio, lambda: sizes(trio) == [1, 1, 2])
    third.close()
    _poll_until([first, second], lambda: sizes([first, second]) == [2, 2])
    owned = {(tp.topic, tp.partition) for each in (first, second) for tp in each.assignment()}
    assert owned == {(topic, n) for n in range(4)}
    first.close()
    second.close()
    _judge(history, any_broker, {topic: 4}, group)


def test_g12_committed_offsets_are_taken_up_by_the_next_member(any_broker: str, fresh: Fresh) -> None:
    topic, group, history = _topic(any_broker, fresh("resume")), fresh("g"), History()
    producer = RecordingProducer({"bootstrap.servers": any_broker}, history, "producer")
    for n in range(20):
        producer.produce(topic, b"%d" % n)
    producer.flush(_WAIT_S)
    settings = {"group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    got: list[bytes] = []
    for who in ("first", "second"):
        consumer = RecordingConsumer({"bootstrap.servers": any_broker, **settings}, history, who)
        consumer.subscribe([topic])
        messages = consumer.consume(10, timeout=_WAIT_S)
        got += [m.value() for m in messages]
        consumer.commit(messages[-1], asynchronous=False)
        consumer.close()
    assert got == [b"%d" % n for n in range(20)]
    history.drained(group, [Partition(topic, 0)])
    _judge(history, any_broker, {topic: 1}, group)


def test_admin_creates_alters_and_deletes_topics(any_broker: str, fresh: Fresh) -> None:
    name = fresh("admin")
    admin = AdminClient({"bootstrap.servers": any_broker})
    settings = {"retention.ms": "60000", "cleanup.policy": "compact"}
    admin.create_topics([NewTopic(name, 2, 1, config=settings)])[name].result(_WAIT_S)
    admin.create_partitions([NewPartitions(name, 5)])[name].result(_WAIT_S)
    assert len(admin.list_topics(name, _WAIT_S).topics[name].partitions) == 5
    resource = ConfigResource(ConfigResource.Type.TOPIC, name)
    (entries,) = (done.result(_WAIT_S) for done in admin.describe_configs([resource]).values())
    assert {key: entries[key].value for key in settings} == settings
    with pytest.raises(Exception, match="TOPIC_ALREADY_EXISTS"):
        admin.create_topics([NewTopic(name, 1, 1)])[name].result(_WAIT_S)
    admin.delete_topics([name])[name].result(_WAIT_S)
    assert name not in admin.list_topics(timeout=_WAIT_S).topics


def test_records_without_a_key_are_told_from_those_that_went_with_them(any_broker: str, fresh: Fresh) -> None:
    """KIP-467: the application mends the records at fault, and sends the others again."""
    topic = fresh("compacted")
    admin = AdminClient({"bootstrap.servers": any_broker})
    admin.create_topics([NewTopic(topic, 1, 1, config={"cleanup.policy": "compact"})])[topic].result(_WAIT_S)
    told: dict[bytes, str | None] = {}
    producer = Producer({"bootstrap.servers": any_broker, "linger.ms": 2_000, "enable.idempotence": False})
    producer.list_topics(topic, _WAIT_S)  # it divides what waits for a topic one by one, and flush() may send the first
    for key, value in ((b"k", b"a"), (None, b"b"), (b"k", b"c"), (None, b"d")):
        producer.produce(
            topic, value, key, on_delivery=lambda error, m: told.update({m.value(): error and error.name()})
        )
    assert producer.flush(_WAIT_S) == 0
    assert told == {
        b"a": "_INVALID_DIFFERENT_RECORD",
        b"b": "INVALID_RECORD",
        b"c": "_INVALID_DIFFERENT_RECORD",
        b"d": "INVALID_RECORD",
    }
