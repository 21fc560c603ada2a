"""Topics of tests that run Spark: made, filled, and read as a foreign consumer sees them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, TopicPartition

from ottla import Admin, NewTopic, Producer

HOUR_MS = 3_600_000
Row = tuple[str | None, str | None]


class Found(NamedTuple):
    """A committed record."""

    partition: int
    key: str | None
    value: str | None
    headers: list[tuple[str, str | None]]


class Topics:
    """Topics of a test on one broker."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def make(self, *names: str, partitions: int = 2, **config: str) -> None:
        """Make them. Keys of the configuration have `_` for `.`."""
        settings = {key.replace("_", "."): value for key, value in config.items()}
        with Admin({"bootstrap.servers": self.bootstrap}) as admin:
            admin.create_topics([NewTopic(name, partitions, 1, configs=settings) for name in names])

    def send(self, topic: str, rows: Iterable[tuple[str | None, bytes | str | None, float]]) -> None:
        """Send (key, value, hours of event time). A row without a key goes to partition 0."""
        with Producer({"bootstrap.servers": self.bootstrap}) as producer:
            for key, value, hours in rows:
                body = value.encode() if isinstance(value, str) else value
                name, at = None if key is None else key.encode(), round(hours * HOUR_MS)
                producer.send(topic, body, key=name, partition=0 if key is None else None, timestamp_ms=at)

    def send_to(self, topic: str, partition: int, values: Iterable[str]) -> None:
        """Send values without keys to one partition."""
        with Producer({"bootstrap.servers": self.bootstrap}) as producer:
            for value in values:
                producer.send(topic, value.encode(), partition=partition)

    def found(self, topic: str) -> list[Found]:
        """The committed records, partition by partition, as librdkafka reads them."""
        settings = {"isolation.level": "read_committed", "enable.partition.eof": True, "enable.auto.commit": False}
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "spark-tests", **settings})
        partitions = consumer.list_topics(topic, timeout=60).topics[topic].partitions.keys()
        assert partitions, f"{topic} is not there"
        consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
        found: list[Found] = []
        ended: set[int] = set()
        while ended < partitions:
            message = consumer.poll(60)
            assert message is not None, f"{topic}: the broker sent nothing"
            if message.error() is None:
                found.append(_found(message))
            else:
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                ended.add(message.partition())
        consumer.close()
        return sorted(found, key=lambda record: record.partition)  # the sort keeps the order within a partition

    def committed(self, topic: str) -> list[Row]:
        """Key and value of each committed record."""
        return [(record.key, record.value) for record in self.found(topic)]


def _found(message: Any) -> Found:
    headers = [(name, _text(value)) for name, value in message.headers() or ()]
    return Found(message.partition(), _text(message.key()), _text(message.value()), headers)


def _text(raw: bytes | None) -> str | None:
    return None if raw is None else raw.decode(errors="replace")
