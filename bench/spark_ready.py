"""A source for Spark whose rows are there already: what any source through Spark's Python API costs at least.

It has the columns of a Kafka source, asks no broker, and gives the same Arrow columns each time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from ottla.spark.columns import SOURCE_SCHEMA
from ottla.spark.worker_processes import rest

_ROWS_AT_ONCE, _VALUE_BYTES = 65_536, 100
_made: dict[int, Any] = {}


def _rows(count: int, schema: Any) -> Any:
    """A RecordBatch, made once in a process."""
    if count not in _made:
        columns = {
            "key": pa.nulls(count, pa.binary()),
            "value": pa.repeat(pa.scalar(bytes(_VALUE_BYTES)), count),
            "topic": pa.repeat(pa.scalar("bench-topic"), count),
            "partition": pa.repeat(pa.scalar(0, pa.int32()), count),
            "offset": pa.array(range(count), pa.int64()),
            "timestamp": pa.repeat(pa.scalar(0, pa.int64()), count).cast(schema.field("timestamp").type),
            "timestampType": pa.repeat(pa.scalar(0, pa.int32()), count),
        }
        _made[count] = pa.RecordBatch.from_arrays(list(columns.values()), schema=schema)
    return _made[count]


class _Part(InputPartition):  # type: ignore[misc]
    def __init__(self, rows: int) -> None:
        self.rows = rows


class _Reader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    def __init__(self, rows: int, tasks: int, batches: int, schema: Any) -> None:
        self._rows, self._tasks, self._batches, self._schema = rows, tasks, batches, schema

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """There is an end anyway."""

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        """No batch."""
        return {"batch": 0}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        """One batch more."""
        return start if start["batch"] == self._batches else {"batch": start["batch"] + 1}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[_Part]:
        """The tasks of a batch."""
        return [_Part(self._rows // self._tasks) for _ in range(self._tasks)]

    def read(self, partition: _Part) -> Iterator[Any]:
        """A task."""
        schema = to_arrow_schema(self._schema, timezone="UTC")
        for begin in range(0, partition.rows, _ROWS_AT_ONCE):
            yield _rows(min(_ROWS_AT_ONCE, partition.rows - begin), schema)
        rest("read")


class Ready(DataSource):  # type: ignore[misc]
    """Options: `rows` of a micro-batch, its `tasks`, and how many `batches` there are."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "ready"

    def schema(self) -> str:
        """Of a Kafka source."""
        return SOURCE_SCHEMA

    def streamReader(self, schema: Any) -> _Reader:  # noqa: N802
        """A streaming read."""
        rows, tasks, batches = (int(self.options[name]) for name in ("rows", "tasks", "batches"))
        return _Reader(rows, tasks, batches, schema)
