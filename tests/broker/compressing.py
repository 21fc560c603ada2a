"""What a topic with `compression.type` makes of clients' batches, for our broker and for Apache Kafka."""

from __future__ import annotations

from typing import NamedTuple

from ottla import Admin, NewTopic, Producer
from ottla.wire.apis import ApiKey
from ottla.wire.batch import iter_headers
from ottla.wire.compression import Compression
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.records import decode_batch
from tests.client import markers
from tests.client.journeys import PATIENCE_S, fresh
from tests.coordinator.txn.socket_conversation import SocketConversation

TARGETS = ("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd")
SOURCES = ("none", "gzip", "snappy", "lz4", "zstd")


class Stored(NamedTuple):
    """A batch in the log, less the identity of its producer."""

    base_offset: int
    last_offset: int
    compression: str
    base_sequence: int
    is_transactional: bool
    is_control: bool
    values: tuple[bytes | None, ...]


def stored(port: int, topic: str) -> list[Stored]:
    """All batches of the topic's partition 0."""
    conversation = SocketConversation("compressing", port)
    wanted = FetchTopic(topic=topic, partitions=(FetchPartition(partition=0, partition_max_bytes=10_000_000),))
    answer = conversation.send(ApiKey.FETCH, 11, FetchRequest(max_bytes=10_000_000, topics=(wanted,)))
    conversation.close()
    records = memoryview(answer.responses[0].partitions[0].records)
    found = []
    for position, header in iter_headers(records):
        batch = records[position : position + header.size_bytes]
        values = () if header.is_control else tuple(record.value for record in decode_batch(batch))
        found.append(
            Stored(
                header.base_offset,
                header.last_offset,
                Compression(header.compression).name,
                header.base_sequence,
                header.is_transactional,
                header.is_control,
                values,
            )
        )
    return found


def written(servers: str, target: str) -> str:
    """A topic of this `compression.type`, into which producers of every codec have written, one in a transaction."""
    topic = fresh(f"compressing-{target}")
    with Admin({"bootstrap.servers": servers}) as admin:
        admin.create_topics([NewTopic(topic, 1, 1, {"compression.type": target})])
    for source in SOURCES:
        config = {"bootstrap.servers": servers, "compression.type": source, "linger.ms": 60_000, "batch.size": 900_000}
        with Producer(config) as producer:
            for size in (10, 50_000):  # compressed on the event loop of our broker, and beside it
                for number in range(3):
                    producer.send(topic, b"%d " % number * size, partition=0)
                producer.flush(PATIENCE_S)
    with Producer({"bootstrap.servers": servers, "transactional.id": fresh("compressing")}) as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.send(topic, b"in a transaction", partition=0)
    markers.all_written(servers)
    return topic
