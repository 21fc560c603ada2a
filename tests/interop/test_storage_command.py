"""`ottla storage` on directories that Apache Kafka has written, and Apache Kafka on one that it has mended."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.cli.main import main
from ottla.testing import Broker
from tests.interop.apache import ApacheKafka
from tests.interop.whole_directory import patiently

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("apache_jars")]

_COMPACTED = {"cleanup.policy": "compact", "segment.ms": "1000", "min.cleanable.dirty.ratio": "0.01"}


def _fill(bootstrap: str) -> None:
    """Transactions of both ends, one that stays open, records with keys, offsets of a group."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [NewTopic("orders", 2, 1), NewTopic("latest", 1, 1, config=_COMPACTED)]
    for made in admin.create_topics(topics).values():
        made.result(60)
    for number, ending in enumerate(("commit", "abort", "commit", "abort", "open")):
        producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": ending, "linger.ms": 0})
        producer.init_transactions(60)
        producer.begin_transaction()
        for at in range(20):
            producer.produce("orders", f"{number} {at}", partition=at % 2)
        producer.flush(60)
        if ending == "commit":
            producer.commit_transaction(60)
        elif ending == "abort":
            producer.abort_transaction(60)
    producer = Producer({"bootstrap.servers": bootstrap, "compression.type": "lz4"})
    for at in range(100):
        producer.produce("latest", f"value {at}", key=f"{at % 7}")
        producer.flush(60)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g"})
    patiently(lambda: consumer.commit(offsets=[TopicPartition("orders", 0, 7)], asynchronous=False))
    consumer.close()


def _values(bootstrap: str) -> list[str]:
    """What a read_committed reader is shown of `orders-0` before the transaction that is open."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "enable.partition.eof": True})
    consumer.assign([TopicPartition("orders", 0, 0)])
    values: list[str] = []
    while True:
        message = consumer.poll(60)
        assert message is not None
        if message.error():
            assert message.error().name() == "_PARTITION_EOF", message.error()
            consumer.close()
            return values
        values.append(message.value().decode())


def _check(directory: Path, capfd: pytest.CaptureFixture[str]) -> tuple[int, dict[str, object]]:
    capfd.readouterr()
    code = main(["storage", "check", "--json", str(directory)])
    return code, json.loads(capfd.readouterr().out)


def _texts(report: dict[str, object]) -> list[str]:
    found = report["found"]
    assert isinstance(found, list)
    return [each["text"] for each in found if each["kind"] != "note"]


def test_what_apache_kafka_leaves_is_sound_and_what_is_changed_in_it_is_named(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with ApacheKafka(tmp_path) as kafka:
        _fill(kafka.bootstrap)
        assert main(["storage", "check", str(kafka.data_dir)]) == 2
        assert "is in use by a broker" in capfd.readouterr().err
        kafka.stop()
        code, report = _check(kafka.data_dir, capfd)
        assert (code, _texts(report)) == (0, [])
        assert (report["owner"], report["metadata_version"], report["stopped_in_order"]) == ("Apache Kafka", 30, True)
        kafka.start()
        kafka.kill9()
        code, report = _check(kafka.data_dir, capfd)
        assert (code, _texts(report)) == (0, [])
        assert report["stopped_in_order"] is False
        assert main(["storage", "info", str(kafka.data_dir)]) == 0
        assert "orders-1" in capfd.readouterr().out

        log = kafka.data_dir / "orders-0" / f"{0:020}.log"
        content = bytearray(log.read_bytes())
        content[len(content) // 2] ^= 1
        log.write_bytes(content)
        code, report = _check(kafka.data_dir, capfd)
        assert code == 1
        assert any(f"orders-0/{log.name}" in text for text in _texts(report))
        assert main(["storage", "repair", "--yes", str(kafka.data_dir)]) == 1
        assert "Apache Kafka mends what it can when it starts" in capfd.readouterr().out
        assert log.read_bytes() == content


def test_apache_kafka_goes_on_with_a_directory_that_was_repaired(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    own = {"offsets.topic.num.partitions": "4", "transaction.state.log.num.partitions": "4"}
    with Broker(own, data_dir=data) as broker:
        _fill(broker.bootstrap_servers)
        expected = _values(broker.bootstrap_servers)
        broker.stop()
    for suffix in ("index", "timeindex", "txnindex"):
        (data / "orders-0" / f"{0:020}.{suffix}").write_bytes(b"\xff" * 24)
    (data / "latest-0" / "leader-epoch-checkpoint").unlink()
    code, report = _check(data, capfd)
    assert code == 1
    assert {"orders-0", "latest-0"} <= {text.partition(":")[0] for text in _texts(report)}
    assert main(["storage", "repair", "--yes", str(data)]) == 0
    assert _check(data, capfd)[0] == 0
    with ApacheKafka(tmp_path) as kafka:
        assert _values(kafka.bootstrap) == expected
