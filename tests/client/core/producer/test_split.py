"""KIP-126: a batch that is too large becomes two; the users' Deliveries follow. No loop and no broker."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.types import TopicPartition
from ottla.client.core.producer.accumulator import Accumulator, Limits
from ottla.client.core.producer.batch import ProducerBatch
from ottla.client.errors import IllegalStateError, RecordTooLargeError
from ottla.client.producer.delivery import Delivery
from ottla.wire.compression import Compression
from ottla.wire.errors import ErrorCode
from ottla.wire.records import decode_batch

TP = TopicPartition("t", 0)
REFUSED = RecordTooLargeError(ErrorCode.MESSAGE_TOO_LARGE, "too large")


class Bench:
    """One partition's batches, and all Deliveries."""

    def __init__(self) -> None:
        self.acc = Accumulator(Limits(100_000, 1_000_000, 100_000), random.Random(1), Delivery)
        self.acc.set_partitions("t", 1, [0], 0.0)
        self.heard: list[Delivery] = []

    def add(self, value: bytes) -> Delivery:
        record = ("t", 0, 5, b"k", value, (("h", b"1"),), self.heard.append)
        delivery: Delivery | None = self.acc.append(*record) or self.acc.begin(*record)
        assert delivery is not None
        return delivery

    def take(self) -> ProducerBatch:
        self.acc.set_dates(0.0)
        [queue] = self.acc.waiting(1.0, 0.0)[0]
        return self.acc.take(queue)

    def refused(self, compression: Compression = Compression.NONE) -> tuple[ProducerBatch, ProducerBatch]:
        """The first batch is sent, refused, and split."""
        batch = self.take()
        batch.seal(compression, None)
        return self.acc.split(batch)


def values(batch: ProducerBatch) -> list[bytes | None]:
    batch.seal(Compression.NONE, None)
    return [record.value for record in decode_batch(bytes(batch.stamp()))]


@given(st.lists(st.binary(max_size=200), min_size=2, max_size=30), st.sampled_from(Compression))
def test_halves_hold_every_record_once_and_in_order(contents: list[bytes], compression: Compression) -> None:
    bench = Bench()
    sent = [bench.add(content) for content in contents]
    whole_bytes = sum(len(content) + 80 for content in contents)
    first, second = bench.refused(compression)
    assert values(first) + values(second) == contents
    assert 0 < first.record_count < len(contents)
    assert max(first.size_bytes, second.size_bytes) <= whole_bytes
    first.outcome.settle(10, -1, None)
    second.outcome.settle(90, -1, None)
    expected = [*range(10, 10 + first.record_count), *range(90, 90 + second.record_count)]
    assert [delivery.result(0).offset for delivery in sent] == expected
    assert [delivery.index for half in (first, second) for delivery, _ in half.to_call()] == list(range(len(contents)))


def test_each_half_has_its_own_fate_and_the_whole_waits_for_both() -> None:
    bench = Bench()
    sent = [bench.add(b"v" * 100) for _ in range(4)]
    bench.acc.close_all()
    [whole] = bench.acc.incomplete()
    first, second = bench.refused()
    woken: list[bool] = []
    whole.outcome.when_done(lambda: woken.append(True))
    second.outcome.settle(-1, -1, REFUSED)
    assert [delivery.done() for delivery in sent] == [False, False, True, True]
    assert sent[3].exception() is REFUSED
    with pytest.raises(IllegalStateError):
        sent[0].exception()
    assert not woken
    first.outcome.settle(7, -1, None)
    assert [delivery.exception() for delivery in sent] == [None, None, REFUSED, REFUSED]
    assert (woken, whole.outcome.error) == ([True], REFUSED)


def test_halves_may_be_split_again() -> None:
    bench = Bench()
    sent = [bench.add(b"v" * 100) for _ in range(8)]
    for batch in bench.refused():
        bench.acc.drop(batch)
        batch.seal(Compression.NONE, None)
        for quarter in bench.acc.split(batch):
            quarter.outcome.settle(10 * sum(quarter.number[1:]) + quarter.number[1], -1, None)
    assert [delivery.result(0).offset for delivery in sent] == [0, 1, 10, 11, 11, 12, 21, 22]


def test_who_wants_to_hear_of_a_record_is_told_with_the_half_that_has_it() -> None:
    bench = Bench()
    sent = [bench.add(b"v" * 100) for _ in range(8)]
    _, second = bench.refused()
    bench.acc.drop(second)
    second.seal(Compression.NONE, None)
    quarters = bench.acc.split(second)
    for quarter, records in zip(quarters, (sent[4:6], sent[6:]), strict=True):
        assert [delivery for delivery, _ in quarter.to_call()] == records


def test_halves_stand_where_the_whole_stood_in_the_queue_and_in_memory() -> None:
    bench = Bench()
    for _ in range(2):
        bench.add(b"v" * 60_000)  # one record a batch
    bench.add(b"v")
    bench.add(b"w")
    batches = [bench.take() for _ in range(2)]
    whole = batches[1]
    whole.seal(Compression.NONE, None)
    bench.add(b"x")
    bench.acc.put_back(batches[0])
    halves = bench.acc.split(whole)
    assert bench.acc.incomplete()[:3] == [batches[0], *halves]
    assert list(bench.acc.queued())[:3] == [batches[0], *halves]
    assert sum(half.reserved_bytes for half in halves) == whole.reserved_bytes
    for batch in bench.acc.incomplete():
        bench.acc.settled(batch)
    assert bench.acc.unsettled_records() == 0
