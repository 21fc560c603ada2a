"""Lines in a topic, and the words of each that `examples/wordcount.py` makes of them."""

import json
from collections import Counter
from typing import Any

from ottla import Admin, Consumer, NewTopic, Producer
from ottla.base.types import TopicPartition

LINES = [f"the line {n} says the word {'spark' if n % 3 else 'kafka'}" for n in range(400)]


def make_topic(bootstrap: str, name: str, partitions: int = 2) -> str:
    """Its name."""
    with Admin({"bootstrap.servers": bootstrap}) as admin:
        admin.create_topics([NewTopic(name, partitions, 1)])
    return name


def send_lines(bootstrap: str, topic: str) -> None:
    """In turns to both partitions."""
    with Producer({"bootstrap.servers": bootstrap}) as producer:
        for n, line in enumerate(LINES):
            producer.send(topic, line.encode(), partition=n % 2)


def read_committed(bootstrap: str, topic: str) -> list[dict[str, Any]]:
    """All values, which are JSON."""
    config = {"bootstrap.servers": bootstrap, "isolation.level": "read_committed", "auto.offset.reset": "earliest"}
    found: list[dict[str, Any]] = []
    with Consumer(config) as consumer:
        tps = [TopicPartition(topic, number) for number in range(2)]
        consumer.assign(tps)
        ends = consumer.end_offsets(tps)
        while any(consumer.position(tp) < ends[tp] for tp in tps):
            found += [json.loads(bytes(record.value or b"")) for record in consumer.poll(0.1)]
    return found


def expected_words(times: int = 1) -> Counter[tuple[str, int, int, int]]:
    """Word, how often it is in its line, and where the line is, after `send_lines` so many times."""
    return Counter(
        (word, count, n % 2, n // 2)
        for n, line in enumerate(LINES * times)
        for word, count in Counter(line.split()).items()
    )


def words_in(bootstrap: str, topic: str) -> Counter[tuple[str, int, int, int]]:
    """The same, as the topic has it."""
    rows = read_committed(bootstrap, topic)
    return Counter((row["word"], row["count"], row["partition"], row["offset"]) for row in rows)
