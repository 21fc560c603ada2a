"""Keys of Kafka's clients, given with the prefix `kafka.` to a read and to a write."""

from __future__ import annotations

from collections.abc import Iterator

from tests.interop.parity.case import Case
from tests.interop.parity.reads import read
from tests.interop.parity.sinks import VALUE, write

_UNKNOWN = "Ours knows every key of a Java client, and names the nearest one; Java's clients write a warning to a log"
_PARTITIONER = (
    "Of Java's partitioners ours has the default one; where a row goes else is the column `partition`'s to say"
)
_CONSUMER = {
    "fetch.min.bytes": "1",
    "fetch.max.wait.ms": "100",
    "fetch.max.bytes": "1048576",
    "max.partition.fetch.bytes": "1048576",
    "max.poll.records": "2",
    "max.poll.interval.ms": "300000",
    "session.timeout.ms": "30000",
    "heartbeat.interval.ms": "3000",
    "receive.buffer.bytes": "65536",
    "send.buffer.bytes": "65536",
    "request.timeout.ms": "30000",
    "default.api.timeout.ms": "30000",
    "connections.max.idle.ms": "540000",
    "reconnect.backoff.ms": "50",
    "retry.backoff.ms": "100",
    "metadata.max.age.ms": "1000",
    "client.id": "parity",
    "client.rack": "a",
    "client.dns.lookup": "use_all_dns_ips",
    "check.crcs": "true",
    "allow.auto.create.topics": "false",
    "exclude.internal.topics": "true",
    "group.instance.id": "one",
    "partition.assignment.strategy": "org.apache.kafka.clients.consumer.RangeAssignor",
    "security.protocol": "PLAINTEXT",
    "group.id": "parity-group",
}
_PRODUCER = {
    "acks": "all",
    "batch.size": "1000",
    "linger.ms": "0",
    "buffer.memory": "33554432",
    "max.block.ms": "60000",
    "max.request.size": "1048576",
    "delivery.timeout.ms": "120000",
    "request.timeout.ms": "30000",
    "retries": "10",
    "enable.idempotence": "true",
    "max.in.flight.requests.per.connection": "5",
    "client.id": "parity",
    "compression.type": "lz4",
    "metadata.max.idle.ms": "300000",
    "partitioner.ignore.keys": "false",
    "security.protocol": "PLAINTEXT",
}


def consumers() -> Iterator[Case]:
    """Keys of a consumer."""
    for key, value in _CONSUMER.items():
        yield read("kafka. keys of a read", f"{key}={value}", {f"kafka.{key}": value})
    for key, value, why in (
        ("auto.offset.reset", "earliest", ""),
        ("enable.auto.commit", "true", ""),
        ("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer", ""),
        ("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer", ""),
        ("security.protocol", "CARRIER_PIGEON", ""),
        ("fetch.max.bytes", "much", ""),
        ("max.poll.records", "-7", ""),
        ("fetch.min.bites", "1", _UNKNOWN),
        ("no.such.key", "1", _UNKNOWN),
    ):
        yield read("kafka. keys of a read", f"{key}={value}", {f"kafka.{key}": value}, why)
    yield read("kafka. keys of a read", "no bootstrap.servers", {"kafka.bootstrap.servers": None})
    yield read("kafka. keys of a read", "bootstrap.servers without a port", {"kafka.bootstrap.servers": "localhost"})


def producers() -> Iterator[Case]:
    """Keys of a producer."""
    for key, value in _PRODUCER.items():
        yield write("kafka. keys of a write", f"{key}={value}", VALUE, {f"kafka.{key}": value})
    turns = {"kafka.partitioner.class": "org.apache.kafka.clients.producer.RoundRobinPartitioner"}
    yield write("kafka. keys of a write", "partitioner.class=…RoundRobinPartitioner", VALUE, turns, _PARTITIONER)
    for codec in ("none", "gzip", "snappy", "zstd"):
        yield write("kafka. keys of a write", f"compression.type={codec}", VALUE, {"kafka.compression.type": codec})
    once = "It contradicts exactly-once, and ours says so; with semantics=at-least-once it is taken"
    for key, value in {
        "acks": "1",
        "retries": "0",
        "enable.idempotence": "false",
        "max.in.flight.requests.per.connection": "6",
    }.items():
        given = {f"kafka.{key}": value}
        if key.startswith("max.in"):
            given["kafka.enable.idempotence"] = "false"
        yield write("kafka. keys of a write", f"{key}={value}", VALUE, given, once)
        weaker = {**given, "semantics": "at-least-once"}
        yield write("kafka. keys of a write", f"{key}={value}, at least once", VALUE, weaker)
    lost = "Nobody would know whether a row was written: not even at least once could be kept"
    yield write("kafka. keys of a write", "acks=0", VALUE, {"kafka.acks": "0"}, lost)
    for key, value, why in (
        ("key.serializer", "org.apache.kafka.common.serialization.StringSerializer", ""),
        ("value.serializer", "org.apache.kafka.common.serialization.StringSerializer", ""),
        ("compression.type", "rar", ""),
        ("acks", "most", ""),
        ("linger.ms", "-1", ""),
        ("max.request.size", "10", ""),
        ("partitioner.class", "com.example.Mine", ""),
        ("transactional.id", "mine", ""),
        ("no.such.key", "1", _UNKNOWN),
    ):
        yield write("kafka. keys of a write", f"{key}={value}", VALUE, {f"kafka.{key}": value}, why)
    yield write("kafka. keys of a write", "no bootstrap.servers", VALUE, {"kafka.bootstrap.servers": None})


def all_keys() -> list[Case]:
    """Every case of this file."""
    return [*consumers(), *producers()]
