"""MirrorMaker 2 between our broker and Apache Kafka, both ways: how a topic and its readers move to the other one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from tests.interop.nodes import Node, node_of
from tests.interop.programs import Program, committed

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("program_jars")]

_PARTITIONS = 3
_GROUP = "readers"
_CONFIG = {
    "cleanup.policy": "compact,delete",
    "max.message.bytes": "777777",
    "min.compaction.lag.ms": "999999",
    "retention.ms": "-1",
    "segment.bytes": "1048576",
}
_SETTINGS = {
    **dict.fromkeys(
        [
            "replication.factor",
            *(f"{name}.topic.replication.factor" for name in ("checkpoints", "heartbeats", "offset-syncs")),
            *(f"{name}.storage.replication.factor" for name in ("offset", "status", "config")),
            "refresh.topics.interval.seconds",
            "refresh.groups.interval.seconds",
            "emit.heartbeats.interval.seconds",
            "emit.checkpoints.interval.seconds",
            "sync.topic.configs.interval.seconds",
            "sync.topic.acls.interval.seconds",
            "sync.group.offsets.interval.seconds",
        ],
        "1",
    ),
    "sync.group.offsets.enabled": "true",
    "offset.lag.max": "0",
    "offset.flush.interval.ms": "500",
    # What makes its transactions possible: its workers tell each other through HTTP.
    "dedicated.mode.enable.internal.rest": "true",
    "listeners": "http://127.0.0.1:0",
}


class _Way(NamedTuple):
    """A topic and where it is mirrored to."""

    source: Node
    target: Node

    @property
    def topic(self) -> str:
        """Its name where it is at home."""
        return f"of-{self.source.name}"

    @property
    def mirrored(self) -> str:
        """Its name on the other side."""
        return f"{self.source.name}.{self.topic}"

    def make(self) -> None:
        """Make the topic, with settings."""
        admin = AdminClient({"bootstrap.servers": self.source.bootstrap})
        made = admin.create_topics([NewTopic(self.topic, _PARTITIONS, 1, config=_CONFIG)])
        made[self.topic].result(30)

    def produce(self, numbers: Sequence[int], *, commit: bool = True) -> None:
        """Records with all that a record can have, in a transaction."""
        settings = {"bootstrap.servers": self.source.bootstrap, "transactional.id": self.topic, "log_level": 0}
        producer = Producer(settings | {"compression.type": "zstd"})
        producer.init_transactions(30)
        producer.begin_transaction()
        for number in numbers:
            headers = [("number", str(number).encode()), ("bytes", b"\x00\xff"), ("none", None), ("none", b"")]
            value = None if number % 10 == 9 else f"value {number}"
            place = {"partition": number % _PARTITIONS, "timestamp": 1_700_000_000_000 + number}
            producer.produce(self.topic, value, f"key {number}", headers=headers, **place)
        producer.flush(30)
        if commit:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)

    def await_mirrored(self, records: int) -> None:
        """Wait until the other side has as many records, and see that they are the same."""
        target = committed(self.target.bootstrap, self.mirrored, _PARTITIONS, least=records)
        source = committed(self.source.bootstrap, self.topic, _PARTITIONS, least=records)
        assert _told(target) == _told(source)
        assert len(source) == records

    def config(self) -> dict[str, str | None]:
        """The settings on the other side."""
        admin = AdminClient({"bootstrap.servers": self.target.bootstrap})
        (described,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, self.mirrored)]).values()
        entries = described.result(30).values()
        return {entry.name: entry.value for entry in entries if entry.name in _CONFIG}

    def commit_all(self) -> None:
        """A group has read what there is."""
        consumer = Consumer({"bootstrap.servers": self.source.bootstrap, "group.id": _GROUP, "log_level": 0})
        each = [TopicPartition(self.topic, number) for number in range(_PARTITIONS)]
        ends = [consumer.get_watermark_offsets(partition, timeout=30)[1] for partition in each]
        consumer.commit(
            offsets=[TopicPartition(p.topic, p.partition, n) for p, n in zip(each, ends, strict=True)],
            asynchronous=False,
        )
        consumer.close()

    def positions(self) -> dict[int, int]:
        """Where the group is on the other side, by partition."""
        admin = AdminClient({"bootstrap.servers": self.target.bootstrap})
        (asked,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(_GROUP)]).values()
        return {
            each.partition: each.offset for each in asked.result(30).topic_partitions if each.topic == self.mirrored
        }

    def has_moved(self) -> bool:
        """Whether the group has a position in each partition on the other side, behind the first record."""
        positions = self.positions()
        return len(positions) == _PARTITIONS and min(positions.values()) > 1


def _told(messages: Iterable[Message]) -> list[tuple[object, ...]]:
    """All of the records but their offsets, in the order of each partition."""
    records = [(m.partition(), m.offset(), m.key(), m.value(), m.timestamp(), m.headers()) for m in messages]
    return [(partition, *rest) for partition, _, *rest in sorted(records, key=lambda record: record[:2])]


def _mirror(directory: Path, ways: Sequence[_Way]) -> Program:
    settings = {"clusters": ",".join(way.source.name for way in ways), **_SETTINGS}
    for way in ways:
        settings |= {
            f"{way.source.name}.bootstrap.servers": way.source.bootstrap,
            f"{way.source.name}.exactly.once.source.support": "enabled",
            f"{way.source.name}.consumer.isolation.level": "read_committed",
            f"{way.source.name}->{way.target.name}.enabled": "true",
            f"{way.source.name}->{way.target.name}.topics": way.topic,
            f"{way.source.name}->{way.target.name}.groups": _GROUP,
        }
    properties = directory / "mirror.properties"
    properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return Program(directory / "mirror.log", "org.apache.kafka.connect.mirror.MirrorMaker", str(properties))


@pytest.mark.slow
def test_t11_mirror_maker_moves_topics_and_groups_between_ours_and_apache_kafka(tmp_path: Path) -> None:
    fast = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}
    with node_of("ottla", tmp_path / "ottla", fast) as ours, node_of("apache", tmp_path / "apache", fast) as theirs:
        ways = [_Way(ours, theirs), _Way(theirs, ours)]
        for way in ways:
            way.make()
            way.produce(range(1000))
            way.produce(range(1000, 1100), commit=False)
        with _mirror(tmp_path, ways) as mirror:
            for way in ways:
                way.await_mirrored(1000)
                assert way.config() == _CONFIG
            for way in ways:
                way.produce(range(1100, 2100))
            mirror.kill()
        with _mirror(tmp_path, ways) as mirror:
            ours.kill()
            ours.start()
            for way in ways:
                way.await_mirrored(2000)
                way.commit_all()
                mirror.wait_until(way.has_moved)
            for way in ways:
                way.produce(range(2100, 2130))
                way.await_mirrored(2030)
            mirror.close()
        for way in ways:
            new = {f"key {number}".encode() for number in range(2100, 2130)}
            positions, found = way.positions(), committed(way.target.bootstrap, way.mirrored, _PARTITIONS, least=2030)
            # It says where a group is from a little before: some records may come again, and none is left out.
            assert new <= {each.key() for each in found if each.offset() >= positions[each.partition()]}
