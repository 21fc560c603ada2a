"""Spark's source and sink where jobs have other shapes: many partitions, state, skew, large rows, a start, a pause."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from confluent_kafka import Consumer, TopicPartition

from bench import spark_figures
from bench.broker_figures import new_topic, produce
from bench.figure import MEGABYTES, MEGABYTES_A_SECOND, RATE, SECONDS, Measure, Unit, Values
from bench.loud import loud_producer
from bench.peers import share_of_memory_mb
from bench.spark_figures import run, session, stream
from tests.interop.apache import spark_connector_jars

NOTE = (
    "Both on Apache Kafka, local[2]. State: a window of a minute by key, a join of two streams, and rows of one key "
    "once. Skew: 200 partitions, of which one has half of the rows. Memory is the most that the driver, its JVM and "
    "its Python processes had together, what several share counted once (the JVM may take 2 GB). A start: from the "
    "command (ours is `ottla run`) until a consumer has the first row, with what there is (`availableNow`); prepared: "
    "the same behind `ottla prepare`, beside the same start of Spark's connector, which has no such. A pause: what a "
    "record waits for its micro-batch after four idle minutes, and what the next one waits."
)
PEERS = spark_figures.PEERS[:2]
_RECORDS, _LARGE_BYTES, _LARGE = 2_000_000, 900_000, 600
_PARTITIONS = (1, 10, 100)
_SKEWED, _SKEWED_RECORDS = 200, 5_000_000
_IDLE_S = 240.0
_LOOK_S, _GIVE_UP_S = 0.2, 300.0


class Side(NamedTuple):
    """A connector."""

    name: str
    #: What its sink needs.
    sink: dict[str, str]
    jars: tuple[str, ...]


def _ours() -> Side:
    return Side("ottla", {"semantics": "exactly-once"}, ())


def _sparks() -> Side:
    return Side("kafka", {}, tuple(str(path) for path in spark_connector_jars()))


def _filled(bootstrap: str, partitions: int, records: int, size: int = 100) -> str:
    topic = new_topic(bootstrap, partitions)
    spread = {"partitioner": "random", "sticky.partitioning.linger.ms": 0}
    produce(bootstrap, topic, records, size, **{**spread, "message.max.bytes": 1_000_000 + size})
    return topic


def _read(spark: Any, side: Side, bootstrap: str, topic: str, **options: object) -> Any:
    reader = spark.readStream.format(side.name).option("kafka.bootstrap.servers", bootstrap)
    return reader.options(subscribe=topic, startingOffsets="earliest", **options).load()


def partitions(side: Side, bootstrap: str, scale: float) -> Values:
    """A streaming read of 1, 10 and 100 partitions."""
    records, spark, found = int(_RECORDS * scale), session(list(side.jars)), Values()
    for count in _PARTITIONS:
        rows = _read(spark, side, bootstrap, _filled(bootstrap, count, records), maxOffsetsPerTrigger=records // 8)
        title = "1 partition" if count == 1 else f"{count} partitions"
        found[f"streaming read, {title}"] = stream(rows.select("value").writeStream.format("noop"))
    spark.stop()
    return found


def state(side: Side, bootstrap: str, scale: float) -> Values:
    """Windows, a join, and rows of one key once."""
    records, spark = int(_RECORDS * scale / 4), session(list(side.jars))
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    topic = _filled(bootstrap, 2, records)

    def rows(key: str) -> Any:
        read = _read(spark, side, bootstrap, topic, maxOffsetsPerTrigger=records // 8)
        return read.selectExpr("timestamp", f"partition * 1000000000 + offset % 10000 AS {key}")

    from pyspark.sql import functions as F  # noqa: N812

    late = rows("key").withWatermark("timestamp", "10 seconds")
    left, right = (rows(key).withWatermark("timestamp", "1 second") for key in ("key", "other"))
    near = F.expr("key = other AND timestamp = timestamp2")
    jobs = {
        "windowed counts": late.groupBy(F.window("timestamp", "1 minute"), "key").count(),
        "one row a key": late.dropDuplicatesWithinWatermark(["key"]),
        "stream-stream join": left.join(right.withColumnRenamed("timestamp", "timestamp2"), near),
    }
    found = {name: stream(job.writeStream.format("noop")) for name, job in jobs.items()}
    spark.stop()
    return found


def sink(side: Side, bootstrap: str, scale: float) -> Values:
    """Rows that Spark makes itself, written in one batch."""
    records, spark, found = int(_RECORDS * scale), session(list(side.jars)), Values()
    rows = spark.range(0, records, 1, 4).selectExpr("lpad(cast(id as string), 100, 'x') AS value")
    for _ in range(2):  # the first one warms JVM and workers
        topic = new_topic(bootstrap, 2)
        writer = rows.write.format(side.name).mode("append").options(**side.sink).option("topic", topic)
        if side.sink:
            writer = writer.option("sink.id", topic)
        start = time.perf_counter()
        writer.option("kafka.bootstrap.servers", bootstrap).save()
        found["write alone"] = records / (time.perf_counter() - start)
    spark.stop()
    return found


def skew(side: Side, bootstrap: str, scale: float) -> Values:
    """5 million rows in 200 partitions, half of them in one."""
    half = int(_SKEWED_RECORDS * scale / 2)
    topic, others = new_topic(bootstrap, _SKEWED), half // (_SKEWED - 1)
    queue = {"queue.buffering.max.messages": 4_000_000, "queue.buffering.max.kbytes": 2_000_000}
    producer = loud_producer({"bootstrap.servers": bootstrap, "linger.ms": 5, **queue})
    for number in range(_SKEWED):
        for _ in range(others if number else half):
            producer.produce(topic, bytes(100), partition=number)
        producer.flush()
    spark, found = session(list(side.jars)), Values()
    with _memory(found, "skew: memory"):
        start = time.perf_counter()
        reader = spark.read.format(side.name).option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
        reader.load().select("value").write.format("noop").mode("append").save()
        found["skew: batch read"] = (half + others * (_SKEWED - 1)) / (time.perf_counter() - start)
    spark.stop()
    return found


def large(side: Side, bootstrap: str, scale: float) -> Values:
    """Rows of 900 KB, read and written in micro-batches."""
    records, spark, found = max(40, int(_LARGE * scale)), session(list(side.jars)), Values()
    topic, target = _filled(bootstrap, 2, records, _LARGE_BYTES), new_topic(bootstrap, 2)
    rows = _read(spark, side, bootstrap, topic, maxOffsetsPerTrigger=max(5, records // 8)).select("value")
    options = {"kafka.bootstrap.servers": bootstrap, "topic": target, **side.sink}
    with _memory(found, "rows of 900 KB: memory"):
        rate = stream(rows.writeStream.format(side.name).options(**options))
    found["rows of 900 KB: read and write"] = rate * _LARGE_BYTES / 1e6
    spark.stop()
    return found


def start(side: Side, bootstrap: str, _scale: float) -> Values:
    """From the command of a scheduled job until a consumer has its first row."""
    if side.name != "ottla":
        first, ended = _start([], side, bootstrap, {})
        return {**_told("start", first, ended), **_told("start, prepared", first, ended)}
    with TemporaryDirectory() as cache:  # what the user has prepared is not taken
        environ, how = {"XDG_CACHE_HOME": cache}, ["-m", "ottla", "run", "--master", "local[2]"]
        found = _told("start", *_start(how, side, bootstrap, environ))
        command = [sys.executable, "-m", "ottla", "prepare"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env={**os.environ, **environ})
        return {**found, **_told("start, prepared", *_start(how, side, bootstrap, environ))}


def _start(how: list[str], side: Side, bootstrap: str, environ: dict[str, str]) -> tuple[float, float]:
    """Seconds until the first row, and until the end."""
    topic, target = _filled(bootstrap, 1, 1), new_topic(bootstrap, 1)
    with TemporaryDirectory() as folder:
        command = [sys.executable, *how, __file__, side.name, bootstrap, topic, target, f"{folder}/checkpoint"]
        env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1]), **environ}
        begin = time.perf_counter()
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env) as process:
            _wait_for_row(bootstrap, target)
            first = time.perf_counter() - begin
            process.wait(_GIVE_UP_S)
            return first, time.perf_counter() - begin


def _told(name: str, first: float, ended: float) -> Values:
    return {f"{name}: until the first row": first, f"{name}: until it has ended": ended}


def pause(side: Side, bootstrap: str, scale: float) -> Values:
    """What a record waits for its micro-batch after some idle minutes, and the next one."""
    topic, spark = _filled(bootstrap, 1, 100), session(list(side.jars))
    seen = threading.Event()
    producer = loud_producer({"bootstrap.servers": bootstrap, "linger.ms": 0})

    def wait() -> float:
        seen.clear()
        begin = time.perf_counter()
        producer.produce(topic, b"x")
        producer.flush()
        if not seen.wait(_GIVE_UP_S):
            raise TimeoutError("no micro-batch")
        return time.perf_counter() - begin

    def batch(frame: Any, _number: int) -> None:
        if frame.count():
            seen.set()

    with TemporaryDirectory() as checkpoint:
        rows = _read(spark, side, bootstrap, topic)
        query = rows.writeStream.foreachBatch(batch).option("checkpointLocation", checkpoint).start()
        seen.wait(_GIVE_UP_S)
        for _ in range(3):
            wait()
        time.sleep(_IDLE_S * scale)
        found = {"pause: the first record after it": wait(), "pause: the next record": wait()}
        query.stop()
    spark.stop()
    return found


def _wait_for_row(bootstrap: str, topic: str) -> None:
    config = {"bootstrap.servers": bootstrap, "group.id": topic, "isolation.level": "read_committed"}
    consumer: Any = Consumer({**config, "enable.auto.commit": False, "fetch.wait.max.ms": 50})
    consumer.assign([TopicPartition(topic, 0, 0)])
    begin = time.perf_counter()
    while (message := consumer.poll(_LOOK_S)) is None or message.error():
        if time.perf_counter() - begin > _GIVE_UP_S:
            raise TimeoutError("no row was written")
    consumer.close()


@contextmanager
def _memory(found: Values, name: str) -> Iterator[None]:
    """Look now and then what this process and all that it has started have of memory; the most of it."""
    ended, most = threading.Event(), 0.0

    def look() -> None:
        nonlocal most
        while not ended.wait(_LOOK_S):
            most = max(most, sum(map(share_of_memory_mb, _family())))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        found[name] = most


def _family() -> list[int]:
    parents = {}
    for each in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(each.parent.name)] = int(each.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue  # it has ended
    family = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= more
    return list(family)


def main() -> None:
    """A scheduled job: from one topic to another, what there is."""
    name, bootstrap, topic, target, checkpoint = sys.argv[1:]
    side = _ours() if name == "ottla" else _sparks()
    rows = _read(session(list(side.jars)), side, bootstrap, topic).select("value")
    options = {"kafka.bootstrap.servers": bootstrap, "topic": target, **side.sink}
    run(rows.writeStream.format(side.name).options(**options), checkpoint)


_SHAPES = {each.__name__: each for each in (partitions, state, sink, skew, large, start, pause)}
#: By shape and peer.
NAMES = {(shape, peer): f"{shape} {peer}" for shape in _SHAPES for peer in PEERS}
FIGURES: dict[str, Measure] = {}


def _figure(shape: str, peer: str, bootstrap: str, scale: float) -> Values:
    return _SHAPES[shape](_ours() if peer == PEERS[0] else _sparks(), bootstrap, scale)


FIGURES.update({name: partial(_figure, *key) for key, name in NAMES.items()})


def unit_of(name: str) -> Unit:
    """The unit of a value of this module."""
    if name.endswith("memory"):
        return MEGABYTES
    if name.startswith("rows of 900 KB"):
        return MEGABYTES_A_SECOND
    return SECONDS if name.startswith(("start", "pause")) else RATE


if __name__ == "__main__":
    main()
