"""Batches in the making: partitioning, memory, order. No loop and no broker."""

import random
import threading
from contextlib import suppress

import pytest

from ottla.base.types import TopicPartition
from ottla.client.core.producer.accumulator import Accumulator, Limits
from ottla.client.core.producer.batch import ProducerBatch
from ottla.client.core.producer.partitioner import StickyPartition
from ottla.client.errors import IllegalStateError, RecordTooLargeError, UnknownTopicOrPartitionError
from ottla.client.producer.delivery import Delivery
from ottla.wire.compression import Compression
from ottla.wire.hashing import partition_for_key
from ottla.wire.records import decode_batch


class Bench:
    """An accumulator with a clock that stands still, used as the shell uses it."""

    def __init__(
        self, *, batch_size: int = 1_000, buffer_memory: int = 10_000, partitions: int = 3, **more: object
    ) -> None:
        self.now_s = 0.0
        #: How many batches were begun: the shell wakes the loop for each.
        self.begun = 0
        self.lock = threading.Lock()
        self.acc = Accumulator(
            Limits(batch_size, buffer_memory, 5_000),
            random.Random(1),
            Delivery,
            **more,  # type: ignore[arg-type]
        )
        self.acc.set_partitions("t", partitions, list(range(partitions)), self.now_s)

    def add(self, value: bytes = b"v", *, key: bytes | None = None, partition: int | None = None) -> bool:
        if partition is None:
            partition = self.acc.partition_of("t", key)
        with self.lock:
            if self.acc.append("t", partition, 1, key, value, (), None) is not None:
                return True
            begun = self.acc.begin("t", partition, 1, key, value, (), None) is not None
            self.begun += begun
            return begun

    def take_all(self) -> list[ProducerBatch]:
        self.acc.set_dates(self.now_s)
        queues, _ = self.acc.waiting(self.now_s + 1_000, 0)
        taken = []
        for queue in queues:
            while queue.first is not None:
                taken.append(self.acc.take(queue))
        return taken


def test_a_key_goes_to_its_partition_though_the_topic_becomes_known_in_between() -> None:
    here = Bench(partitions=8)
    for number in range(20):
        topic, key = f"new-{number}", b"%d" % number
        partition = here.acc.partition_of(topic, key)
        here.acc.set_partitions(topic, 8, list(range(8)), here.now_s)  # by another thread
        for attempt in (here.acc.append, here.acc.begin):
            with suppress(UnknownTopicOrPartitionError):
                assert attempt(topic, partition, 1, key, b"v", (), None) is None


def values(batch: ProducerBatch) -> list[bytes | None]:
    batch.seal(Compression.NONE, None)
    return [record.value for record in decode_batch(bytes(batch.stamp()))]


def test_a_topic_that_is_not_known_is_not_taken() -> None:
    accumulator = Bench().acc
    assert accumulator.append("other", None, 1, None, b"v", (), None) is None
    assert accumulator.begin("other", None, 1, None, b"v", (), None) is None


def test_a_batch_is_begun_when_the_last_is_full() -> None:
    bench = Bench(partitions=1)
    for _ in range(5):
        bench.add(b"x" * 100)
    assert bench.begun == 1
    for _ in range(5):
        bench.add(b"x" * 100)
    assert bench.begun == 2
    assert [len(values(batch)) for batch in bench.take_all()] == [8, 2]


def test_c6_a_key_goes_where_kafka_puts_it() -> None:
    bench = Bench()
    keys = [b"a", b"b", b"some key", b""]
    for key in keys:
        bench.add(key, key=key)
    for batch in bench.take_all():
        assert all(partition_for_key(value or b"", 3) == batch.tp.partition for value in values(batch))


def test_c6_keys_may_be_ignored_and_partitions_may_be_given() -> None:
    bench = Bench(ignore_keys=True)
    bench.add(key=b"a")
    bench.add(key=b"b")
    bench.add(partition=0)
    bench.add(partition=2)
    assert sum(batch.record_count for batch in bench.take_all()) == 4


def test_c6_a_custom_partitioner_decides() -> None:
    bench = Bench(partitioner=lambda topic, key, count: count - 1)
    bench.add()
    bench.add(key=b"k")
    assert {batch.tp.partition for batch in bench.take_all()} == {2}


def test_c6_without_a_key_a_partition_is_kept_until_a_batch_is_full() -> None:
    bench = Bench(buffer_memory=100_000)
    for number in range(60):
        bench.add(b"%050d" % number)
    batches = bench.take_all()
    assert len(batches) > 3
    assert len({batch.tp.partition for batch in batches}) > 1
    assert [batch.record_count for batch in batches if batch.size_bytes > 900]


def test_c6_the_sticky_partition_avoids_those_without_a_leader() -> None:
    sticky = StickyPartition(10, random.Random(3))
    sticky.set_partitions(5, [1, 4])
    seen = set()
    for _ in range(20):
        seen.add(sticky.partition)
        sticky.closed(10)
    assert seen == {1, 4}


def test_a_partition_that_does_not_exist_is_refused() -> None:
    with pytest.raises(UnknownTopicOrPartitionError, match="partitions 0 to 2, not 3"):
        Bench().add(partition=3)


def test_a_record_above_max_request_size_is_refused() -> None:
    with pytest.raises(RecordTooLargeError, match=r"max\.request\.size"):
        Bench().add(b"x" * 6_000)


def test_a_record_above_batch_size_gets_a_batch_of_its_own() -> None:
    bench = Bench(partitions=1)
    for size in (10, 4_000, 10):
        bench.add(b"x" * size)
    assert [batch.record_count for batch in bench.take_all()] == [1, 1, 1]


def test_buffer_memory_is_not_exceeded_and_comes_back() -> None:
    bench = Bench(batch_size=1_000, buffer_memory=2_500)
    assert bench.add(partition=0)
    assert bench.add(partition=1)
    assert not bench.add(partition=2)
    bench.acc.settled(bench.take_all()[0])
    assert bench.add(partition=2)


def test_linger_decides_when_a_batch_is_due() -> None:
    bench = Bench(partitions=1)
    bench.add()
    bench.acc.set_dates(0.0)
    assert bench.acc.waiting(0.0, 0.005) == ([], 0.005)
    due, _ = bench.acc.waiting(0.005, 0.005)
    assert [queue.tp for queue in due] == [TopicPartition("t", 0)]


def test_who_waits_for_room_has_batches_sent_that_are_not_full() -> None:
    bench = Bench(partitions=1)
    bench.add()
    bench.acc.room_wanted = True
    due, _ = bench.acc.waiting(0.0, 60.0)
    assert [queue.tp for queue in due] == [TopicPartition("t", 0)]


def test_a_topic_without_batches_is_idle_after_its_time_and_can_be_forgotten() -> None:
    bench = Bench(partitions=2)
    bench.acc.set_partitions("busy", 1, [0], 0.0)
    bench.acc.begin("busy", 0, 1, None, b"v", (), None)
    assert bench.acc.idle_topics(9.0, 10.0) == ({}, 10.0)
    assert bench.acc.idle_topics(10.0, 10.0) == ({"t": 2}, 20.0), "a batch is open in the other one"
    bench.acc.forget("t")
    assert not bench.acc.knows("t")
    assert not bench.add()


def test_a_topic_that_somebody_has_in_mind_is_not_idle() -> None:
    bench = Bench(partitions=2)
    assert not bench.acc.expect("other")
    assert bench.acc.expect("t")
    assert bench.acc.idle_topics(10.0, 10.0) == ({}, 20.0)
    assert bench.acc.idle_topics(20.0, 10.0) == ({"t": 2}, None)


def test_p4_a_batch_that_comes_back_takes_its_old_place() -> None:
    bench = Bench(partitions=1)
    for _ in range(30):
        bench.add(b"x" * 100)
    taken = bench.take_all()
    for batch in (taken[2], taken[0], taken[1]):
        bench.acc.put_back(batch)
    assert bench.take_all()[:3] == taken[:3]


def test_after_close_nothing_is_taken() -> None:
    bench = Bench()
    bench.add()
    bench.acc.close(IllegalStateError("closed"))
    with pytest.raises(IllegalStateError):
        bench.add()  # not into the batch that was filling either
    assert len(bench.take_all()) == 1


def test_threads_may_append_at_once() -> None:
    bench = Bench(partitions=2, batch_size=2_000, buffer_memory=10_000_000)

    def work(thread: int) -> None:
        for number in range(500):
            bench.add(b"%d-%d" % (thread, number))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = [value for batch in bench.take_all() for value in values(batch)]
    assert len(found) == len(set(found)) == 2_000


def test_what_is_no_record_leaves_nothing_behind() -> None:
    bench = Bench()
    with pytest.raises(TypeError):
        bench.add("text")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="timestamp"):
        bench.acc.begin("t", 0, 2**62, None, b"v", (), None)
    assert bench.acc.incomplete() == []
    assert bench.add()
