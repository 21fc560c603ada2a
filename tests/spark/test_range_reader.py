"""What a task of the source does with many ranges, on a real broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from ottla import Admin, NewTopic, Producer
from ottla.base.types import TopicPartition, topic_id_text
from ottla.spark.errors import DataLossError
from ottla.spark.link import KafkaLink
from ottla.spark.options import SourceOptions, source_options
from ottla.spark.plan import Range
from ottla.spark.range_reader import Wanted, read_ranges
from tests.spark.source_world import ROWS
from tests.spark.throttled_link import throttled_link

if TYPE_CHECKING:
    from ottla.wire.messages.fetch import PartitionData

PARTITIONS, RECORDS = 7, 3
LOSS_IS_NO_FAULT = {"failOnDataLoss": "false"}


class Counting(KafkaLink):
    """A link that counts its fetches by topic, and notes how much they ask for."""

    def __init__(self, config: Mapping[str, object]) -> None:
        super().__init__(config)
        self.fetches: dict[str, int] = {}
        self.asked_bytes: list[int] = []

    async def fetch(self, tp: TopicPartition, offset: int, **how: Any) -> PartitionData | None:
        """As it is; counted."""
        self.asked_bytes.append(how["max_bytes"])
        self.fetches[tp.topic] = self.fetches.get(tp.topic, 0) + 1
        return await super().fetch(tp, offset, **how)


class Topic(NamedTuple):
    """Seven partitions with three records each: `1.0` is the first one of partition 1."""

    bootstrap: str
    name: str

    @classmethod
    def make(cls, bootstrap: str, name: str) -> Topic:
        """Create and fill it."""
        with Admin({"bootstrap.servers": bootstrap}) as admin:
            admin.create_topics([NewTopic(name, PARTITIONS, 1)])
        made = cls(bootstrap, name)
        for partition in range(PARTITIONS):
            made.send(partition, *(f"{partition}.{n}".encode() for n in range(RECORDS)))
        return made

    def send(self, partition: int, *values: bytes) -> None:
        """Append."""
        with Producer({"bootstrap.servers": self.bootstrap}) as producer:
            for value in values:
                producer.send(self.name, value, partition=partition)

    def options(self, given: Mapping[str, str] | None = None) -> SourceOptions:
        """A batch read's."""
        own = {"kafka.bootstrap.servers": self.bootstrap, "subscribe": self.name}
        return source_options({**own, **(given or {})}, streaming=False)

    def wanted(self, start: int = 0, end: int = RECORDS, topic_id: str | None = None) -> list[Wanted]:
        """These offsets of each partition."""
        return [Wanted(Range(TopicPartition(self.name, p), start, end), topic_id) for p in range(PARTITIONS)]


@pytest.fixture
def topic(bootstrap: str, fresh_name: Callable[[str], str]) -> Topic:
    return Topic.make(bootstrap, fresh_name("ranges"))


@pytest.fixture
def kafka(bootstrap: str) -> Iterator[Counting]:
    made = Counting({"bootstrap.servers": bootstrap})
    yield made
    made.shut()


def rows(*partitions: int) -> list[str]:
    """All values of these."""
    return [f"{p}.{n}" for p in partitions for n in range(RECORDS)]


def read(kafka: KafkaLink, options: SourceOptions, wanted: list[Wanted]) -> list[str]:
    """The values, in the order in which Spark gets them."""
    batches = read_ranges(kafka, options, ROWS, wanted)
    return [value.decode() for batch in batches for value in batch.column("value").to_pylist()]


def test_s1_a_task_reads_all_of_its_ranges_in_their_order(topic: Topic, kafka: Counting) -> None:
    assert read(kafka, topic.options(), topic.wanted()) == rows(*range(PARTITIONS))
    assert kafka.fetches == {topic.name: PARTITIONS}
    assert len(list(read_ranges(kafka, topic.options(), ROWS, topic.wanted()))) == 1
    assert read(kafka, topic.options(), []) == []


def test_s1_a_loss_in_one_range_leaves_the_others(topic: Topic, kafka: Counting) -> None:
    with Admin({"bootstrap.servers": topic.bootstrap}) as admin:
        admin.delete_records({TopicPartition(topic.name, 3): RECORDS})
    assert read(kafka, topic.options(LOSS_IS_NO_FAULT), topic.wanted()) == rows(0, 1, 2, 4, 5, 6)
    with pytest.raises(DataLossError, match=f"offset 0 of {topic.name}-3 is not in the log any more"):
        read(kafka, topic.options(), topic.wanted())


def test_s1_a_topic_that_is_gone_is_waited_for_once(
    topic: Topic, kafka: Counting, fresh_name: Callable[[str], str]
) -> None:
    """Not once a range: each wait is of some seconds."""
    other = Topic.make(topic.bootstrap, fresh_name("anew"))
    made_anew = other.wanted(topic_id="AAAAAAAAAAAAAAAAAAAAAQ")
    found = read(kafka, topic.options(LOSS_IS_NO_FAULT), [*made_anew, *topic.wanted()])
    assert found == rows(*range(PARTITIONS))
    assert kafka.fetches == {other.name: 4, topic.name: PARTITIONS}
    with pytest.raises(DataLossError, match="was deleted and made again"):
        read(kafka, topic.options(), made_anew)


def test_s1_ranges_that_a_quota_puts_off_are_asked_again(topic: Topic) -> None:
    slow = throttled_link(topic.options().kafka)
    try:
        assert read(slow, topic.options(), topic.wanted()) == rows(*range(PARTITIONS))
    finally:
        slow.shut()


def test_s1_large_rows_are_given_to_spark_as_they_come(topic: Topic, kafka: Counting) -> None:
    large = {1, 2, 5}
    for partition in large:
        topic.send(partition, bytes(100_000))
    wanted = [Wanted(Range(TopicPartition(topic.name, p), 0, RECORDS + (p in large)), None) for p in range(PARTITIONS)]
    batches = list(read_ranges(kafka, topic.options(), ROWS, wanted))
    assert [batch.num_rows for batch in batches] == [2 * RECORDS, 1, RECORDS, 1, 3 * RECORDS, 1, RECORDS]


def test_s1_who_wants_no_more_rows_leaves_the_link_as_it_was(topic: Topic, kafka: Counting) -> None:
    for partition in range(PARTITIONS):
        topic.send(partition, bytes(100_000))
    reading = read_ranges(kafka, topic.options(), ROWS, topic.wanted(end=RECORDS + 1))
    next(reading)
    reading.close()
    assert kafka.fetches[topic.name] <= 5
    assert read(kafka, topic.options(), topic.wanted()) == rows(*range(PARTITIONS))


def test_s1_a_fetch_asks_for_no_more_than_its_range_seems_to_need(topic: Topic, kafka: Counting) -> None:
    """How much that is is known from the fetch before; a guess that is too low costs a fetch more, and no row."""
    topic.send(0, bytes(300_000), b"last")

    def of_the_first(start: int, end: int) -> list[str]:
        return read(kafka, topic.options(), topic.wanted(start, end)[:1])

    assert of_the_first(0, 2) == rows(0)[:2]
    assert kafka.asked_bytes == [2 * 1_024 + 65_536], "of records of which nothing is known"
    assert of_the_first(2, 3) == rows(0)[2:]
    assert 65_536 < kafka.asked_bytes[-1] < 67_000
    large, last = of_the_first(3, 5)
    assert (len(large), last) == (300_000, "last")


def test_s1_what_a_fetch_brings_beyond_its_range_is_not_fetched_again(topic: Topic, kafka: Counting) -> None:
    """A small micro-batch had all of a large batch sent, and the next one the same again."""
    tp = TopicPartition(topic.name, 0)
    with Producer({"bootstrap.servers": topic.bootstrap, "linger.ms": 10_000, "batch.size": 1_000_000}) as producer:
        for n in range(40):
            producer.send(topic.name, f"{n}".encode(), partition=0)
    with Admin({"bootstrap.servers": topic.bootstrap}) as admin:
        topic_id = topic_id_text(admin.describe_topics([topic.name])[topic.name].topic_id)

    def of(start: int, end: int, *, epoch: int | None = 0, unbroken: str | None = "planned by this") -> list[str]:
        ranges = [Wanted(Range(tp, RECORDS + start, RECORDS + end), topic_id, epoch, unbroken)]
        found = read(kafka, topic.options(), ranges)
        assert found == [str(n) for n in range(start, end)]
        return found

    def fetches() -> int:
        return kafka.fetches.pop(topic.name, 0)

    of(0, 10)
    kafka.memory.clear()
    of(0, 10)  # of the first task of a link it is not known yet who has led the partition
    assert fetches() == 2
    of(10, 15)
    of(20, 29)  # what lies between has gone to another worker
    assert fetches() == 0
    topic.send(0, b"40", b"41")
    of(29, 42)
    assert fetches() == 1, "only for what the fetch before did not have"
    of(0, 10)
    of(10, 20, epoch=1)
    of(0, 10)
    of(9, 20)
    of(0, 10, epoch=None)
    of(10, 20)
    of(0, 10)
    of(10, 20, unbroken="by another connection")
    of(0, 10, unbroken=None)
    of(10, 20)
    assert fetches() == 10, "another leader has planned it, or it begins elsewhere, or nobody knows who has planned it"
