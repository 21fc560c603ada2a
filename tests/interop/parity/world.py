"""The topics that the cases read: made once, by names that the table shows."""

from __future__ import annotations

from ottla import Admin, Producer
from ottla.base.types import TopicPartition
from tests.interop.spark_topics import Topics

CODECS = ("gzip", "snappy", "lz4", "zstd")


def fill(topics: Topics) -> Producer:
    """Make and fill the topics. The producer that is returned has a transaction open: close it at the end."""
    topics.make("parity-a", partitions=3)
    single = ("b", "trim", "txn", "open", "headers", "large", "empty", *CODECS)
    topics.make(*(f"parity-{name}" for name in single), partitions=1)
    topics.make("parity-elsewhere")
    topics.make("parity-append", partitions=1, message_timestamp_type="LogAppendTime")
    servers = {"bootstrap.servers": topics.bootstrap}
    with Producer(servers) as producer:
        for partition, count in ((0, 10), (1, 5)):
            for n in range(count):
                at_ms, key = 1000 * n, b"k%d" % n
                producer.send("parity-a", b"v%d" % n, key=key, partition=partition, timestamp_ms=at_ms)
        for name, count in (("b", 4), ("trim", 10), ("append", 2)):
            for n in range(count):
                producer.send(f"parity-{name}", b"v%d" % n, key=b"k%d" % n, timestamp_ms=1000 * n)
        producer.send("parity-headers", b"no key", headers=[("a", b"1"), ("b", None)])
        producer.send("parity-headers", None, key=b"no value")
        producer.send("parity-headers", b"", key=b"", headers=[("a", b"1"), ("a", b"2")])
        producer.send("parity-large", b"x" * 900_000)
    with Admin(servers) as admin:
        admin.delete_records({TopicPartition("parity-trim", 0): 4})
    for codec in CODECS:
        with Producer({**servers, "compression.type": codec}) as producer:
            for n in range(3):
                producer.send(f"parity-{codec}", b"x" * (1000 + n))
    _transactions(servers)
    still = Producer({**servers, "transactional.id": "parity-open"})
    still.init_transactions()
    still.begin_transaction()
    still.send("parity-open", b"open").result(30)
    return still


def _transactions(servers: dict[str, str]) -> None:
    with Producer(servers) as producer:
        for topic in ("parity-txn", "parity-open"):
            for n in range(2):
                producer.send(topic, b"plain %d" % n).result(30)
    with Producer({**servers, "transactional.id": "parity-txn"}) as producer:
        producer.init_transactions()
        for commit in (False, True):
            producer.begin_transaction()
            for n in range(2):
                producer.send("parity-txn", b"%d" % n).result(30)
            if commit:
                producer.commit_transaction()
            else:
                producer.abort_transaction()
