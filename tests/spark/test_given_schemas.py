"""A schema that a user gives with `.schema(...)`: the source has columns of its own, as Spark's connector."""

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StructField, StructType, TimestampNTZType

from ottla.base.errors import ConfigError
from ottla.spark.datasource import OttlaDataSource
from tests.spark.source_world import ROWS, WITH_HEADERS

_FIELDS = {field.name: field for field in WITH_HEADERS.fields}
_NAMES = ROWS.names


def _read(schema: StructType, *, streaming: bool, headers: str = "false") -> None:
    source = OttlaDataSource({"kafka.bootstrap.servers": "a:1", "subscribe": "t", "includeHeaders": headers})
    if streaming:
        source.streamReader(schema).getDefaultReadLimit()  # with its first answer: see `ottla.spark.refused`
    else:
        source.reader(schema)


def _of(*names: str) -> StructType:
    return StructType([_FIELDS[name] for name in names])


def _with(name: str, like: str) -> StructType:
    """The source's columns, one with the type of another one."""
    changed = StructField(name, _FIELDS[like].dataType)
    return StructType([changed if field.name == name else field for field in ROWS.fields])


@pytest.mark.parametrize("streaming", [False, True])
def test_s1_the_source_s_own_schema_is_taken_whatever_may_be_null(streaming: bool) -> None:
    _read(ROWS, streaming=streaming)
    _read(WITH_HEADERS, streaming=streaming, headers="true")
    _read(StructType([StructField(f.name, f.dataType, nullable=False) for f in ROWS.fields]), streaming=streaming)


@pytest.mark.parametrize("streaming", [False, True])
def test_s1_with_times_without_a_zone_spark_reads_the_schema_otherwise(streaming: bool) -> None:
    """`spark.sql.timestampType=TIMESTAMP_NTZ`."""
    without = StructField("timestamp", TimestampNTZType())
    _read(StructType([without if f.name == "timestamp" else f for f in ROWS.fields]), streaming=streaming)


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize(
    ("schema", "why"),
    [
        (_of("value", "key", *_NAMES[2:]), "the source.s columns come in the order key, value, topic,"),
        (_of("key", *_NAMES), "the source.s columns come in the order key, value, topic,"),
        (_of("key", "value"), "it lacks topic string, partition int, offset bigint, timestamp"),
        (_with("value", "topic"), "no column value string; it lacks value binary"),
        (_of(*_NAMES, "headers"), r"no column headers array<.*Leave \.schema\(\.\.\.\) away and set includeHeaders"),
        (StructType(), "it lacks key binary, value binary"),
    ],
)
def test_s1_another_schema_is_refused_and_what_differs_is_told(schema: StructType, why: str, streaming: bool) -> None:
    with pytest.raises(ConfigError, match=f"given to the source is not its own: .*{why}"):
        _read(schema, streaming=streaming)


def test_s1_a_stream_that_cannot_be_is_refused_by_its_reader_which_spark_may_stop() -> None:
    """Spark's worker stops what `streamReader()` did not return, too, and then tells of that alone."""
    source = OttlaDataSource({"kafka.bootstrap.servers": "a:1", "subscribe": "t", "startingOffsets": "somewhere"})
    reader = source.streamReader(ROWS)
    for asked in (
        reader.initialOffset,
        reader.getDefaultReadLimit,
        reader.prepareForTriggerAvailableNow,
        lambda: reader.latestOffset({}, ReadAllAvailable()),
        lambda: reader.partitions({}, {}),
        lambda: reader.read(InputPartition(None)),
    ):
        with pytest.raises(ConfigError, match="startingOffsets"):
            asked()
    assert reader.reportLatestOffset() is None
    reader.stop()
