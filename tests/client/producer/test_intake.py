"""The short way into a batch: what can go it, what must go the long way, and that both ways write the same."""

import random
import threading
from typing import Any

import pytest

from ottla.client.core.producer.accumulator import Accumulator, Limits
from ottla.client.core.producer.batch import ProducerBatch
from ottla.client.producer.delivery import Delivery
from ottla.client.producer.intake import Intake
from ottla.wire.records import Record, decode_batch

_TIME_MS = 1_700_000_000_000


def _told(delivery: object) -> None:
    """A function of the user."""


def _accumulator(partitions: int = 1, *, batch_size: int = 1_000, ignore_keys: bool = False) -> Accumulator:
    limits = Limits(batch_size, 1_000_000, 1_000_000)
    made = Accumulator(limits, random.Random(1), Delivery, ignore_keys=ignore_keys)
    made.set_partitions("t", partitions, list(range(partitions)), 0.0)
    for partition in range(partitions):  # the first record of a batch always goes the long way
        assert made.begin("t", partition, _TIME_MS, None, b"first", (), None) is not None
    return made


def _intake(accumulator: Accumulator) -> Intake:
    return Intake(accumulator.topics, threading.Lock(), lambda: _TIME_MS * 1_000_000 + 999_999, accumulator.hashes_keys)


def _records(batch: ProducerBatch) -> list[Record]:
    assert batch.builder is not None
    return decode_batch(batch.builder.build())


@pytest.mark.parametrize(
    ("key", "partition", "timestamp_ms", "headers"),
    [
        (None, None, None, ()),
        (b"key", None, None, ()),
        (b"another", None, 0, (("name", b"v"), ("name", None))),
        (b"key", 2, 7, ()),
        (None, 1, None, (("", b""),)),
    ],
)
def test_a_record_is_written_as_on_the_long_way(
    key: bytes | None, partition: int | None, timestamp_ms: int | None, headers: tuple[Any, ...]
) -> None:
    short, long = _accumulator(3), _accumulator(3)
    delivery = _intake(short).take("t", b"value", key, partition, timestamp_ms, headers, None)
    chosen = partition if partition is not None or key is None else long.partition_of("t", key)
    time_ms = _TIME_MS if timestamp_ms is None else timestamp_ms
    expected = long.append("t", chosen, time_ms, key, b"value", headers, None)
    assert delivery is not None and expected is not None
    assert delivery.index == expected.index == 1
    assert [_records(batch) for batch in short.incomplete()] == [_records(batch) for batch in long.incomplete()]


def test_the_users_function_stands_in_the_batch_with_the_delivery() -> None:
    accumulator = _accumulator()
    delivery = _intake(accumulator).take("t", None, None, None, None, (), _told)
    [batch] = accumulator.incomplete()
    assert list(batch.to_call()) == [(delivery, _told)]
    batch.outcome.settle(40, -1, None)
    assert delivery is not None
    assert delivery.result() == ("t", 0, 41, _TIME_MS)


@pytest.mark.parametrize(
    "record",
    [
        ("other", b"v", None, None, None, ()),
        (["t"], b"v", None, None, None, ()),
        ("t", "v", None, None, None, ()),
        ("t", bytearray(b"v"), None, None, None, ()),
        ("t", b"v", "key", None, None, ()),
        ("t", b"v", None, 1, None, ()),
        ("t", b"v", None, -1, None, ()),
        ("t", b"v", None, "0", None, ()),
        ("t", b"v", None, 2**70, None, ()),
        ("t", b"v", None, None, 1.5, ()),
        ("t", b"v", None, None, -1, ()),
        ("t", b"v", None, None, -2, ()),
        ("t", b"v", None, None, 2**70, ()),
        ("t", b"v", None, None, None, []),
        ("t", b"v", None, None, None, (("name", 1),)),
        ("t", b"v", None, None, None, ((1, b""),)),
        ("t", b"v", None, None, None, (None,)),
        ("t", b"v" * 1_000, None, None, None, ()),
    ],
)
def test_what_is_not_common_is_declined_and_changes_nothing(record: tuple[Any, ...]) -> None:
    accumulator = _accumulator()
    [batch] = accumulator.incomplete()
    before = _records(batch)
    intake = _intake(accumulator)
    topic, value, key, partition, timestamp_ms, headers = record
    assert intake.take(topic, value, key, partition, timestamp_ms, headers, _told) is None
    assert _records(batch) == before
    assert batch.callbacks == []
    assert intake.take("t", b"the lock is free", None, None, None, (), None) is not None


def test_keys_are_declined_where_their_hash_does_not_choose() -> None:
    intake = _intake(_accumulator(ignore_keys=True))
    assert intake.take("t", b"v", b"key", None, None, (), None) is None
    assert intake.take("t", b"v", None, None, None, (), None) is not None


def test_a_batch_that_is_closed_takes_nothing() -> None:
    accumulator = _accumulator()
    accumulator.close_all()
    assert _intake(accumulator).take("t", b"v", None, None, None, (), None) is None
