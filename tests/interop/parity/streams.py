"""Streaming reads and writes: micro-batches, restarts, what is gone, output modes, progress."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ottla import Admin
from ottla.base.types import TopicPartition
from tests.interop.parity.case import Case, Side, options_of, places
from tests.interop.parity.sinks import written

_A = "parity-a"
_EARLIEST = {"startingOffsets": "earliest"}
_MODE = "Spark itself refuses update for every sink in Python; ottla.spark.pipeline.foreach_batch has it"
_TRIGGER = "Spark runs no data source in Python this way"
_GONE = "Ours keeps the topic's id, and sees that its records are others; Spark's goes on at the old offset"
_TRACKED = {"asyncProgressTrackingEnabled": "true"}
_ASYNC = "A batch would be noted as done before it is committed"


def batches(side: Side, options: Mapping[str, Any], checkpoint: Path, trigger: Mapping[str, Any] | None = None) -> str:
    """Run a query to the end of what is there; the rows of each micro-batch."""
    found: list[str] = []
    rows = side.stream(options).load()
    stream = rows.writeStream.foreachBatch(lambda frame, _number: found.append(places(frame)))
    stream = stream.option("checkpointLocation", str(checkpoint)).trigger(**(trigger or {"availableNow": True}))
    stream.start().awaitTermination()
    return " | ".join(text for text in found if text != "no row") or "no row"


def stream(name: str, options: Mapping[str, Any], why: str = "", trigger: Mapping[str, Any] | None = None) -> Case:
    """A streaming read of what is there."""
    chosen = {"subscribe", "subscribePattern", "assign"} & options.keys()
    given = options if chosen else {"subscribe": _A, **options}
    return Case(
        "streaming read", name, lambda side: batches(side, given, side.checkpoint(), trigger), why, options_of(given)
    )


def runs(
    name: str,
    *steps: Mapping[str, Any] | Callable[[Side, str], object],
    why: str = "",
    partitions: int = 1,
) -> Case:
    """Runs of one query, each with options of its own, and what is done in between. `T` is a topic of its own."""

    def run(side: Side) -> str:
        topic, checkpoint = side.fresh("runs"), side.checkpoint()
        side.topics.make(topic, partitions=partitions)
        said = []
        for step in steps:
            if callable(step):
                step(side, topic)
                continue
            given = {key: value.replace("T", topic) if key == "subscribe" else value for key, value in step.items()}
            said.append(batches(side, {"subscribe": topic, **given}, checkpoint))
        return ", then ".join(said).replace(topic.removeprefix("parity-"), "T")

    return Case("restarts", name, run, why)


def send(*values: str, partition: int = 0) -> Callable[[Side, str], object]:
    """Send values to the case's topic."""

    def step(side: Side, topic: str) -> None:
        side.topics.send_to(topic, partition, values)

    return step


def _cut(side: Side, topic: str) -> None:
    with Admin({"bootstrap.servers": side.topics.bootstrap}) as admin:
        admin.delete_records({TopicPartition(topic, 0): 3})


def _delete(side: Side, topic: str) -> None:
    with Admin({"bootstrap.servers": side.topics.bootstrap}) as admin:
        admin.delete_topics([topic])


def _make(side: Side, topic: str) -> None:
    side.topics.make(topic, partitions=1)


def _grow(side: Side, topic: str) -> None:
    with Admin({"bootstrap.servers": side.topics.bootstrap}) as admin:
        admin.create_partitions({topic: 2})


def reading() -> Iterator[Case]:
    """Options of a streaming read."""
    bounds = {"p": json.dumps({_A: {"0": 4, "1": -2, "2": -1}}), "few": json.dumps({_A: {"0": 4}})}
    late = {"startingOffsetsByTimestampStrategy": "latest"}
    for name, options in {
        "startingOffsets not said": {},
        "startingOffsets=earliest": _EARLIEST,
        "startingOffsets=latest": {"startingOffsets": "latest"},
        "startingOffsets as JSON": {"startingOffsets": bounds["p"]},
        "startingOffsets as no JSON": {"startingOffsets": "{"},
        "startingTimestamp": {"startingTimestamp": "3000", **late},
        "startingTimestamp behind everything": {"startingTimestamp": "99999999"},
        "endingOffsets": {"endingOffsets": "latest"},
        "endingOffsetsByTimestamp": {"endingOffsetsByTimestamp": json.dumps({_A: {"0": 1}})},
        "subscribePattern": {"subscribePattern": "parity-[ab]$", **_EARLIEST},
        "assign": {"assign": json.dumps({_A: [1]}), **_EARLIEST},
        "a topic that is not there": {"subscribe": "parity-none", **_EARLIEST},
        "maxOffsetsPerTrigger=6": {"maxOffsetsPerTrigger": "6", **_EARLIEST},
        "maxOffsetsPerTrigger=1": {"subscribe": "parity-b", "maxOffsetsPerTrigger": "1", **_EARLIEST},
        "maxOffsetsPerTrigger, no number": {"maxOffsetsPerTrigger": "some", **_EARLIEST},
        "minOffsetsPerTrigger=99": {"minOffsetsPerTrigger": "99", **_EARLIEST},
        "minOffsetsPerTrigger, no number": {"minOffsetsPerTrigger": "some", **_EARLIEST},
        "maxTriggerDelay, no time": {"minOffsetsPerTrigger": "2", "maxTriggerDelay": "soon", **_EARLIEST},
        "minPartitions=6": {"minPartitions": "6", **_EARLIEST},
        "maxRecordsPerPartition=2": {"maxRecordsPerPartition": "2", **_EARLIEST},
        "kafka.group.id": {"kafka.group.id": "parity-stream", **_EARLIEST},
        "groupIdPrefix": {"groupIdPrefix": "parity", **_EARLIEST},
    }.items():
        yield stream(name, options)
    no_end = "A stream has no end: ours says so of each option for one, Spark's of all but this"
    yield stream("endingTimestamp", {"endingTimestamp": "1"}, no_end)
    never = "Such a query would never read a row: ours says so"
    yield stream("maxOffsetsPerTrigger=0", {"maxOffsetsPerTrigger": "0", **_EARLIEST}, never)
    left_out = "Partitions that it does not name: ours takes the earliest offset of each"
    yield stream("startingOffsets as JSON, partitions are left out", {"startingOffsets": bounds["few"]}, left_out)
    yield stream(
        "minOffsetsPerTrigger=9, maxOffsetsPerTrigger=3",
        {"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "3", **_EARLIEST},
    )
    for name, trigger in {"once": {"once": True}}.items():
        yield stream(f"trigger {name}", _EARLIEST, trigger=trigger)
        yield stream(
            f"trigger {name}, maxOffsetsPerTrigger", {"maxOffsetsPerTrigger": "6", **_EARLIEST}, trigger=trigger
        )
    yield Case("streaming read", "trigger continuous", _continuous, _TRIGGER)
    yield Case("streaming read", "two streams of one topic, as a union", _union)
    yield Case("streaming read", "count by partition", _count)


def _continuous(side: Side) -> str:
    rows = side.stream({"subscribe": _A, **_EARLIEST}).load()
    query = rows.writeStream.format("noop").option("checkpointLocation", str(side.checkpoint()))
    running = query.trigger(continuous="1 second").start()
    alive = running.isActive
    running.stop()
    return "runs" if alive else "has ended"


def _union(side: Side) -> str:
    rows = side.stream({"subscribe": "parity-b", **_EARLIEST}).load()
    found: list[int] = []
    query = rows.union(rows).writeStream.foreachBatch(lambda frame, _number: found.append(frame.count()))
    query.option("checkpointLocation", str(side.checkpoint())).trigger(availableNow=True).start().awaitTermination()
    return str(sum(found))


def _count(side: Side) -> str:
    found: dict[int, int] = {}
    rows = side.stream({"subscribe": _A, "maxOffsetsPerTrigger": "6", **_EARLIEST}).load().groupBy("partition").count()
    query = rows.writeStream.outputMode("update").foreachBatch(
        lambda frame, _number: found.update({row.partition: row["count"] for row in frame.collect()})
    )
    query.option("checkpointLocation", str(side.checkpoint())).trigger(availableNow=True).start().awaitTermination()
    return str(dict(sorted(found.items())))


def restarting() -> Iterator[Case]:
    """Several runs with one checkpoint."""
    first, loose = send("a", "b", "c", "d"), {**_EARLIEST, "failOnDataLoss": "false"}
    yield runs("goes on where it was", first, _EARLIEST, send("e"), _EARLIEST)
    yield runs("nothing is new", first, _EARLIEST, _EARLIEST)
    yield runs("startingOffsets has changed", first, _EARLIEST, send("e"), {"startingOffsets": "latest"})
    yield runs("latest, then what came since", first, {"startingOffsets": "latest"}, send("e"), _EARLIEST)
    yield runs("a limit has come", first, _EARLIEST, send("e", "f"), {**_EARLIEST, "maxOffsetsPerTrigger": "1"})
    yield runs("another topic has come", first, _EARLIEST, send("e"), {**_EARLIEST, "subscribe": "T,parity-b"})
    instead = {"subscribe": "parity-b"}
    yield runs("another topic instead", first, _EARLIEST, {**_EARLIEST, **instead})
    yield runs("the same, failOnDataLoss=false, too", first, loose, {**loose, **instead})
    yield runs("the topic has grown", first, _EARLIEST, _grow, send("e", partition=1), _EARLIEST)
    yield runs("records are gone that were read", first, _EARLIEST, _cut, send("e"), _EARLIEST)
    yield runs("records are gone that were not read", send("a"), _EARLIEST, send("b", "c", "d"), _cut, _EARLIEST)
    yield runs("the same, failOnDataLoss=false", send("a"), loose, send("b", "c", "d"), _cut, loose)
    yield runs("the topic is gone", first, _EARLIEST, _delete, _EARLIEST)
    shorter = (first, _EARLIEST, _delete, _make, send("x"))
    yield runs("the topic was made again, and is shorter", *shorter, _EARLIEST)
    longer = (_delete, _make, send("u", "v", "w", "x", "y", "z"))
    yield runs("the topic was made again, and is longer", first, _EARLIEST, *longer, _EARLIEST, why=_GONE)
    yield runs("the topic was made again, failOnDataLoss=false", first, loose, *longer, loose, why=_GONE)


def writing() -> Iterator[Case]:
    """Streaming writes."""
    for mode, why in (("append", ""), ("complete", ""), ("update", _MODE)):
        for grouped in (False, True):
            name = f"output mode {mode}{', of counts' if grouped else ''}"
            case = _writes(mode, grouped)
            yield Case("streaming write", name, case, why)
    yield Case("streaming write", "no checkpointLocation", lambda side: _stream_out(side, {}, checkpoint=False))
    replay = "Spark's sink writes a batch again that is run again; exactly once is why ours is there"
    yield Case("streaming write", "the last batch is run again", _replayed, replay)
    yield Case("streaming write", "the same, at least once", lambda side: _replayed(side, semantics="at-least-once"))
    yield Case("streaming write", "asyncProgressTrackingEnabled", _asynchronous, _ASYNC)
    yield Case("streaming write", "the same, with availableNow", lambda side: _stream_out(side, _TRACKED))
    yield Case("streaming write", "no topic", lambda side: _stream_out(side, {"topic": None}))
    yield Case("streaming write", "queryName", lambda side: _stream_out(side, {"queryName": side.fresh("name")}))
    yield Case("streaming write", "rows of the source as they are", lambda side: _stream_out(side, {}, select="*"))


def _asynchronous(side: Side) -> str:
    return _stream_out(side, _TRACKED, to_the_end=False)


def _stream_out(
    side: Side,
    options: Mapping[str, Any],
    *,
    checkpoint: bool = True,
    select: str = "CAST(value AS STRING) AS value",
    to_the_end: bool = True,
) -> str:
    topic = side.fresh("out")
    side.topics.make(topic, partitions=3)
    rows = side.stream({"subscribe": "parity-b", **_EARLIEST}).load().selectExpr(select)
    if select == "*":
        rows = rows.drop("topic")
    given = {"topic": topic, **options}
    stream = side.writer(rows.writeStream, given)
    if checkpoint:
        stream = stream.option("checkpointLocation", str(side.checkpoint()))
    if to_the_end:
        stream.trigger(availableNow=True).start().awaitTermination()
        return written(side, topic)
    running = stream.trigger(processingTime="1 second").start()
    try:
        running.processAllAvailable()
    finally:
        running.stop()
    return "runs"


def _writes(mode: str, grouped: bool) -> Callable[[Side], str]:
    def run(side: Side) -> str:
        topic = side.fresh("out")
        side.topics.make(topic)
        rows = side.stream({"subscribe": "parity-b", "maxOffsetsPerTrigger": "2", **_EARLIEST}).load()
        if grouped:
            rows = rows.groupBy("topic").count().selectExpr("topic AS key", "CAST(count AS STRING) AS value")
            rows = rows.selectExpr("'n' AS key", "value")
        else:
            rows = rows.select("value")
        stream = side.writer(rows.writeStream, {"topic": topic}).outputMode(mode).trigger(availableNow=True)
        stream.option("checkpointLocation", str(side.checkpoint())).start().awaitTermination()
        return written(side, topic)

    return run


def _replayed(side: Side, **options: str) -> str:
    topic, checkpoint = side.fresh("out"), side.checkpoint()
    side.topics.make(topic)
    given = {"topic": topic, "sink.id": side.fresh("sink"), **options}
    for _ in range(2):
        rows = side.stream({"subscribe": "parity-b", **_EARLIEST}).load().select("value")
        stream = side.writer(rows.writeStream, given).option("checkpointLocation", str(checkpoint))
        stream.trigger(availableNow=True).start().awaitTermination()
        for name in ("0", ".0.crc"):
            (checkpoint / "commits" / name).unlink(missing_ok=True)
    return written(side, topic)


def progress() -> Iterator[Case]:
    """What Spark's progress says of a source and a sink."""
    metrics = "Python's API has no metrics of a source; ottla.spark.progress tells the same"
    for name, look, why in (
        ("startOffset", lambda source, _whole: str(source.startOffset), ""),
        ("endOffset, its keys", lambda source, _whole: ", ".join(sorted(json.loads(source.endOffset))), _OTHER_FORM),
        ("latestOffset", lambda source, _whole: str(source.latestOffset), ""),
        ("numInputRows", lambda source, _whole: str(source.numInputRows), ""),
        ("description names the topic", lambda source, _whole: str("parity-a" in source.description), _CLASS),
        ("metrics", lambda source, _whole: ", ".join(sorted(source.metrics)) or "none", metrics),
        ("numOutputRows of the sink", lambda _source, whole: str(whole.sink.numOutputRows), ""),
    ):
        yield Case("progress", name, _told(look), why)


_CLASS = "Python's API has no description: Spark prints the name of a class"
_OTHER_FORM = "Ours also keeps a batch's begin, the topics' ids and epochs, and the group: a replay needs them"


def _told(look: Callable[[Any, Any], str]) -> Callable[[Side], str]:
    def run(side: Side) -> str:
        rows = side.stream({"subscribe": _A, "maxOffsetsPerTrigger": "9", **_EARLIEST}).load()
        query = rows.writeStream.format("noop").option("checkpointLocation", str(side.checkpoint()))
        running = query.trigger(availableNow=True).start()
        running.awaitTermination()
        last = running.recentProgress[0]
        return look(last.sources[0], last)

    return run


def all_streams() -> list[Case]:
    """Every case of this file."""
    return [case for cases in (reading, restarting, writing, progress) for case in cases()]
