"""What users do with batches that are too large for the broker; see `journeys`."""

from collections.abc import Callable

import pytest

from ottla import Admin, Delivery, NewTopic
from ottla.client.errors import AbortableTransactionError, RecordTooLargeError
from tests.client.journeys import PATIENCE_S, fresh, read_all
from tests.recording.current import Producer

_RECORDS = 300


def small_topic(servers: str) -> str:
    """A topic that takes batches of up to 1,000 bytes."""
    name = fresh("small")
    with Admin({"bootstrap.servers": servers}) as admin:
        admin.create_topics([NewTopic(name, 1, 1, {"max.message.bytes": "1000"})])
    return name


def large_batches(servers: str, **more: object) -> Producer:
    """A producer whose batches are far too large for it, and several of them on the way."""
    config = {"bootstrap.servers": servers, "batch.size": 8_000, "linger.ms": 60_000}
    return Producer(config | {key.replace("_", "."): value for key, value in more.items()})


def value(number: int) -> bytes:
    """A value that does not compress well."""
    return b"%d-" % number + bytes((number * 7919 + n * n * 31) % 256 for n in range(100))


def kip126_batches_that_are_too_large_are_split(servers: str) -> None:
    for config in ({}, {"compression_type": "lz4"}, {"enable_idempotence": False}, {"retries": 0, "acks": "1"}):
        topic = small_topic(servers)
        heard: list[Delivery] = []
        with large_batches(servers, **config) as producer:
            sent = [
                producer.send(topic, value(n), timestamp_ms=1_000 + n, on_delivery=heard.append)
                for n in range(_RECORDS)
            ]
            producer.flush(PATIENCE_S)
            assert sorted(map(id, heard)) == sorted(map(id, sent))
        found = read_all(servers, topic)
        assert {record.offset: (record.value, record.timestamp_ms) for record in found} == {
            delivery.result().offset: (value(n), 1_000 + n) for n, delivery in enumerate(sent)
        }
        if "retries" not in config and "enable_idempotence" not in config:
            assert [record.value for record in found] == [value(n) for n in range(_RECORDS)]


def kip126_a_record_that_is_too_large_alone_fails_alone(servers: str) -> None:
    topic = small_topic(servers)
    with large_batches(servers) as producer:
        sent = [producer.send(topic, b"x" * 2_000 if n == 150 else value(n)) for n in range(_RECORDS)]
        producer.flush(PATIENCE_S)
        with pytest.raises(RecordTooLargeError, match=rf"{topic}-0: the record alone .*max\.message\.bytes"):
            sent[150].result()
        assert [n for n, delivery in enumerate(sent) if delivery.exception()] == [150]
        producer.send(topic, b"after")
    expected = [value(n) for n in range(_RECORDS) if n != 150]
    assert [record.value for record in read_all(servers, topic)] == [*expected, b"after"]


def kip126_a_callback_may_ask_for_the_record_s_place(servers: str) -> None:
    topic = small_topic(servers)
    heard: list[int] = []
    with large_batches(servers) as producer:
        for n in range(_RECORDS):
            producer.send(topic, value(n), on_delivery=lambda done: heard.append(done.result(0).offset))
    assert heard == list(range(_RECORDS))


def kip126_transactions_hold_what_was_split(servers: str) -> None:
    topic = small_topic(servers)
    with large_batches(servers, transactional_id=fresh("small")) as producer:
        producer.init_transactions()
        with producer.transaction():
            for n in range(_RECORDS):
                producer.send(topic, value(n))
        with pytest.raises(AbortableTransactionError, match=r"max\.message\.bytes"), producer.transaction():
            for n in range(_RECORDS):
                producer.send(topic, b"x" * 2_000 if n == 150 else b"never")
        with producer.transaction():
            producer.send(topic, b"after")
    expected = [value(n) for n in range(_RECORDS)]
    assert [record.value for record in read_all(servers, topic)] == [*expected, b"after"]


def kip126_columns_are_split_too(servers: str) -> None:
    pa = pytest.importorskip("pyarrow")
    topic = small_topic(servers)
    with large_batches(servers) as producer:
        [whole] = producer.send_arrow(topic, pa.record_batch({"value": [value(n) for n in range(_RECORDS)]}))
        assert whole.result(PATIENCE_S).offset == 0
        [spoilt] = producer.send_arrow(topic, pa.record_batch({"value": [b"a", b"x" * 2_000]}))
        with pytest.raises(RecordTooLargeError):
            spoilt.result(PATIENCE_S)
    assert [record.value for record in read_all(servers, topic)] == [*(value(n) for n in range(_RECORDS)), b"a"]


SIZES: list[Callable[[str], None]] = [
    kip126_batches_that_are_too_large_are_split,
    kip126_a_record_that_is_too_large_alone_fails_alone,
    kip126_a_callback_may_ask_for_the_record_s_place,
    kip126_transactions_hold_what_was_split,
    kip126_columns_are_split_too,
]
