"""The source without Spark: its drivers and tasks are called as Spark would, against a real broker."""

import json
from typing import Any, NamedTuple

from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit

from ottla import Admin, NewTopic, Producer
from ottla.base.types import TopicPartition
from ottla.spark.datasource import OttlaDataSource
from ottla.spark.source import OttlaReader, OttlaStreamReader
from tests.spark.source_rows import SCHEMA

ALL = ReadAllAvailable()
#: What Spark gives a reader by itself, with includeHeaders and without.
WITH_HEADERS = from_arrow_schema(SCHEMA)
ROWS = from_arrow_schema(SCHEMA.remove(SCHEMA.get_field_index("headers")))


class World(NamedTuple):
    """A topic of two partitions with five records each, their timestamps 1000 to 1004 and 2000 to 2004."""

    bootstrap: str
    topic: str

    def make(self, records: int) -> None:
        """Create the topic and fill it."""
        with Admin({"bootstrap.servers": self.bootstrap}) as admin:
            admin.create_topics([NewTopic(self.topic, 2, 1)])
        self.fill(records)

    def fill(self, records: int, first: int = 0) -> None:
        """Append to each partition."""
        with Producer({"bootstrap.servers": self.bootstrap}) as producer:
            for n in range(first, first + records):
                for p in range(2):
                    at_ms = 1000 * (p + 1) + n
                    producer.send(self.topic, f"{p}.{n}".encode(), partition=p, timestamp_ms=at_ms)

    def delete(self) -> None:
        """Delete the topic."""
        with Admin({"bootstrap.servers": self.bootstrap}) as admin:
            admin.delete_topics([self.topic])

    def forget(self, before: int) -> None:
        """Delete the records of partition 0 before an offset."""
        with Admin({"bootstrap.servers": self.bootstrap}) as admin:
            admin.delete_records({TopicPartition(self.topic, 0): before})

    def data_source(self, **given: Any) -> OttlaDataSource:
        """The format, with these options."""
        chosen = {} if {"assign", "subscribePattern"} & set(given) else {"subscribe": self.topic}
        options = {name.replace("__", "."): str(value) for name, value in given.items()}
        return OttlaDataSource({"kafka.bootstrap.servers": self.bootstrap, **chosen, **options})

    def reader(self, **options: Any) -> OttlaReader:
        """A batch read."""
        return self.data_source(**options).reader(ROWS)

    def stream(self, **options: Any) -> OttlaStreamReader:
        """A new driver of a streaming read."""
        made = self.data_source(**{"startingOffsets": "earliest", **options}).streamReader(ROWS)
        assert isinstance(made, OttlaStreamReader)
        return made

    def json(self, p0: int, p1: int) -> str:
        """Offsets as an option."""
        return json.dumps({self.topic: {"0": p0, "1": p1}})

    def rows(self, p0: range, p1: range) -> list[str]:
        """The values at these offsets."""
        return [f"0.{n}" for n in p0] + [f"1.{n}" for n in p1]


def values(reader: Any, planned: list[InputPartition]) -> list[str]:
    """What Spark's tasks read; without a partition it makes one of its own, in batch."""
    batches = [batch for p in planned or [InputPartition(None)] for batch in reader.read(p)]
    return sorted(value.decode() for batch in batches for value in batch.column("value").to_pylist())


def batch_values(reader: OttlaReader) -> list[str]:
    return values(reader, reader.partitions())


def next_batch(stream: OttlaStreamReader, start: dict[str, Any], limit: ReadLimit = ALL) -> tuple[Any, list[str]]:
    """A micro-batch: where it ends, and its values. `start` itself and nothing when there is none."""
    end = stream.latestOffset(start, limit)
    return end, values(stream, stream.partitions(start, end)) if end is not start else []


def restored(offset: dict[str, Any]) -> dict[str, Any]:
    """An offset as a restarted query finds it in its checkpoint."""
    restored: dict[str, Any] = json.loads(json.dumps(offset))
    return restored
