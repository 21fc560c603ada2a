"""Foreign clients of the consumer protocol (KIP-848) on our broker: librdkafka, and Java's console consumer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupState, ConsumerGroupType, Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from ottla import TopicPartition
from ottla.testing import Broker, History
from tests.coordinator.group.talking import SETTINGS
from tests.interop.apache import ApacheKafka, run_tool, start_tool
from tests.recording.final import assert_good, note_logs, note_positions
from tests.recording.librdkafka import RecordingConsumer, RecordingProducer

pytestmark = pytest.mark.interop

Fresh = Callable[[str], str]
_WAIT_S = 60.0
_SETTINGS: Mapping[str, str] = {**SETTINGS, "group.consumer.heartbeat.interval.ms": "200"}


@pytest.fixture(params=["ottla", pytest.param("apache", marks=pytest.mark.slow)], scope="module")
def bootstrap(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Our broker, then Apache Kafka, both quick to rebalance."""
    if request.param == "ottla":
        with Broker(_SETTINGS) as ours:
            yield ours.bootstrap_servers
    else:
        request.getfixturevalue("apache_jars")
        with ApacheKafka(tmp_path_factory.mktemp("apache-consumer-groups"), _SETTINGS) as theirs:
            yield theirs.bootstrap


def _topic(bootstrap: str, name: str, partitions: int) -> str:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for done in admin.create_topics([NewTopic(name, partitions, 1)]).values():
        done.result(_WAIT_S)
    return name


@pytest.fixture
def history() -> History:
    """What a test's clients do and are told; the tests of groups give it to the checkers."""
    return History()


def _judge(history: History, bootstrap: str, topic: str, partitions: int, group: str) -> None:
    note_logs(history, bootstrap, {topic: partitions})
    note_positions(history, bootstrap, group)
    assert_good(history)


def _produce(bootstrap: str, topic: str, count: int, partitions: int, history: History | None = None) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    if history is not None:
        producer = RecordingProducer({"bootstrap.servers": bootstrap}, history, "producer")
    for number in range(count):
        producer.produce(topic, b"%d" % number, partition=number % partitions)
    assert producer.flush(_WAIT_S) == 0


class Reader:
    """A consumer of the new protocol, and all that it has read."""

    def __init__(self, history: History, bootstrap: str, group: str, *topics: str, **more: Any) -> None:
        settings = {"bootstrap.servers": bootstrap, "group.id": group, "group.protocol": "consumer"}
        own = {"auto.offset.reset": "earliest", "enable.auto.commit": False}
        self.consumer = RecordingConsumer({**settings, **own, **more}, history, f"reader {id(self)}")
        self.consumer.subscribe(list(topics))
        self.read: list[bytes] = []

    def poll(self) -> None:
        message = self.consumer.poll(0.05)
        if message is not None and not message.error():
            self.read.append(message.value())

    @property
    def partitions(self) -> set[tuple[str, int]]:
        return {(each.topic, each.partition) for each in self.consumer.assignment()}


def _until(done: Callable[[], bool], *readers: Reader) -> None:
    until = time.monotonic() + _WAIT_S
    while not done():
        assert time.monotonic() < until, [(reader.partitions, len(reader.read)) for reader in readers]
        for reader in readers:
            reader.poll()


def test_g19_librdkafka_joins_shares_and_leaves(bootstrap: str, fresh: Fresh, history: History) -> None:
    topic, group = _topic(bootstrap, fresh("cg"), 6), fresh("group")
    _produce(bootstrap, topic, 300, 6, history)
    first, second = Reader(history, bootstrap, group, topic), Reader(history, bootstrap, group, topic)
    _until(lambda: len(first.partitions) == len(second.partitions) == 3, first, second)
    assert not first.partitions & second.partitions
    _until(lambda: len({*first.read, *second.read}) == 300, first, second)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    described = admin.describe_consumer_groups([group])[group].result(_WAIT_S)
    assert (described.state, described.type) == (ConsumerGroupState.STABLE, ConsumerGroupType.CONSUMER)
    assert sorted(len(each.assignment.topic_partitions) for each in described.members) == [3, 3]
    listed = admin.list_consumer_groups(types={ConsumerGroupType.CONSUMER}).result(_WAIT_S).valid
    assert group in [each.group_id for each in listed]
    first.consumer.commit(asynchronous=False)
    second.consumer.commit(asynchronous=False)
    second.consumer.close()
    _until(lambda: len(first.partitions) == 6, first)
    committed = first.consumer.committed(first.consumer.assignment(), _WAIT_S)
    assert [each.offset for each in committed] == [50] * 6
    first.consumer.close()
    history.drained(group, [TopicPartition(topic, number) for number in range(6)])
    _judge(history, bootstrap, topic, 6, group)
    assert admin.delete_consumer_groups([group])[group].result(_WAIT_S) is None


def test_g19_librdkafka_subscribes_by_a_regular_expression(bootstrap: str, fresh: Fresh, history: History) -> None:
    name = fresh("cgr")
    _topic(bootstrap, f"{name}-a", 2)
    reader = Reader(history, bootstrap, fresh("group"), f"^{name}-.*")
    _until(lambda: len(reader.partitions) == 2, reader)
    reader.consumer.close()


def test_g11_partitions_that_come_are_read(bootstrap: str, fresh: Fresh, history: History) -> None:
    topic = _topic(bootstrap, fresh("cgp"), 2)
    group = fresh("group")
    reader = Reader(history, bootstrap, group, topic)
    _until(lambda: len(reader.partitions) == 2, reader)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_partitions([NewPartitions(topic, 5)])[topic].result(_WAIT_S)
    _until(lambda: len(reader.partitions) == 5, reader)
    reader.consumer.close()
    _judge(history, bootstrap, topic, 5, group)


def test_g15_a_static_member_comes_back_to_its_partitions(bootstrap: str, fresh: Fresh, history: History) -> None:
    topic, group = _topic(bootstrap, fresh("cgs"), 4), fresh("group")
    first = Reader(history, bootstrap, group, topic, **{"group.instance.id": "i1"})
    second = Reader(history, bootstrap, group, topic, **{"group.instance.id": "i2"})
    _until(lambda: len(first.partitions) == len(second.partitions) == 2, first, second)
    had = second.partitions
    second.consumer.close()
    again = Reader(history, bootstrap, group, topic, **{"group.instance.id": "i2"})
    _until(lambda: again.partitions == had, first, again)
    assert len(first.partitions) == 2
    first.consumer.close()
    again.consumer.close()
    _judge(history, bootstrap, topic, 4, group)


def test_g21_members_of_both_protocols_share(bootstrap: str, fresh: Fresh, history: History) -> None:
    """A group of librdkafka's members goes from the classic protocol to the new one, and back."""
    topic, group = _topic(bootstrap, fresh("cgm"), 4), fresh("group")
    _produce(bootstrap, topic, 40, 4, history)
    old = Reader(history, bootstrap, group, topic, **{"group.protocol": "classic", "session.timeout.ms": 6_000})
    _until(lambda: len(old.partitions) == 4, old)
    new = Reader(history, bootstrap, group, topic)
    _until(lambda: len(old.partitions) == len(new.partitions) == 2, old, new)
    assert not old.partitions & new.partitions
    admin = AdminClient({"bootstrap.servers": bootstrap})
    assert _type(admin, group) is ConsumerGroupType.CONSUMER
    new.consumer.close()
    _until(lambda: len(old.partitions) == 4, old)
    assert _type(admin, group) is ConsumerGroupType.CLASSIC
    _until(lambda: {int(value) for value in (*old.read, *new.read)} == set(range(40)), old)
    old.consumer.close()


def _type(admin: AdminClient, group: str) -> ConsumerGroupType:
    (listed,) = [each for each in admin.list_consumer_groups().result(_WAIT_S).valid if each.group_id == group]
    return listed.type


def test_a_members_assignor_is_the_one_it_asks_for(
    bootstrap: str, fresh: Fresh, apache_jars: str, history: History
) -> None:
    topic, group = _topic(bootstrap, fresh("cga"), 3), fresh("group")
    reader = Reader(history, bootstrap, group, topic, **{"group.remote.assignor": "range"})
    _until(lambda: len(reader.partitions) == 3, reader)
    describe = ["--bootstrap-server", bootstrap, "--describe", "--group", group]
    told = run_tool("consumer.group.ConsumerGroupCommand", *describe, "--state").stdout
    assert "range" in told and "Stable" in told, told
    reader.consumer.close()


def test_g22_settings_of_a_group_through_librdkafkas_admin(bootstrap: str, fresh: Fresh) -> None:
    group = fresh("group")
    admin = AdminClient({"bootstrap.servers": bootstrap})
    entry = ConfigEntry("consumer.session.timeout.ms", "50000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(_WAIT_S)
    asked = ConfigResource(ResourceType.GROUP, group)
    until = time.monotonic() + _WAIT_S
    while admin.describe_configs([asked])[asked].result(_WAIT_S)["consumer.session.timeout.ms"].value != "50000":
        assert time.monotonic() < until


def test_g19_javas_console_consumer_and_its_group_command(bootstrap: str, fresh: Fresh, apache_jars: str) -> None:
    topic, group = _topic(bootstrap, fresh("cgj"), 3), fresh("group")
    _produce(bootstrap, topic, 30, 3)
    arguments = ["--bootstrap-server", bootstrap, "--topic", topic, "--group", group, "--from-beginning"]
    consumer = start_tool(
        "consumer.ConsoleConsumer",
        *arguments,
        "--max-messages",
        "30",
        "--command-property",
        "group.protocol=consumer",
    )
    said, _ = consumer.communicate(timeout=240)
    assert sorted(int(line) for line in said.splitlines() if line.isdigit()) == list(range(30)), said
    describe = ["--bootstrap-server", bootstrap, "--describe", "--group", group]
    told = run_tool("consumer.group.ConsumerGroupCommand", *describe, "--state").stdout
    assert "Empty" in told and group in told, told
