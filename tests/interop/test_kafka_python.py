"""kafka-python against our broker: a client in pure Python with its own ideas of versions and groups."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition
from kafka.admin import NewTopic

from ottla.testing import History
from tests.recording.final import assert_good, note_logs, note_positions
from tests.recording.kafka_python import RecordingConsumer, RecordingProducer

pytestmark = pytest.mark.interop

Fresh = Callable[[str], str]


def _topic(bootstrap: str, name: str, partitions: int = 1) -> str:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    admin.create_topics([NewTopic(name, partitions, 1)])
    admin.close()
    return name


def _take(consumer: KafkaConsumer, wanted: int) -> list[bytes]:
    values: list[bytes] = []
    for _ in range(60):
        for records in consumer.poll(timeout_ms=500).values():
            values += [record.value for record in records]
        if len(values) >= wanted:
            return values
    raise AssertionError(f"{len(values)} of {wanted} records came")


@pytest.mark.parametrize("codec", [None, "gzip"])
def test_records_come_back_and_a_group_resumes(any_broker: str, fresh: Fresh, codec: str | None) -> None:
    topic, group, history = _topic(any_broker, fresh("kp")), fresh("kp-group"), History()
    settings = {"acks": "all", "compression_type": codec, "linger_ms": 5}
    producer = RecordingProducer(history, "producer", bootstrap_servers=any_broker, **settings)
    sent = [producer.send(topic, b"%d" % n, key=b"k", headers=[("h", b"1")]) for n in range(100)]
    producer.flush()
    assert [each.get(20).offset for each in sent] == list(range(100))
    producer.close()
    settings = {"group_id": group, "auto_offset_reset": "earliest", "enable_auto_commit": False}
    where = {"bootstrap_servers": any_broker, "max_poll_records": 100}
    first = RecordingConsumer(topic, history=history, who="consumer", **where, **settings)
    assert _take(first, 100) == [b"%d" % n for n in range(100)]
    first.commit()
    first.close()
    second = KafkaConsumer(bootstrap_servers=any_broker, **settings)
    assert second.committed(TopicPartition(topic, 0)) == 100
    second.close()
    note_logs(history, any_broker, {topic: 1})
    note_positions(history, any_broker, group)
    assert_good(history)


def test_t1_transactions_commit_and_abort(any_broker: str, fresh: Fresh) -> None:
    topic, history = _topic(any_broker, fresh("kp-txn")), History()
    producer = RecordingProducer(history, "producer", bootstrap_servers=any_broker, transactional_id=fresh("kp-tid"))
    producer.init_transactions()
    for value, commit in ((b"yes", True), (b"no", False), (b"again", True)):
        producer.begin_transaction()
        producer.send(topic, value)
        producer.flush()
        if commit:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
    producer.close()
    settings = {"isolation_level": "read_committed", "auto_offset_reset": "earliest"}
    consumer = RecordingConsumer(history=history, who="consumer", bootstrap_servers=any_broker, **settings)
    consumer.assign([TopicPartition(topic, 0)])
    consumer.seek_to_beginning()
    assert _take(consumer, 2) == [b"yes", b"again"]
    consumer.close()
    note_logs(history, any_broker, {topic: 1})
    assert_good(history)
