"""A Kafka Streams application with exactly_once_v2 on our broker: nothing is lost or doubled, whoever is killed."""

from __future__ import annotations

import shutil
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from tests.interop.apache import program_jars, run_tool
from tests.interop.compiled import java_classes
from tests.interop.nodes import Node, node_of
from tests.interop.programs import Program, committed

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("program_jars")]

_APPLICATION = "tally"
_TOPICS = ("words", "names", "orders", "payments", "counts", "minutes", "named", "paid")
_PARTITIONS = 4
_WORDS = [f"word {number}" for number in range(20)]
#: The last hour that is over: the changelog of windows keeps them for two days.
_START_MS = (int(time.time()) // 3_600 - 1) * 3_600_000
_STEP_MS = 37
#: A transaction whose producer is gone for good keeps readers waiting until it times out.
_BROKER = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}
_SETTINGS = {
    "application.id": _APPLICATION,
    "processing.guarantee": "exactly_once_v2",
    "num.standby.replicas": "1",
    "replication.factor": "1",
    "commit.interval.ms": "100",
    "repartition.purge.interval.ms": "200",
    "session.timeout.ms": "6000",
    "heartbeat.interval.ms": "500",
    "producer.transaction.timeout.ms": "3000",
}


def _instance(node: Node, directory: Path, name: str) -> Program:
    return _started(node, directory, name, _SETTINGS | {"group.instance.id": name})


def _started(node: Node, directory: Path, name: str, settings: Mapping[str, str]) -> Program:
    own = {"bootstrap.servers": node.bootstrap, "state.dir": str(directory / name)}
    arguments = [f"{key}={value}" for key, value in {**settings, **own}.items()]
    return Program(directory / f"{name}.log", "Tally", *arguments, classes=java_classes("Tally", program_jars))


def _word(number: int) -> str:
    return _WORDS[number * 7 % len(_WORDS)]


class _Input:
    """What the application reads."""

    def __init__(self, node: Node) -> None:
        self.admin = AdminClient({"bootstrap.servers": node.bootstrap})
        for made in self.admin.create_topics([NewTopic(name, _PARTITIONS, 1) for name in _TOPICS]).values():
            made.result(30)
        # The application's own records are divided so: tables and streams are joined partition by partition.
        settings = {"bootstrap.servers": node.bootstrap, "partitioner": "murmur2_random", "enable.idempotence": True}
        self._producer = Producer(settings | {"log_level": 0})
        self._refused: list[str] = []
        for word in _WORDS:
            self._produce("names", word, word.upper(), _START_MS)
        self.sent = 0

    def send(self, records: int) -> None:
        """So many words more, and as many orders with their payments."""
        for number in range(self.sent, self.sent + records):
            at_ms = _START_MS + number * _STEP_MS
            self._produce("words", None, _word(number), at_ms)
            self._produce("orders", str(number), f"order {number}", at_ms)
            self._produce("payments", str(number), f"payment {number}", at_ms)
        assert self._producer.flush(60) == 0
        assert not self._refused, self._refused[0]
        self.sent += records

    def _produce(self, topic: str, key: str | None, value: str, at_ms: int) -> None:
        self._producer.produce(topic, value, key, timestamp=at_ms, on_delivery=self._delivered)

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self._refused.append(str(error))


def _by_key(messages: Iterable[Message]) -> dict[str, list[str]]:
    found = defaultdict(list)
    for message in messages:
        found[message.key().decode()].append(message.value().decode())
    return found


def _one_to(last: int) -> list[str]:
    return [str(number) for number in range(1, last + 1)]


def _judge(bootstrap: str, sent: int) -> None:
    words = Counter(map(_word, range(sent)))
    counts = _by_key(committed(bootstrap, "counts", _PARTITIONS, least=sent))
    assert counts == {word: _one_to(count) for word, count in words.items()}
    minutes = Counter(f"{_word(n)}@{(_START_MS + n * _STEP_MS) // 60_000 * 60_000}" for n in range(sent))
    by_minute = _by_key(committed(bootstrap, "minutes", _PARTITIONS, least=sent))
    assert by_minute == {window: _one_to(count) for window, count in minutes.items()}
    paid = _by_key(committed(bootstrap, "paid", _PARTITIONS, least=sent))
    assert paid == {str(n): [f"order {n} payment {n}"] for n in range(sent)}
    named = _by_key(committed(bootstrap, "named", _PARTITIONS, least=len(_WORDS)))
    assert {word: told[-1] for word, told in named.items()} == {w: f"{w.upper()} {n}" for w, n in words.items()}
    state = _by_key_of_longs(committed(bootstrap, f"{_APPLICATION}-counted-changelog", _PARTITIONS, least=len(_WORDS)))
    assert state == words


def _by_key_of_longs(messages: Iterable[Message]) -> dict[str, int]:
    """The last value of each key, as the application's long."""
    return {message.key().decode(): int.from_bytes(message.value(), "big") for message in messages}


def _given(admin: AdminClient, topic: str) -> dict[str, str | None]:
    """The settings that a topic was made with."""
    (described,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, f"{_APPLICATION}-{topic}")]).values()
    entries = described.result(30).values()
    return {entry.name: entry.value for entry in entries if entry.source == 1 and entry.name != "min.insync.replicas"}


def _judge_internal_topics(admin: AdminClient, bootstrap: str) -> None:
    created = {"message.timestamp.type": "CreateTime"}
    assert _given(admin, "counted-changelog") == created | {"cleanup.policy": "compact"}
    days = {"cleanup.policy": "compact,delete", "retention.ms": str(60_000 + 2 * 86_400_000)}
    assert _given(admin, "by-minute-changelog") == created | days
    purged = {"cleanup.policy": "delete", "retention.ms": "-1", "segment.bytes": "52428800"}
    assert _given(admin, "by-word-repartition") == created | purged
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader"})
    each = [TopicPartition(f"{_APPLICATION}-by-word-repartition", number) for number in range(_PARTITIONS)]
    assert any(consumer.get_watermark_offsets(partition, timeout=30)[0] > 0 for partition in each), "nothing is purged"
    consumer.close()


@pytest.mark.parametrize("name", ["ottla", pytest.param("apache", marks=pytest.mark.slow)])
def test_t11_kafka_streams_is_exactly_once_while_broker_and_instances_are_killed(name: str, tmp_path: Path) -> None:
    with node_of(name, tmp_path / "broker", _BROKER) as node:
        source = _Input(node)
        with _instance(node, tmp_path, "one") as one, _instance(node, tmp_path, "two") as two:
            for each in (one, two):
                each.await_line("STATE RUNNING")
            source.send(3000)
            committed(node.bootstrap, "counts", _PARTITIONS, least=200)
            node.kill()
            node.start()
            source.send(3000)
            committed(node.bootstrap, "counts", _PARTITIONS, least=3200)
            two.kill()
            shutil.rmtree(tmp_path / "two")  # its state, and the name of its transactions
            source.send(1000)
            with _instance(node, tmp_path, "two") as again:
                again.await_line("STATE RUNNING")
                committed(node.bootstrap, "counts", _PARTITIONS, least=6500)
                node.kill()
                one.kill()
                node.start()
                with _instance(node, tmp_path, "one") as back:
                    back.await_line("STATE RUNNING")
                    source.send(1000)
                    node.stop()
                    node.start()
                    for topic in ("counts", "minutes", "paid"):
                        committed(node.bootstrap, topic, _PARTITIONS, least=source.sent)
                    again.close()
                    back.close()
                    for each in (one, two, again, back):
                        assert [line for line in each.lines() if line.startswith("FAILED")] == []
        _judge(node.bootstrap, source.sent)
        _judge_internal_topics(source.admin, node.bootstrap)
        where = ("--bootstrap-server", node.bootstrap, "--application-id", _APPLICATION, "--input-topics", "words")
        run_tool("StreamsResetter", *where, "--force")
        assert not [topic for topic in source.admin.list_topics(timeout=30).topics if topic.startswith(_APPLICATION)]


def test_kafka_streams_with_its_own_group_protocol_is_told_that_it_is_not_there(tmp_path: Path) -> None:
    with node_of("ottla", tmp_path / "broker", {}) as node:
        _Input(node)
        with _started(node, tmp_path, "one", {"application.id": _APPLICATION, "group.protocol": "streams"}) as one:
            said = one.await_line("FAILED")
    assert "UnsupportedVersionException: The cluster does not support the STREAMS group protocol" in said
