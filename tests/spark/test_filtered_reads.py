"""A batch read with filters, on a real broker: what is fetched, counted, and what is read."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from pyspark.sql.datasource import (
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from ottla import Producer
from ottla.base.types import TopicPartition
from ottla.spark.link import KafkaLink
from ottla.spark.options import source_options
from ottla.spark.range_reader import read_ranges
from ottla.wire.batch import iter_headers
from ottla.wire.messages.fetch import PartitionData
from tests.spark.source_world import ROWS, World

#: Records are produced in batches of this many, and a fetch takes one: what a batch holds beside them comes along.
BATCH = 10
RECORDS = 100


class Counting(KafkaLink):
    """A link that counts the records of its fetches, one batch each."""

    def __init__(self, config: dict[str, object]) -> None:
        super().__init__(config)
        self.records: dict[TopicPartition, int] = {}

    async def fetch(self, tp: TopicPartition, offset: int, **how: Any) -> PartitionData | None:
        """As it is; counted."""
        data = await super().fetch(tp, offset, **{**how, "max_bytes": 1})
        if data is not None and data.records:
            found = sum(header.record_count for _, header in iter_headers(memoryview(data.records)))
            self.records[tp] = self.records.get(tp, 0) + found
        return data


@pytest.fixture
def world(bootstrap: str, fresh_name: Callable[[str], str]) -> World:
    """A hundred records in each of two partitions; their times are 1,000 ms and on, and 2,000 ms and on."""
    made = World(bootstrap, fresh_name("filtered"))
    made.make(0)
    for first in range(0, RECORDS, BATCH):
        with Producer({"bootstrap.servers": bootstrap, "linger.ms": 1_000}) as producer:
            for n in range(first, first + BATCH):
                for p in range(2):
                    value = f"{p}.{n}".encode()
                    producer.send(made.topic, value, partition=p, timestamp_ms=1_000 * (p + 1) + n)
    return made


def at(ms: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)


def fetched(world: World, *told: Filter) -> tuple[dict[int, int], int]:
    """How many records were fetched of each partition, and how many rows came out, before Spark applies filters."""
    reader = world.reader()
    assert reader.pushFilters(list(told)) == list(told)
    given = {"kafka.bootstrap.servers": world.bootstrap, "subscribe": world.topic}
    options = source_options(given, streaming=False)
    link = Counting({"bootstrap.servers": world.bootstrap})
    try:
        rows = sum(
            batch.num_rows for each in reader.partitions() for batch in read_ranges(link, options, ROWS, each.wanted)
        )
    finally:
        link.shut()
    return {tp.partition: count for tp, count in sorted(link.records.items())}, rows


def test_s5_without_filters_all_is_fetched(world: World) -> None:
    assert fetched(world) == ({0: 100, 1: 100}, 200)
    assert fetched(world, IsNotNull(("offset",))) == ({0: 100, 1: 100}, 200)


def test_s5_offsets_partitions_and_times_narrow_what_is_fetched(world: World) -> None:
    below = LessThan(("offset",), 15)
    assert fetched(world, GreaterThanOrEqual(("offset",), 95)) == ({0: 10, 1: 10}, 10)
    assert fetched(world, below) == ({0: 20, 1: 20}, 30)
    assert fetched(world, EqualTo(("partition",), 1)) == ({1: 100}, 100)
    assert fetched(world, In(("partition",), (0, 7)), below) == ({0: 20}, 15)
    assert fetched(world, GreaterThanOrEqual(("timestamp",), at(2_085))) == ({1: 20}, 15)
    assert fetched(world, GreaterThanOrEqual(("timestamp",), at(1_085)), below) == ({1: 20}, 15)
    assert fetched(world, EqualTo(("topic",), "another")) == ({}, 0)
    assert fetched(world, GreaterThanOrEqual(("timestamp",), at(9_999))) == ({}, 0)
    assert fetched(world, EqualTo(("offset",), 500)) == ({}, 0)


def test_s5_a_record_behind_a_later_one_is_not_lost_to_a_time(world: World) -> None:
    with Producer({"bootstrap.servers": world.bootstrap}) as producer:
        producer.send(world.topic, b"late", partition=0, timestamp_ms=1_000)
    assert fetched(world, LessThanOrEqual(("timestamp",), at(1_000)))[1] == 2 * RECORDS + 1
    assert fetched(world, EqualTo(("timestamp",), at(1_000))) == ({0: 101, 1: 100}, 201)


def test_s5_spark_is_told_that_the_reader_has_no_filters_of_its_own(world: World) -> None:
    """Else it would refuse every batch read where filters are not switched on."""
    assert world.reader().pushFilters.__func__ is DataSourceReader.pushFilters
