"""Makes the golden files of this folder again: log segments as Apache Kafka wrote them.

    python tests/wire/golden/make.py HOST:PORT LOG_DIR

HOST:PORT is a running Apache Kafka (the files here: 4.3.0) and LOG_DIR its `log.dirs`. `librdkafka-<codec>.log` holds
what confluent-kafka compressed and Kafka stored as it came; `kafka-<codec>.log` what Kafka itself compressed, because
the topic's `compression.type` says so. `RECORDS` is in every one of them. `transactions.log` holds a committed and an
aborted transaction with their markers; `append-time.log` has a topic's `message.timestamp.type=LogAppendTime`.
"""

import sys
from pathlib import Path
from typing import Any

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
NOW_MS = 1_700_000_000_000
HEADERS: list[tuple[str, bytes | None]] = [("trace", b"\x00\x01"), ("trace", None), ("", b""), ("grüße", b"x" * 70)]
#: (timestamp, key, value, headers)
RECORDS: list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]] = [
    (NOW_MS, b"key", b"value", []),
    (NOW_MS + 1, None, None, []),
    (NOW_MS - 100_000, b"", b"", HEADERS),
    (NOW_MS + 2**33, b"k" * 200, bytes(range(256)) * 40, []),
    *((NOW_MS + at, b"%d" % at, b'{"id": %d, "name": "user %d"}' % (at, at % 7), []) for at in range(200)),
]


def produce(producer: Any, topic: str, records: list[Any]) -> None:
    for timestamp_ms, key, value, headers in records:
        producer.produce(topic, value, key, partition=0, timestamp=timestamp_ms, headers=headers)


def make_topics(server: str) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    topics = [NewTopic(f"librdkafka-{codec}", 1) for codec in CODECS]
    topics += [NewTopic(f"kafka-{codec}", 1, config={"compression.type": codec}) for codec in CODECS[1:]]
    topics.append(NewTopic("append-time", 1, config={"message.timestamp.type": "LogAppendTime"}))
    topics.append(NewTopic("transactions", 1))
    for topic in topics:
        unchecked = {f"message.timestamp.{side}.max.ms": str(2**62) for side in ("before", "after")}
        topic.config = {**(topic.config or {}), **unchecked}
    admin = AdminClient({"bootstrap.servers": server})
    for future in admin.create_topics(topics).values():
        future.result()


def fill_topics(server: str) -> None:
    from confluent_kafka import Consumer, Producer

    base = {"bootstrap.servers": server, "linger.ms": 200, "enable.idempotence": True}
    for codec in CODECS:
        producer = Producer({**base, "compression.type": codec})
        produce(producer, f"librdkafka-{codec}", RECORDS)
        producer.flush()
    producer = Producer(base)
    for topic in [f"kafka-{codec}" for codec in CODECS[1:]] + ["append-time"]:
        produce(producer, topic, RECORDS)
    producer.flush()
    producer = Producer({**base, "transactional.id": "golden"})
    producer.init_transactions()
    reader = Consumer({"bootstrap.servers": server, "group.id": "golden"})
    for ending in (producer.commit_transaction, producer.abort_transaction):
        producer.begin_transaction()
        produce(producer, "transactions", RECORDS[:3])
        producer.flush()
        before = _end_offset(reader)
        ending()
        while _end_offset(reader) == before:
            pass  # the marker follows the answer


def _end_offset(reader: Any) -> int:
    from confluent_kafka import TopicPartition

    end: int = reader.get_watermark_offsets(TopicPartition("transactions", 0))[1]
    return end


def main(server: str, log_dir: str) -> None:
    make_topics(server)
    fill_topics(server)
    for folder in sorted(Path(log_dir).iterdir()):
        topic = folder.name.removesuffix("-0")
        if topic.startswith(("librdkafka-", "kafka-")) or topic in ("transactions", "append-time"):
            segments = [path.read_bytes() for path in sorted(folder.glob("*.log"))]
            (Path(__file__).parent / f"{topic}.log").write_bytes(b"".join(segments))


if __name__ == "__main__":
    main(*sys.argv[1:])
