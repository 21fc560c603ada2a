"""Spark's own Kafka connector and ours, side by side: what one wrote or read, the other goes on with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla import Admin, NewTopic, Producer
from ottla.cli.main import main

pytestmark = [pytest.mark.interop, pytest.mark.slow]


def _send(bootstrap: str, topic: str, *values: str) -> None:
    with Producer({"bootstrap.servers": bootstrap}) as producer:
        for number, value in enumerate(values):
            producer.send(topic, value.encode(), partition=number % 2).result(30)


def test_s1_a_query_goes_on_with_the_other_connector_and_its_checkpoint(
    spark: Any, any_broker: str, fresh: Callable[[str], str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topic, checkpoint = fresh("hands"), tmp_path / "checkpoint"
    seen: list[str] = []
    with Admin({"bootstrap.servers": any_broker}) as admin:
        admin.create_topics([NewTopic(topic, 2, 1)])

    def run(connector: str, *values: str) -> None:
        _send(any_broker, topic, *values)
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


def test_s4_the_output_mode_complete_writes_the_whole_result_each_time(
    spark: Any, any_broker: str, fresh: Callable[[str], str], tmp_path: Path
) -> None:
    written = {}
    for connector in ("kafka", "ottla"):
        source, sink = fresh(f"counted-{connector}"), fresh(f"counts-{connector}")
        with Admin({"bootstrap.servers": any_broker}) as admin:
            admin.create_topics([NewTopic(source, 2, 1), NewTopic(sink, 1, 1)])
        for values in (("a", "b"), ("a",)):
            _send(any_broker, source, *values)
            rows = spark.readStream.format(connector).option("kafka.bootstrap.servers", any_broker)
            rows = (
                rows.option("subscribe", source).option("startingOffsets", "earliest").load().groupBy("value").count()
            )
            writer = rows.selectExpr("value AS key", "CAST(count AS STRING) AS value").writeStream.format(connector)
            writer = writer.outputMode("complete").trigger(availableNow=True).option("topic", sink)
            writer = writer.option("kafka.bootstrap.servers", any_broker)
            writer.option("checkpointLocation", str(tmp_path / connector)).start().awaitTermination()
        batch = (
            spark.read.format("kafka").option("kafka.bootstrap.servers", any_broker).option("subscribe", sink).load()
        )
        written[connector] = sorted(
            (bytes(row.key), bytes(row.value)) for row in batch.collect() if row.key is not None
        )
    assert written["ottla"] == written["kafka"] == [(b"a", b"1"), (b"a", b"2"), (b"b", b"1"), (b"b", b"1")]
