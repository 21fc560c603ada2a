"""A query changes from Spark's own connector to ours and back, with its checkpoint: nothing twice, nothing lost."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla import Admin, NewTopic, Producer
from ottla.cli.main import main
from tests.interop import apache

pytestmark = [pytest.mark.interop, pytest.mark.slow]


@pytest.fixture(scope="module")
def spark(apache_jars: str) -> Iterator[Any]:
    """A session that has both connectors."""
    from pyspark.sql import SparkSession

    jars = ",".join(map(str, apache.spark_connector_jars()))
    builder = SparkSession.builder.master("local[2]").config("spark.jars", jars).config("spark.ui.enabled", "false")
    with pytest.MonkeyPatch.context() as environment:  # Spark's workers are to find what is installed here
        for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
            environment.setenv(name, sys.executable)
        session = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
        yield session
        session.stop()


def test_s1_a_query_goes_on_with_the_other_connector(
    spark: Any, any_broker: str, fresh: Callable[[str], str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topic, checkpoint = fresh("hands"), tmp_path / "checkpoint"
    seen: list[str] = []
    with Admin({"bootstrap.servers": any_broker}) as admin:
        admin.create_topics([NewTopic(topic, 2, 1)])

    def run(connector: str, *values: str) -> None:
        with Producer({"bootstrap.servers": any_broker}) as producer:
            for number, value in enumerate(values):
                producer.send(topic, value.encode(), partition=number % 2).result(30)
        rows = spark.readStream.format(connector).option("kafka.bootstrap.servers", any_broker)
        rows = rows.option("subscribe", topic).option("startingOffsets", "earliest").load()
        rows = rows.selectExpr("CAST(value AS STRING) AS value")
        query = (
            rows.writeStream.trigger(availableNow=True)
            .option("checkpointLocation", str(checkpoint))
            .foreachBatch(lambda frame, _number: seen.extend(row.value for row in frame.collect()))
        )
        query.start().awaitTermination()

    run("kafka", "a", "b", "c")
    assert main(["pipeline", "adopt", str(checkpoint)]) == 0
    assert f"{topic}-0 is read up to 2" in capsys.readouterr().out
    run("ottla", "d", "e")
    assert sorted(seen) == ["a", "b", "c", "d", "e"]
    assert main(["pipeline", "adopt", str(checkpoint), "--back", "--yes"]) == 0
    run("kafka", "f", "g", "h")
    run("ottla", "i")
    assert sorted(seen) == list("abcdefghi")
