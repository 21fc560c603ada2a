"""Each example of a pipeline, from topic to topic: right, and exactly once, as a foreign consumer counts it.

Between its runs each query forgets that its last micro-batch is committed, as if its driver had died just before Spark
noted it. Spark then runs the batch again, with the state from before. With a sink that promises less it shows.
"""

from __future__ import annotations

import argparse
import json
import os
import runpy
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.spark.run import launch
from tests.interop.spark_topics import Row, Topics

pytestmark = [pytest.mark.interop, pytest.mark.slow]

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
Fresh = Callable[[str], str]


class Example:
    """An example's query, run to the end of what is there, again and again."""

    def __init__(self, spark: Any, name: str, checkpoint: Path, **options: Any) -> None:
        self._spark, self._checkpoint = spark, checkpoint
        self._start = runpy.run_path(str(EXAMPLES / f"{name}.py"))["start"]
        self._options = argparse.Namespace(checkpoint=str(checkpoint), available_now=True, **options)

    def run(self) -> None:
        """Its last batch counts as not committed, so it is run again; then what is new."""
        forget_last_commit(self._checkpoint)
        self._start(self._spark, self._options).awaitTermination()


def forget_last_commit(checkpoint: Path) -> None:
    """As if the driver had died between the end of the sink's commit and Spark's note of it."""
    noted = sorted((int(each.name) for each in (checkpoint / "commits").glob("[0-9]*")), reverse=True)
    for name in (f"{noted[0]}", f".{noted[0]}.crc") if noted else ():
        (checkpoint / "commits" / name).unlink(missing_ok=True)


@pytest.fixture
def topics(any_broker: str) -> Topics:
    return Topics(any_broker)


def test_s2_windows_count_late_records_once_and_too_late_ones_not_at_all(
    spark: Any, topics: Topics, fresh: Fresh, tmp_path: Path
) -> None:
    source, target = fresh("clicks"), fresh("counts")
    topics.make(source, target)
    example = Example(spark, "windowed_counts", tmp_path, bootstrap=topics.bootstrap, input=source, output=target)
    topics.send(source, [("a", "", 0.01), ("b", "", 0.02), ("a", "", 0.10)])
    example.run()
    assert topics.committed(target) == []  # no window is closed yet
    topics.send(source, [("a", "", 0.03), ("a", "", 1.0)])  # the first is late, and counted
    example.run()
    topics.send(source, [("a", "", 0.04), ("b", "", 2.0)])  # the first is too late
    example.run()
    example.run()
    found = Counter((key, value) for key, value in topics.committed(target))
    assert found == {
        ("a", '{"start":"1970-01-01 00:00","count":2}'): 1,
        ("b", '{"start":"1970-01-01 00:00","count":1}'): 1,
        ("a", '{"start":"1970-01-01 00:05","count":1}'): 1,
        ("a", '{"start":"1970-01-01 01:00","count":1}'): 1,
    }


def test_s2_two_streams_are_joined_whichever_side_comes_first(
    spark: Any, topics: Topics, fresh: Fresh, tmp_path: Path
) -> None:
    orders, payments, target = fresh("orders"), fresh("payments"), fresh("paid")
    topics.make(orders, payments, target)
    where = {"orders": orders, "payments": payments, "output": target}
    example = Example(spark, "stream_join", tmp_path, bootstrap=topics.bootstrap, **where)
    topics.send(orders, [("1", "tea", 1.0), ("2", "salt", 1.0), ("3", "oil", 1.0)])
    topics.send(payments, [("1", "10", 1.2), ("4", "40", 1.3)])
    example.run()
    topics.send(orders, [("4", "rice", 1.25)])
    topics.send(payments, [("2", "20", 1.9), ("3", "30", 2.5)])  # the second one is too late for its order
    example.run()
    example.run()
    assert sorted(topics.committed(target)) == [
        ("1", '{"ordered":"tea","paid":"10"}'),
        ("2", '{"ordered":"salt","paid":"20"}'),
        ("4", '{"ordered":"rice","paid":"40"}'),
    ]


def test_s2_repetitions_are_dropped_within_a_batch_and_over_restarts(
    spark: Any, topics: Topics, fresh: Fresh, tmp_path: Path
) -> None:
    source, target = fresh("events"), fresh("once")
    topics.make(source, target)
    example = Example(spark, "deduplicate", tmp_path, bootstrap=topics.bootstrap, input=source, output=target)
    topics.send(source, [("a", "1", 1.0), ("b", "1", 1.0), ("a", "1", 1.1)])
    example.run()
    topics.send(source, [("b", "1", 1.2), ("c", "1", 1.3)])
    example.run()
    topics.send(source, [("c", "1", 1.4), ("a", "1", 1.5), ("d", "1", 1.6)])
    example.run()
    assert sorted(topics.committed(target)) == [(key, "1") for key in "abcd"]


def test_s2_state_and_output_fit_with_transform_with_state(
    spark: Any, topics: Topics, fresh: Fresh, tmp_path: Path
) -> None:
    pytest.importorskip("google.protobuf")
    pytest.importorskip("pandas")
    source, target = fresh("bookings"), fresh("balances")
    topics.make(source, target, f"{target}.refused")
    example = Example(spark, "with_state", tmp_path, bootstrap=topics.bootstrap, input=source, output=target)
    topics.send(source, [("ann", "100", 0), ("bob", "5", 0), ("ann", "-30", 0), ("ann", "no number", 0)])
    example.run()
    topics.send(source, [("ann", "-80", 0), ("bob", "-5", 0)])
    example.run()
    topics.send(source, [("bob", "7", 0)])
    example.run()
    by_account = {name: [value for key, value in topics.committed(target) if key == name] for name in ("ann", "bob")}
    assert by_account == {
        "ann": ["70 after 2", "70 after 2"],
        "bob": ["5 after 1", "0 after 2", "7 after 3"],
    }
    assert topics.committed(f"{target}.refused") == [("ann", "-80")]


def test_s2_a_compacted_topic_becomes_the_image_of_a_table(
    spark: Any, topics: Topics, fresh: Fresh, tmp_path: Path
) -> None:
    source, target = fresh("changes"), fresh("image")
    topics.make(source)
    topics.make(target, cleanup_policy="compact")
    example = Example(spark, "change_data", tmp_path, bootstrap=topics.bootstrap, input=source, output=target)
    table: dict[str, str] = {}
    written: Counter[Row] = Counter()

    def change(key: str, op: str, name: str = "") -> tuple[str, str, int]:
        after = None if op == "d" else {"name": name}
        row = None if after is None else json.dumps(after, separators=(",", ":"))
        written[key, row] += 1
        table.pop(key, None)
        if row is not None:
            table[key] = row
        return key, json.dumps({"op": op, "after": after}), 0

    topics.send(source, [change(f"{n}", "c", f"new {n}") for n in range(20)])
    example.run()
    topics.send(source, [change(f"{n}", "u", f"changed {n}") for n in range(0, 20, 2)])
    topics.send(source, [change(f"{n}", "d") for n in range(0, 20, 4)])
    example.run()
    topics.send(source, [change("0", "c", "back"), change("1", "d"), ("1", "no change", 0)])
    example.run()
    found = topics.committed(target)
    assert Counter(found) == written
    assert {key: value for key, value in dict(found).items() if value is not None} == table


def test_s2_several_sinks_in_one_foreach_batch_are_each_exact(
    spark: Any, topics: Topics, fresh: Fresh, tmp_path: Path
) -> None:
    source, target = fresh("measured"), fresh("good")
    topics.make(source, target, f"{target}.bad", f"{target}.totals")
    example = Example(spark, "fan_out", tmp_path, bootstrap=topics.bootstrap, input=source, output=target)
    topics.send(source, [("a", "1.5", 0), ("b", "?", 0), ("a", "2", 0)])
    example.run()
    topics.send(source, [("a", "x", 0), ("b", "3", 0)])
    example.run()
    example.run()
    assert sorted(topics.committed(target)) == [("a", "1.5"), ("a", "2"), ("b", "3")]
    assert sorted(topics.committed(f"{target}.bad")) == [("a", "x"), ("b", "?")]
    assert sorted(topics.committed(f"{target}.totals")) == [("a", "1"), ("a", "2"), ("b", "1"), ("b", "1")]


@pytest.mark.parametrize("form", ["json", "avro", "framed avro"])
def test_s2_what_cannot_be_decoded_goes_to_a_topic_of_its_own(
    spark: Any, topics: Topics, fresh: Fresh, tmp_path: Path, form: str
) -> None:
    if form != "json":
        pytest.importorskip("fastavro")
    source, target = fresh("orders"), fresh("large")
    topics.make(source, target, f"{target}.bad")
    how = {"form": form.rpartition(" ")[2], "framed": form.startswith("framed")}
    where = {"bootstrap": topics.bootstrap, "input": source, "output": target}
    example = Example(spark, "decode", tmp_path, **where, **how)
    orders = [(1, "tea", 3.5), (2, "a kettle", 120.0), (3, "a table", 350.5)]
    for number, item, price in orders:
        topics.send(source, [("k", _encoded(form, number, item, price), 0), ("k", f"none {number}", 0)])
        example.run()
    assert topics.committed(target) == [
        ("k", '{"id":2,"item":"A KETTLE","price":120.0}'),
        ("k", '{"id":3,"item":"A TABLE","price":350.5}'),
    ]
    assert topics.committed(f"{target}.bad") == [("k", f"none {number}") for number in (1, 2, 3)]


def _encoded(form: str, number: int, item: str, price: float) -> bytes:
    order = {"id": number, "item": item, "price": price}
    if form == "json":
        return json.dumps(order).encode()
    from io import BytesIO

    from fastavro import schemaless_writer

    body = BytesIO()
    schemaless_writer(body, runpy.run_path(str(EXAMPLES / "decode.py"))["AVRO"], order)
    return (b"\0\0\0\0\7" if form.startswith("framed") else b"") + body.getvalue()


def test_s4_a_nightly_job_takes_what_came_since_and_ends(topics: Topics, fresh: Fresh, tmp_path: Path) -> None:
    """As cron would run it: each run is a process of its own."""
    source, target = fresh("sales"), fresh("totals")
    topics.make(source, target)
    arguments = ["--bootstrap", topics.bootstrap, "--input", source, "--output", target]
    arguments += ["--checkpoint", str(tmp_path / "checkpoint")]
    conf = ["spark.sql.shuffle.partitions=2", "spark.ui.enabled=false"]
    argv, env = launch(EXAMPLES / "nightly.py", arguments, master="local[2]", conf=conf, environ=os.environ)

    def run() -> None:
        forget_last_commit(tmp_path / "checkpoint")
        done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-3000:]

    topics.send(source, [("tea", "2.50", 0), ("salt", "1", 0), ("tea", "4", 0)])
    run()
    topics.send(source, [("tea", "0.25", 0), ("salt", "?", 0)])
    run()
    run()
    found = topics.committed(target)
    totals = {key: [value for name, value in found if name == key] for key in ("tea", "salt")}
    assert totals == {"tea": ["6.50 of 2", "6.75 of 3"], "salt": ["1.00 of 1", "1.00 of 2"]}


def test_s2_negative_control_a_sink_that_promises_less_repeats_a_batch(
    spark: Any, topics: Topics, fresh: Fresh, tmp_path: Path
) -> None:
    source, target = fresh("in"), fresh("out")
    topics.make(source, target)
    topics.send(source, [(None, "a", 0)])
    kafka = {"kafka.bootstrap.servers": topics.bootstrap}
    for _ in range(2):
        forget_last_commit(tmp_path)
        rows = spark.readStream.format("ottla").options(**kafka).option("subscribe", source)
        stream = rows.option("startingOffsets", "earliest").load().select("value").writeStream.format("ottla")
        stream = stream.options(**kafka).option("topic", target).option("semantics", "at-least-once")
        stream.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start().awaitTermination()
    assert topics.committed(target) == [(None, "a")] * 2
