"""Our record batches, as bytes, given to Apache Kafka: it must open, check and rewrite each of them."""

from __future__ import annotations

import itertools
import socket
import struct
import time
from collections.abc import Callable

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.wire.apis import ApiKey
from ottla.wire.batch import Compression
from ottla.wire.errors import ErrorCode
from ottla.wire.frames import decode_response, encode_request
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from ottla.wire.records import Record, encode_batch
from tests.interop.apache import ApacheKafka
from tests.wire.golden.make import RECORDS

pytestmark = pytest.mark.interop
_PRODUCE_VERSION = 9
_WAIT_S = 60.0
_NO_LEADER_YET = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER)
_ROWS = [
    Record(at, timestamp, key, value, tuple(headers)) for at, (timestamp, key, value, headers) in enumerate(RECORDS)
]


def _produce(bootstrap: str, topic: str, batch: bytes) -> ProduceResponse:
    host, _, port = bootstrap.rpartition(":")
    partition = PartitionProduceData(index=0, records=batch)
    topic_data = TopicProduceData(name=topic, partition_data=(partition,))
    request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=(topic_data,))
    with socket.create_connection((host, int(port)), timeout=30) as connection, connection.makefile("rb") as answers:
        connection.sendall(encode_request(ApiKey.PRODUCE, _PRODUCE_VERSION, 7, "ottla-tests", request))
        (size,) = struct.unpack(">i", answers.read(4))
        correlation_id, response = decode_response(ApiKey.PRODUCE, _PRODUCE_VERSION, answers.read(size))
    assert correlation_id == 7
    assert isinstance(response, ProduceResponse)
    return response


def _consume(bootstrap: str, topic: str, count: int) -> list[Record]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    messages = list(itertools.islice(iter(lambda: consumer.poll(30), None), count))
    consumer.close()
    assert all(message.error() is None for message in messages)
    assert {message.timestamp()[0] for message in messages} == {TIMESTAMP_CREATE_TIME}
    return [Record(m.offset(), m.timestamp()[1], m.key(), m.value(), tuple(m.headers() or ())) for m in messages]


@pytest.mark.parametrize("rewritten_as", ["producer", "uncompressed"])
@pytest.mark.parametrize("compression", Compression)
def test_apache_kafka_takes_and_rewrites_our_batches(
    apache_kafka: ApacheKafka, fresh: Callable[[str], str], compression: Compression, rewritten_as: str
) -> None:
    """With `compression.type` uncompressed, Java itself decompresses what we compressed."""
    topic = fresh("batches")
    unchecked = {f"message.timestamp.{side}.max.ms": str(2**62) for side in ("before", "after")}
    admin = AdminClient({"bootstrap.servers": apache_kafka.bootstrap})
    config = {"compression.type": rewritten_as, **unchecked}
    admin.create_topics([NewTopic(topic, 1, config=config)])[topic].result()
    _write(apache_kafka, topic, encode_batch(_ROWS, compression=compression))
    assert _consume(apache_kafka.bootstrap, topic, len(_ROWS)) == _ROWS


@pytest.mark.parametrize("rewritten_as", ["producer", "uncompressed"])
@pytest.mark.parametrize("kilobytes", [10, 200, 900, 3_000, 6_000])
def test_apache_kafka_takes_and_rewrites_lz4_of_every_block_size(
    apache_kafka: ApacheKafka, fresh: Callable[[str], str], kilobytes: int, rewritten_as: str
) -> None:
    """Blocks of 64 KiB to 4 MiB, and more than one of these; librdkafka reads them, or what Java made of them."""
    topic = fresh("blocks")
    admin = AdminClient({"bootstrap.servers": apache_kafka.bootstrap})
    config = {"compression.type": rewritten_as, "max.message.bytes": "20000000"}
    admin.create_topics([NewTopic(topic, 1, config=config)])[topic].result()
    now_ms = int(time.time() * 1000)
    rows = [Record(at, now_ms, None, b"%d, %d;" % (at, at**3) * 100, ()) for at in range(kilobytes)]
    _write(apache_kafka, topic, encode_batch(rows, compression=Compression.LZ4))
    assert _consume(apache_kafka.bootstrap, topic, len(rows)) == rows


def _write(apache_kafka: ApacheKafka, topic: str, batch: bytes) -> None:
    # A topic is made before its leader knows: ask again until it does.
    until = time.monotonic() + _WAIT_S
    while True:
        (answer,) = _produce(apache_kafka.bootstrap, topic, batch).responses[0].partition_responses
        if answer.error_code not in _NO_LEADER_YET or time.monotonic() > until:
            break
    assert (answer.error_code, answer.error_message) == (0, None)
