"""`format("ottla")` inside Spark (SPEC S1 to S4). One session for all; it starts in some ten seconds."""

import contextlib
import json
import os
import runpy
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from operator import attrgetter
from pathlib import Path
from queue import Queue
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from ottla import Admin
from ottla.base.errors import ConfigError
from ottla.base.types import TopicPartition
from ottla.spark.pipeline import foreach_batch
from ottla.spark.progress import Report, SinkNote, listen
from ottla.spark.run import launch
from tests.spark.sessions import kill_session
from tests.spark.words import LINES, expected_words, make_topic, read_committed, send_lines, words_in

pytestmark = pytest.mark.spark

ROOT = Path(__file__).resolve().parents[2]
WORDCOUNT = ROOT / "examples" / "wordcount.py"
#: Four attempts at a task: the worker that is killed is replaced.
MASTER = "local[2,4]"


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory, java: str) -> Iterator[Any]:
    """A session in which the worker of one task is killed in the middle of its write, in batch 1.

    A local master starts no second attempt beside a running one, but with the setting attempts get ids of their own.
    The scripts below run without it.
    """
    from pyspark.sql import SparkSession

    environ = {**os.environ, "XDG_CACHE_HOME": str(tmp_path_factory.mktemp("cache"))}
    environment = launch(Path("-"), [], master=MASTER, conf=[], environ=environ).env
    faults = {"OTTLA_FAULT": "sink.mid-write:1=kill", "OTTLA_FAULT_DIR": str(tmp_path_factory.mktemp("faults"))}
    os.environ.update({**environment, **faults})
    builder = SparkSession.builder.config("spark.ui.enabled", "false").config("spark.speculation", "true")
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


def _has_the_source(_: object) -> bool:
    return "ottla.spark.range_reader" in sys.modules


def test_s4_workers_have_the_source_and_the_sink_from_their_start(spark: Any) -> None:
    assert spark.sparkContext.parallelize([0], 1).map(_has_the_source).collect() == [True]


def test_s4_workers_take_the_installed_pyspark_in_which_all_is_compiled(spark: Any) -> None:
    (found,) = spark.sparkContext.parallelize(["pyspark"], 1).map(find_spec).map(attrgetter("origin")).collect()
    assert found == attrgetter("origin")(find_spec("pyspark"))


def test_s1_rows_are_written_and_read_in_batch(spark: Any, bootstrap: str, fresh_name: Callable[[str], str]) -> None:
    topic = make_topic(bootstrap, fresh_name("batch"))
    rows = [(b"k0", "zero", topic, 0, [("h", b"x")]), (None, "one", topic, 1, [])]
    schema = "key binary, value string, topic string, partition int, headers array<struct<key: string, value: binary>>"
    frame = spark.createDataFrame(rows, schema)
    writer = frame.write.format("ottla").option("kafka.bootstrap.servers", bootstrap).mode("append")
    with pytest.raises(Exception, match=r"set the option sink\.id"):
        writer.save()
    writer.option("sink.id", topic).save()
    reader = spark.read.format("ottla").option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
    found = reader.option("includeHeaders", "true").load().orderBy("partition").collect()
    assert [(r.key, r.value, r.topic, r.partition, r.offset) for r in found] == [
        (bytearray(b"k0"), bytearray(b"zero"), topic, 0, 0),
        (None, bytearray(b"one"), topic, 1, 0),
    ]
    assert [r.headers and [(h.key, h.value) for h in r.headers] for r in found] == [[("h", bytearray(b"x"))], None]
    later = reader.option("startingOffsets", json.dumps({topic: {"0": 1, "1": 0}})).load()
    assert later.count() == 1


def test_s5_sql_reads_and_writes_through_views_and_tables(
    spark: Any, bootstrap: str, fresh_name: Callable[[str], str], tmp_path: Path
) -> None:
    source, target = make_topic(bootstrap, fresh_name("sql")), make_topic(bootstrap, fresh_name("sql"))
    send_lines(bootstrap, source)
    servers = f"'kafka.bootstrap.servers' '{bootstrap}'"
    spark.sql(f"CREATE TEMPORARY VIEW lines USING ottla OPTIONS ({servers}, subscribe '{source}')")
    sink = f"topic '{target}', 'sink.id' '{target}'"
    spark.sql(f"CREATE TEMPORARY VIEW out USING ottla OPTIONS ({servers}, subscribe '{target}', {sink})")
    rows = "SELECT key, CAST(to_json(struct(offset)) AS BINARY) AS value FROM lines WHERE offset < 10"
    try:
        spark.sql(f"INSERT INTO out (key, value) {rows}")
        assert spark.sql("SELECT count(*) FROM out").first()[0] == len(read_committed(bootstrap, target)) == 20
        with pytest.raises(Exception, match="a topic cannot be overwritten"):
            spark.sql(f"INSERT OVERWRITE out (key, value) {rows}")
        spark.sql(f"CREATE TABLE sql_table USING ottla LOCATION '{tmp_path}'")
        with pytest.raises(Exception, match="Spark gives a Python data source none of a table"):
            spark.sql("SELECT * FROM sql_table").collect()
        said = servers.replace("' '", "' = '") + f", subscribe = '{source}'"
        assert spark.sql(f"SELECT * FROM sql_table WITH ({said})").count() == len(LINES)
    finally:
        spark.sql("DROP VIEW IF EXISTS out")
        spark.sql("DROP VIEW IF EXISTS lines")
        spark.sql("DROP TABLE IF EXISTS sql_table")


@pytest.mark.parametrize("mode", ["errorifexists", "ignore", "overwrite"])
def test_s5_save_modes_but_append_are_refused(spark: Any, bootstrap: str, mode: str) -> None:
    """Spark's own connector takes errorifexists for append; for a Python data source Spark refuses it before us."""
    frame = spark.createDataFrame([("v",)], "value string").write.format("ottla").mode(mode)
    writer = frame.option("kafka.bootstrap.servers", bootstrap).option("topic", "t").option("sink.id", "modes")
    with pytest.raises(Exception, match=r"a topic cannot be overwritten|UNSUPPORTED_DATA_SOURCE_SAVE_MODE"):
        writer.save()


def test_s1_a_wrong_option_is_told_by_spark(spark: Any, bootstrap: str) -> None:
    with pytest.raises(Exception, match=r"did you mean startingOffsets\?"):
        spark.read.format("ottla").option("kafka.bootstrap.servers", bootstrap).option("subscribe", "x").option(
            "startingOffset", "latest"
        ).load().count()


def test_s1_a_batch_read_of_nothing_is_empty(spark: Any, bootstrap: str, fresh_name: Callable[[str], str]) -> None:
    topic = make_topic(bootstrap, fresh_name("empty"))
    reader = spark.read.format("ottla").option("kafka.bootstrap.servers", bootstrap)
    assert reader.option("subscribe", topic).load().count() == 0


@pytest.mark.parametrize("pushed", ["true", "false"])
def test_s5_filters_change_what_is_fetched_and_not_what_is_read(
    spark: Any, bootstrap: str, fresh_name: Callable[[str], str], pushed: str
) -> None:
    topic = make_topic(bootstrap, fresh_name("filtered"))
    send_lines(bootstrap, topic)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", pushed)
    try:
        frame = spark.read.format("ottla").option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
        found = frame.load().where("partition = 1 AND offset >= 190 AND timestamp > '2020-01-01' AND value IS NOT NULL")
        assert sorted(row.offset for row in found.collect()) == list(range(190, 200))
        assert found.rdd.getNumPartitions() == (1 if pushed == "true" else 2)
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")


def test_s1_available_now_stops_for_a_topic_made_anew(
    spark: Any, bootstrap: str, fresh_name: Callable[[str], str], tmp_path: Path
) -> None:
    topic = make_topic(bootstrap, fresh_name("anew"))
    rows: list[int] = []

    def run() -> None:
        send_lines(bootstrap, topic)
        lines = spark.readStream.format("ottla").option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
        stream = lines.option("startingOffsets", "earliest").load().writeStream.trigger(availableNow=True)
        stream = stream.foreachBatch(lambda frame, number: rows.append(frame.count()))
        stream.option("checkpointLocation", str(tmp_path)).start().awaitTermination()

    run()
    with Admin({"bootstrap.servers": bootstrap}) as admin:
        admin.delete_topics([topic])
    make_topic(bootstrap, topic)
    with pytest.raises(Exception, match=f"partition {topic}-0 was read up to 200, then made anew"):
        run()
    assert rows == [len(LINES)]


def test_s2_a_stream_is_exact_although_a_worker_is_killed_in_its_write(
    spark: Any, bootstrap: str, fresh_name: Callable[[str], str], tmp_path: Path
) -> None:
    words_of = runpy.run_path(str(WORDCOUNT))["words_of"]
    source, target = make_topic(bootstrap, fresh_name("lines")), make_topic(bootstrap, fresh_name("words"))
    send_lines(bootstrap, source)
    lines = (
        spark.readStream.format("ottla")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 100)
        .option("kafka.group.id", target)
    )
    query = (
        words_of(lines.load())
        .writeStream.format("ottla")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", target)
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert sorted(int(file.name) for file in (tmp_path / "commits").glob("[0-9]*")) == [0, 1, 2, 3]
    assert Path(os.environ["OTTLA_FAULT_DIR"], "sink.mid-write:1-kill").exists()
    assert words_in(bootstrap, target) == expected_words()
    with Admin({"bootstrap.servers": bootstrap}) as admin:
        committed = admin.list_group_offsets(target)
        transactions = [each for each in admin.list_transactions() if tmp_path.name in each.transactional_id]
    assert {tp: at.offset for tp, at in committed.items()} == {TopicPartition(source, n): 200 for n in range(2)}
    assert any(transaction.transactional_id.endswith("/attempt-1") for transaction in transactions)
    assert {transaction.state for transaction in transactions} <= {"CompleteCommit", "CompleteAbort", "Empty"}


def test_s2_with_whole_batches_the_driver_alone_has_transactions(
    spark: Any, bootstrap: str, fresh_name: Callable[[str], str], tmp_path: Path
) -> None:
    source, target = make_topic(bootstrap, fresh_name("lines")), make_topic(bootstrap, fresh_name("whole"))
    send_lines(bootstrap, source)
    servers = {"kafka.bootstrap.servers": bootstrap}
    lines = spark.readStream.format("ottla").options(**servers).option("subscribe", source)
    lines = lines.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 300).load()
    # 400 rows of some 2,000 bytes: the tasks of the first batch need the staging topic
    rows = lines.selectExpr("to_json(struct(partition, offset, repeat(sha2(value, 512), 15) AS fill)) AS value")
    stream = rows.writeStream.format("ottla").options(**servers).option("topic", target).option("sink.id", target)
    stream = stream.option("atomicity", "batch").option("checkpointLocation", str(tmp_path)).trigger(availableNow=True)
    stream.start().awaitTermination()
    found = Counter((row["partition"], row["offset"]) for row in read_committed(bootstrap, target))
    assert found == Counter((partition, offset) for partition in range(2) for offset in range(200))
    with Admin({"bootstrap.servers": bootstrap}) as admin:
        ours = [each.transactional_id for each in admin.list_transactions() if f"/{target}/" in each.transactional_id]
        topics = {each.name for each in admin.list_topics(internal=True)}
    assert ours == [f"__ottla/{target}/driver"]
    assert f"__ottla_staging.{target}" in topics


def test_s5_a_listener_hears_what_spark_s_own_progress_cannot_say(
    spark: Any, bootstrap: str, fresh_name: Callable[[str], str], tmp_path: Path
) -> None:
    source, target = make_topic(bootstrap, fresh_name("lines")), make_topic(bootstrap, fresh_name("told"))
    send_lines(bootstrap, source)
    reports: Queue[Report] = Queue()
    listener = listen(spark, reports.put)
    try:
        lines = spark.readStream.format("ottla").option("kafka.bootstrap.servers", bootstrap)
        lines = lines.option("subscribe", source).option("startingOffsets", "earliest")
        rows = lines.option("maxOffsetsPerTrigger", 300).load().selectExpr("to_json(struct(offset)) AS value")
        stream = rows.writeStream.format("ottla").option("kafka.bootstrap.servers", bootstrap).option("topic", target)
        stream = stream.option("sink.id", target).option("checkpointLocation", str(tmp_path)).queryName("told")
        stream.trigger(availableNow=True).start().awaitTermination()
        first, second = reports.get(timeout=60), reports.get(timeout=60)
    finally:
        spark.streams.removeListener(listener)
    assert [(each.batch, each.name, each.rows) for each in (first, second)] == [(0, "told", 300), (1, "told", 100)]
    assert first.sources[0].end == second.sources[0].start == {source: {"0": 150, "1": 150}}
    behind = [
        (each.min_offsets_behind_latest, each.avg_offsets_behind_latest, each.max_offsets_behind_latest)
        for each in (*first.sources, *second.sources)
    ]
    assert behind == [(50, 50.0, 50), (0, 0.0, 0)]
    assert first.sink == SinkNote(0, 300, 3, 0, 0, False, target)
    assert second.sink == SinkNote(1, 100, 2, 0, 0, False, target)  # 50 records of each partition: they share a slot


def test_s2_two_writes_of_a_batch_need_two_sink_ids(
    spark: Any, bootstrap: str, fresh_name: Callable[[str], str], tmp_path: Path
) -> None:
    source, one, two = (make_topic(bootstrap, fresh_name(name)) for name in ("both", "one", "two"))
    send_lines(bootstrap, source)
    servers = {"kafka.bootstrap.servers": bootstrap}

    def run(checkpoint: str, sinks: list[tuple[str, str]]) -> None:
        writes = [foreach_batch({**servers, "topic": topic, "sink.id": sink}) for topic, sink in sinks]
        write_all = lambda frame, number: [write(frame, number) for write in writes]  # noqa: E731
        batches_of(spark, bootstrap, source, tmp_path / checkpoint, write_all)

    run("a", [(one, one), (two, two)])
    assert len(read_committed(bootstrap, one)) == len(read_committed(bootstrap, two)) == len(LINES)
    with pytest.raises(Exception, match=f"sink.id {one} has written batch 0 already"):
        run("b", [(one, one), (two, one)])


def batches_of(spark: Any, bootstrap: str, source: str, checkpoint: Path, write: Callable[[Any, int], Any]) -> None:
    """What `source` has goes to `write`, in one micro-batch."""
    lines = spark.readStream.format("ottla").option("kafka.bootstrap.servers", bootstrap).option("subscribe", source)
    rows = lines.option("startingOffsets", "earliest").load().selectExpr("to_json(struct(offset)) AS value")
    stream = rows.writeStream.foreachBatch(write).option("checkpointLocation", str(checkpoint))
    stream.trigger(availableNow=True).start().awaitTermination()


def _plain(bootstrap: str, fresh_name: Callable[[str], str]) -> tuple[str, str, dict[str, str]]:
    """A topic with lines, one to write to, and the options of its sink."""
    source, target = make_topic(bootstrap, fresh_name("in")), make_topic(bootstrap, fresh_name("plain"))
    send_lines(bootstrap, source)
    return source, target, {"kafka.bootstrap.servers": bootstrap, "topic": target, "sink.id": target}


def test_s2_a_foreach_batch_that_could_write_its_replay_twice_is_refused(
    spark: Any, bootstrap: str, fresh_name: Callable[[str], str], tmp_path: Path
) -> None:
    source, target, sink = _plain(bootstrap, fresh_name)

    def run(**more: str) -> None:
        def write(frame: Any, _number: int) -> None:
            frame.write.format("ottla").options(**sink).options(**more).mode("append").save()

        batches_of(spark, bootstrap, source, tmp_path, write)

    with pytest.raises(
        Exception, match=r"ConfigError: sink .* of a streaming query.*ottla\.spark\.pipeline\.foreach_batch"
    ):
        run()
    assert read_committed(bootstrap, target) == []
    run(queryId=target, batchId="0")
    (tmp_path / "commits" / "0").unlink()
    run(queryId=target, batchId="0")
    assert len(read_committed(bootstrap, target)) == len(LINES)
    (tmp_path / "commits" / "0").unlink()
    run(semantics="at-least-once")
    assert len(read_committed(bootstrap, target)) == len(LINES) * 2


def test_s2_a_foreach_batch_in_a_thread_that_tells_of_no_query_is_refused_too(
    spark: Any, bootstrap: str, fresh_name: Callable[[str], str], tmp_path: Path
) -> None:
    source, target, sink = _plain(bootstrap, fresh_name)

    def run(**more: str) -> None:
        def write(frame: Any) -> None:
            session = frame.sparkSession
            session._jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(session._jsparkSession)
            frame.write.format("ottla").options(**sink).options(**more).mode("append").save()

        def in_a_thread(frame: Any, _number: int) -> None:
            with ThreadPoolExecutor(1) as pool:
                pool.submit(write, frame.select("value")).result()

        batches_of(spark, bootstrap, source, tmp_path, in_a_thread)

    with pytest.raises(
        Exception, match=r"ConfigError: sink .* with the session of a streaming query.*queryId and batchId"
    ):
        run()
    assert read_committed(bootstrap, target) == []
    run(queryId=target, batchId="0")
    frame = spark.createDataFrame([("{}",)], "value string")
    frame.write.format("ottla").options(**{**sink, "sink.id": f"{target}.plain"}).mode("append").save()
    assert len(read_committed(bootstrap, target)) == len(LINES) + 1


def test_s2_the_sinks_of_a_batch_may_be_written_in_threads(
    spark: Any, bootstrap: str, fresh_name: Callable[[str], str], tmp_path: Path
) -> None:
    source, *targets = (make_topic(bootstrap, fresh_name(name)) for name in ("in", "one", "two"))
    send_lines(bootstrap, source)
    servers = {"kafka.bootstrap.servers": bootstrap}
    writes = [foreach_batch({**servers, "topic": topic, "sink.id": topic}) for topic in targets]

    def write(frame: Any, number: int) -> None:
        with ThreadPoolExecutor(2) as pool:
            for written in [pool.submit(each, frame.select("value"), number) for each in writes]:
                written.result()

    for _ in range(2):
        batches_of(spark, bootstrap, source, tmp_path, write)
        (tmp_path / "commits" / "0").unlink()  # the next run replays it
    assert [len(read_committed(bootstrap, topic)) for topic in targets] == [len(LINES)] * 2

    def same(frame: Any, number: int) -> None:
        with ThreadPoolExecutor(1) as pool:
            for _ in range(2):
                pool.submit(writes[0], frame, number).result()

    with pytest.raises(Exception, match=f"sink.id {targets[0]} has written batch 0 already"):
        batches_of(spark, bootstrap, source, tmp_path, same)
    frame = spark.createDataFrame([("v",)], "value string")
    with pytest.raises(ConfigError, match=r"of which streaming query .* cannot be told"):
        writes[0](frame, 1)


@pytest.mark.parametrize("how", ["option", "session", "foreach_batch"])
def test_s2_a_checkpoint_that_lost_its_last_batch_stops_the_query(
    spark: Any, bootstrap: str, fresh_name: Callable[[str], str], tmp_path: Path, how: str
) -> None:
    source, target = make_topic(bootstrap, fresh_name("rewound")), make_topic(bootstrap, fresh_name("target"))
    sink = {"kafka.bootstrap.servers": bootstrap, "topic": target, "sink.id": target}

    def run() -> None:
        reader = spark.readStream.format("ottla").option("kafka.bootstrap.servers", bootstrap)
        reader = reader.option("subscribe", source).option("startingOffsets", "earliest")
        rows = reader.option("kafka.group.id", target).load().selectExpr("to_json(struct(partition, offset)) AS value")
        stream = rows.writeStream.queryName("rewound").trigger(availableNow=True)
        if how == "foreach_batch":
            stream = stream.foreachBatch(foreach_batch(sink))
        else:
            stream = stream.format("ottla").options(**sink)
        if how != "session":
            stream = stream.option("checkpointLocation", str(checkpoint))
        stream.start().awaitTermination()

    checkpoint = tmp_path / "rewound"
    if how == "session":
        spark.conf.set("spark.sql.streaming.checkpointLocation", str(tmp_path))
    try:
        send_lines(bootstrap, source)
        run()
        (checkpoint / "commits" / "0").unlink()
        run()  # an honest replay
        planned = (checkpoint / "offsets" / "0").read_bytes()
        for name in ("offsets/0", "offsets/.0.crc", "commits/0", "commits/.0.crc"):
            (checkpoint / name).unlink(missing_ok=True)
        send_lines(bootstrap, source)
        with pytest.raises(Exception, match=r"batch 0 of query .* is in doubt: .*offsets/0 is not the one"):
            run()
        (checkpoint / "offsets" / ".0.crc").unlink(missing_ok=True)
        (checkpoint / "offsets" / "0").write_bytes(planned)
        run()
    finally:
        spark.conf.unset("spark.sql.streaming.checkpointLocation")
    rows = Counter((row["partition"], row["offset"]) for row in read_committed(bootstrap, target))
    assert rows == Counter((partition, offset) for partition in range(2) for offset in range(len(LINES)))
    if how != "foreach_batch":
        with Admin({"bootstrap.servers": bootstrap}) as admin:
            committed = admin.list_group_offsets(target)
        assert {at.offset for at in committed.values()} == {len(LINES)}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("semantics", "atomicity", "point"),
    [
        ("exactly-once", "slot", "sink.after-decision:1"),
        ("exactly-once", "batch", "sink.mid-copy:1"),
        ("at-least-once", "slot", "sink.flushed:1"),
    ],
)
def test_s4_the_script_goes_on_after_its_driver_was_killed(
    bootstrap: str,
    fresh_name: Callable[[str], str],
    tmp_path: Path,
    semantics: str,
    atomicity: str,
    point: str,
    java: str,
) -> None:
    exactly_once = semantics == "exactly-once"
    source, target = make_topic(bootstrap, fresh_name("lines")), make_topic(bootstrap, fresh_name("words"))
    send_lines(bootstrap, source)
    faults = tmp_path / "faults"
    faults.mkdir()
    arguments = ["--bootstrap", bootstrap, "--input", source, "--output", target, "--semantics", semantics]
    arguments += ["--atomicity", atomicity]
    arguments += ["--checkpoint", str(tmp_path / "checkpoint"), "--max-offsets-per-trigger", "100", "--available-now"]
    argv, env = launch(WORDCOUNT, arguments, master="local[2]", conf=[], environ=os.environ)
    env |= {"OTTLA_FAULT": f"{point}=pause", "OTTLA_FAULT_DIR": str(faults)}
    reached = faults / f"{point}-pause"
    driver = subprocess.Popen(argv, env=env, start_new_session=True)
    try:
        while not reached.exists():
            with contextlib.suppress(subprocess.TimeoutExpired):
                pytest.fail(f"the driver ended with {driver.wait(0.1)}")
    finally:
        kill_session(driver.pid)
        driver.wait()
    assert subprocess.run(argv, env=env, check=False).returncode == 0
    words = words_in(bootstrap, target)
    if exactly_once:
        assert words == expected_words()
    else:  # the check is known to be able to fail
        assert set(words) == set(expected_words())
        assert words.total() > expected_words().total()
