"""Kill -9 and start again: what was acknowledged is there, coordinators go on where they were.

The judge is librdkafka, a client that is not ours.
"""

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.testing import Broker


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


def _create(broker: Broker, topic: str, partitions: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result()


def _producer(broker: Broker, **options: Any) -> Producer:
    return Producer({"bootstrap.servers": broker.bootstrap_servers, "enable.idempotence": True, **options})


def _consumer(broker: Broker, options: dict[str, Any] | None = None, group: str = "g") -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            **(options or {}),
        }
    )


def _read_all(broker: Broker, topic: str, isolation: str = "read_uncommitted") -> list[bytes]:
    """Every value of partition 0, up to its end."""
    consumer = _consumer(broker, {"isolation.level": isolation}, "reader")
    consumer.assign([TopicPartition(topic, 0, 0)])
    values: list[bytes] = []
    while True:
        message = consumer.poll(10)
        assert message is not None, "the partition's end was not reached"
        if message.error() is not None:
            break
        values.append(message.value())
    consumer.close()
    return values


def test_p4_acknowledged_records_survive_kill_and_none_is_written_twice(broker: Broker) -> None:
    _create(broker, "t")
    producer = _producer(broker, **{"linger.ms": 1})
    acknowledged: list[bytes] = []

    def delivered(error: object, message: Any) -> None:
        assert error is None
        acknowledged.append(message.value())

    for number in range(3_000):
        producer.produce("t", b"%d" % number, on_delivery=delivered)
        producer.poll(0)
        if number in (700, 1_900):
            broker.kill()
            broker.start()
    assert producer.flush(30) == 0
    values = _read_all(broker, "t")
    assert len(acknowledged) == 3_000
    assert values == [b"%d" % number for number in range(3_000)]


def test_g17_committed_offsets_and_members_survive_kill(broker: Broker) -> None:
    _create(broker, "t", 2)
    producer = _producer(broker)
    for number in range(100):
        producer.produce("t", b"%d" % number)
    producer.flush(10)
    assignments: list[int] = []
    consumer = _consumer(broker, {"heartbeat.interval.ms": 200, "session.timeout.ms": 6_000})
    consumer.subscribe(["t"], on_assign=lambda _, partitions: assignments.append(len(partitions)))
    seen = 0
    while seen < 100:
        message = consumer.poll(10)
        assert message is not None
        seen += message.error() is None
    consumer.commit(asynchronous=False)
    broker.kill()
    broker.start()
    producer.produce("t", b"after")
    producer.flush(20)
    while True:
        message = consumer.poll(20)
        assert message is not None
        if message.error() is None:
            break
    assert message.value() == b"after"
    consumer.commit(asynchronous=False)
    committed = consumer.committed([TopicPartition("t", 0), TopicPartition("t", 1)], timeout=10)
    assert sum(max(each.offset, 0) for each in committed) == 101
    assert assignments == [2], "the member kept its generation"
    consumer.close()


@pytest.mark.parametrize("commit", [True, False])
def test_t13_an_open_transaction_survives_kill_and_ends_as_told(broker: Broker, commit: bool) -> None:
    _create(broker, "t")
    producer = _producer(broker, **{"transactional.id": "x", "linger.ms": 0})
    producer.init_transactions(10)
    producer.begin_transaction()
    producer.produce("t", b"first")
    producer.flush(10)
    broker.kill()
    broker.start()
    if commit:
        producer.produce("t", b"second")
        producer.commit_transaction(30)
    else:
        producer.abort_transaction(30)
    expected = [b"first", b"second"] if commit else []
    assert _read_all(broker, "t", "read_committed") == expected


def test_t3_a_newcomer_aborts_what_a_dead_producer_left(broker: Broker) -> None:
    _create(broker, "t")
    dead = _producer(broker, **{"transactional.id": "x", "linger.ms": 0})
    dead.init_transactions(10)
    dead.begin_transaction()
    dead.produce("t", b"lost")
    dead.flush(10)
    broker.kill()
    broker.start()
    heir = _producer(broker, **{"transactional.id": "x", "linger.ms": 0})
    heir.init_transactions(30)
    heir.begin_transaction()
    heir.produce("t", b"kept")
    heir.commit_transaction(30)
    with pytest.raises(KafkaException):
        dead.commit_transaction(30)
    assert _read_all(broker, "t", "read_committed") == [b"kept"]


def test_t11_offsets_in_a_transaction_become_visible_with_it(broker: Broker) -> None:
    _create(broker, "t")
    _create(broker, "out")
    consumer = _consumer(broker)
    consumer.subscribe(["t"])
    _producer_send(broker, "t", 10)
    seen = 0
    while seen < 10:
        message = consumer.poll(10)
        assert message is not None
        seen += message.error() is None
    producer = _producer(broker, **{"transactional.id": "ctp"})
    producer.init_transactions(10)
    for commit, expected in ((False, -1001), (True, 10)):
        producer.begin_transaction()
        producer.produce("out", b"x")
        offsets = [TopicPartition("t", 0, 10)]
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), 10)
        if commit:
            producer.commit_transaction(10)
        else:
            producer.abort_transaction(10)
        assert consumer.committed([TopicPartition("t", 0)], timeout=10)[0].offset == expected
    consumer.close()
    assert _read_all(broker, "out", "read_committed") == [b"x"]


def _producer_send(broker: Broker, topic: str, count: int) -> None:
    producer = _producer(broker)
    for number in range(count):
        producer.produce(topic, b"%d" % number)
    assert producer.flush(10) == 0


def test_two_brokers_cannot_share_a_directory(broker: Broker) -> None:
    said = _refused("--data-dir", str(broker.data_dir), "--port", "0")
    assert "is in use by another broker" in said


def test_a_port_in_use_and_a_bad_directory_are_named(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert f"cannot listen on 127.0.0.1:{port}" in _refused("--data-dir", str(tmp_path / "a"), "--port", str(port))
    (tmp_path / "file").write_text("")
    assert "data directory" in _refused("--data-dir", str(tmp_path / "file" / "dir"), "--port", "0")
    assert "did you mean num.partitions" in _refused("-o", "num.partition=1")
    assert "it is empty" in _refused("--data-dir", "", "--port", "0")
    assert "stand for one listener of plain text" in _refused("-o", "listeners=SSL://:0", "--port", "0")


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("at", [100, 300])
def test_a_damaged_metadata_log_is_named_and_left_as_it_is(broker: Broker, clean: bool, at: int) -> None:
    for topic in ("one", "two", "three"):
        _create(broker, topic)
    if clean:
        broker.stop()
    else:
        broker.kill()
    log = broker.data_dir / "__cluster_metadata-0" / "00000000000000000000.log"
    damaged = bytearray(log.read_bytes())
    damaged[at] ^= 0xFF
    log.write_bytes(damaged)
    said = _refused("--data-dir", str(broker.data_dir), "--port", "0")
    assert f"{log} is damaged at byte" in said
    assert log.read_bytes() == damaged


def test_a_metadata_log_without_its_beginning_is_left_as_it_is(broker: Broker) -> None:
    """The simulator's find (broker-damage 9153): topics were forgotten, and their records set aside."""
    _create(broker, "one")
    broker.kill()
    folder = broker.data_dir / "__cluster_metadata-0"
    log = folder / "00000000000000000000.log"
    log.rename(folder / "00000000000000000005.log")
    said = _refused("--data-dir", str(broker.data_dir), "--port", "0")
    assert f"{folder} has no {log.name}: the metadata's beginning is gone" in said
    assert (broker.data_dir / "one-0").is_dir()


def _refused(*arguments: str) -> str:
    """What a broker says that does not start."""
    command = [sys.executable, "-m", "ottla.broker.process", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode in (1, 2)
    assert "Traceback" not in done.stderr
    return done.stderr


@pytest.mark.parametrize("is_there", [False, True], ids=["new", "there"])
def test_nobody_else_can_read_a_new_data_directory(tmp_path: Path, is_there: bool) -> None:
    path = tmp_path / "data"
    if is_there:
        path.mkdir(mode=0o755)
    with Broker(data_dir=path):
        pass
    assert path.stat().st_mode & 0o777 == (0o755 if is_there else 0o700)
