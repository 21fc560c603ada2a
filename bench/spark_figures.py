"""Spark's source and sink on one broker: ours against Spark's own connector (JVM, at least once only)."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench.broker_figures import new_topic, produce
from bench.figure import RATE, SECONDS, Measure, Unit, Values
from ottla.spark.run import launch, with_forks
from tests.interop.apache import spark_connector_jars

NOTE = (
    "Both on Apache Kafka, local[2], 100-byte values, two partitions. Spark's connector has no exactly-once sink: its "
    "at-least-once figures stand beside ours of either kind. Spark's Python API alone: a source in Python that has its "
    "rows ready and asks no broker, in workers as ours has them: the most that one can reach. A streaming query has "
    "half a million rows a micro-batch; more of them tell what a micro-batch takes beside its rows. A query runs for "
    "days, and JVMs compile for half a minute: what has half a million rows is run five times, and its rate is the "
    "median of the last three (the second one is told, too); what has more comes behind it, and is run once. Aims: "
    "streaming read 2.5, exactly-once pipeline 2, sink 1.5, small micro-batch 1.0."
)
PEERS = ("ottla", "Spark's connector", "Spark's Python API alone")
_RECORDS = 4_000_000
_BATCHES, _SMALL_ROWS, _SMALL_BATCHES = 8, 100, 25
#: Rows of larger micro-batches, as the figure says them, and how many rows these streams have.
_LARGER = {"1 million": 1_000_000, "2 million": 2_000_000}
_MANY_RECORDS = 8_000_000
#: Runs of what has half a million rows a micro-batch, and how many of the last ones count.
_RUNS, _COUNTED = 5, 3


def session(jars: list[str]) -> Any:
    """On two cores of this machine, as `ottla run` begins it; with Spark's connector (`jars`) nothing is forked."""
    conf = ["spark.ui.enabled=false", "spark.driver.memory=2g", f"spark.jars={','.join(jars)}"]
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}  # where `spark_ready` is
    env = launch(Path(__file__), [], master="local[2]", conf=conf, environ=environ).env
    os.environ.update(env if jars else with_forks(env, environ))
    from pyspark.sql import SparkSession

    session = SparkSession.builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def _input(bootstrap: str, records: int) -> str:
    topic = new_topic(bootstrap, 2)
    produce(bootstrap, topic, records, 100, **{"partitioner": "random", "sticky.partitioning.linger.ms": 0})
    return topic


def _measure(bootstrap: str, scale: float, name: str, jars: list[str], sinks: dict[str, dict[str, str]]) -> Values:
    records = int(_RECORDS * scale)
    topic, spark_session = _input(bootstrap, records), session(jars)
    source = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    at_once = spark_session.read.format(name).options(**source).load().select("value")

    def batch_read() -> float:
        start = time.perf_counter()
        at_once.write.format("noop").mode("append").save()
        return records / (time.perf_counter() - start)

    found = _warm("batch read", batch_read)
    source["maxOffsetsPerTrigger"] = str(records // _BATCHES)
    rows = spark_session.readStream.format(name).options(**source).load()
    found |= _warm("streaming read", lambda: stream(rows.select("value").writeStream.format("noop")))
    for figure, run in _sinks(bootstrap, name, sinks, rows):
        found |= _warm(figure, run)
    source["maxOffsetsPerTrigger"] = str(_SMALL_ROWS)
    small = spark_session.readStream.format(name).options(**source).load().select("value")
    found["small micro-batch"] = _trigger_time(small.writeStream.format("noop"))
    source["subscribe"] = _input(bootstrap, int(_MANY_RECORDS * scale))

    def read(size: int) -> Any:
        source["maxOffsetsPerTrigger"] = str(size)
        return spark_session.readStream.format(name).options(**source).load()

    found |= _larger(lambda size: read(size).select("value").writeStream.format("noop"), scale)
    said, size = list(_LARGER.items())[-1]
    for figure, run in _sinks(bootstrap, name, sinks, read(int(size * scale))):
        found[f"{figure}, {said} rows a micro-batch"] = run()
    spark_session.stop()
    return found


def _warm(figure: str, run: Callable[[], float]) -> Values:
    """The rate of one query, run again and again: as it becomes, and as the second run had it."""
    rates = [run() for _ in range(_RUNS)]
    return {figure: statistics.median(rates[-_COUNTED:]), f"{figure}, second run": rates[1]}


def _sinks(
    bootstrap: str, name: str, sinks: dict[str, dict[str, str]], rows: Any
) -> Iterator[tuple[str, Callable[[], float]]]:
    """Pipelines that read `rows`, change them and write them, with the options of each sink: a figure, and a run."""
    upper = rows.selectExpr("upper(cast(value as string)) as value")
    for semantics, options in sinks.items():

        def run(options: dict[str, str] = options) -> float:
            target = {"kafka.bootstrap.servers": bootstrap, "topic": new_topic(bootstrap, 2), **options}
            return stream(upper.writeStream.format(name).options(**target))

        yield f"read, upper(), write, {semantics}", run


def _larger(read: Callable[[int], Any], scale: float) -> Values:
    """Streaming reads with more rows a micro-batch; `read` makes one."""
    sizes = {said: int(size * scale) for said, size in _LARGER.items()}
    return {f"streaming read, {said} rows a micro-batch": stream(read(size)) for said, size in sizes.items()}


def stream(writer: Any) -> float:
    """Rows a second over all micro-batches but the first two."""
    with tempfile.TemporaryDirectory() as checkpoint:
        progress = run(writer, checkpoint)
    rows = sum(each["numInputRows"] for each in progress[2:])
    taken = sum(each["durationMs"]["triggerExecution"] for each in progress[2:]) / 1000
    return float(rows / taken)


def run(writer: Any, checkpoint: str) -> list[Any]:
    """All that is there; the progress of each micro-batch with rows."""
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()
    return [each for each in query.recentProgress if each["numInputRows"] > 0]


def _trigger_time(writer: Any) -> float:
    """Median seconds of a micro-batch of 100 rows, over twenty of them."""
    with tempfile.TemporaryDirectory() as checkpoint:
        query = writer.option("checkpointLocation", checkpoint).start()
        while query.isActive and len(query.recentProgress) < _SMALL_BATCHES:
            time.sleep(0.1)
        query.stop()
        progress = [each for each in query.recentProgress if each["numInputRows"] > 0][5:]
        return float(statistics.median(each["durationMs"]["triggerExecution"] for each in progress)) / 1000


def ours(bootstrap: str, scale: float) -> Values:
    """format("ottla"): our source, and our sink in both semantics."""
    kinds = ("at-least-once", "exactly-once")
    return _measure(bootstrap, scale, "ottla", [], {kind: {"semantics": kind} for kind in kinds})


def spark(bootstrap: str, scale: float) -> Values:
    """format("kafka"): Spark's connector; its one sink is measured once and stands for both of ours."""
    jars = [str(path) for path in spark_connector_jars()]
    found = _measure(bootstrap, scale, "kafka", jars, {"at-least-once": {}})
    said = "read, upper(), write, at-least-once"
    return found | {
        figure.replace("at-least-once", "exactly-once"): rate for figure, rate in found.items() if said in figure
    }


def ready(_bootstrap: str, scale: float) -> Values:
    """Two tasks for the large micro-batches, one for the small ones, as ours has them."""
    from bench.spark_ready import Ready

    spark_session = session([])
    spark_session.dataSource.register(Ready)

    def values(rows: int, tasks: int, batches: int) -> Any:
        reader = spark_session.readStream.format(Ready.name())
        return reader.options(rows=rows, tasks=tasks, batches=batches).load().select("value").writeStream.format("noop")

    rows = int(_RECORDS * scale) // _BATCHES
    found = _warm("streaming read", lambda: stream(values(rows, 2, _BATCHES)))
    found["small micro-batch"] = _trigger_time(values(_SMALL_ROWS, 1, 10 * _SMALL_BATCHES))
    found |= _larger(lambda size: values(size, 2, int(_MANY_RECORDS * scale) // size), scale)
    spark_session.stop()
    return found


FIGURES: dict[str, Measure] = {PEERS[0]: ours, PEERS[1]: spark, PEERS[2]: ready}


def unit_of(name: str) -> Unit:
    """The unit of a value of this module."""
    return SECONDS if name.startswith("small") else RATE
