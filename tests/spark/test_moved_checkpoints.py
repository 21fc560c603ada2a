"""A sink that was given no id: however its checkpoint is written it is the same one, and no move writes rows twice."""

import json
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from ottla import Admin
from ottla.base.errors import ConfigError
from ottla.base.types import TopicPartition
from ottla.spark.ids import PREFIX, driver_id
from ottla.spark.ledger import UNNAMED, BatchKey, Decision, Forgotten, Handle, Ledger, LedgerBatch, Plan, encode
from ottla.spark.moved import check_not_moved
from ottla.spark.options import SinkOptions, sink_options
from ottla.spark.requests import ReadLedger
from ottla.spark.sink import KafkaSink, OttlaWriter
from ottla.spark.sink_client import former_default_sink_ids
from tests.spark.sink_world import QUERY, SCHEMA, SinkWorld

SERVERS = {"kafka.bootstrap.servers": "127.0.0.1:9092", "topic": "t"}
ABC = Counter(["a", "b", "c"])


def id_at(checkpoint: str) -> str:
    return sink_options({**SERVERS, "checkpointlocation": checkpoint}).sink_id


@pytest.mark.parametrize(
    ("one", "others"),
    [
        ("/data/ck", ["file:/data/ck", "file:///data/ck", "FILE:/data/ck", "/data/ck/", "/data//ck", "/data/./ck"]),
        ("s3a://b/ck", ["s3://b/ck", "s3n://b/ck/", "s3://b//ck"]),
        ("hdfs://n:8020/ck", ["hdfs://n:8020/ck/"]),
        ("no-such-directory/ck", ["./no-such-directory/ck", "no-such-directory/ck/"]),
    ],
)
def test_s2_one_checkpoint_is_one_sink_however_it_is_written(one: str, others: list[str]) -> None:
    assert {id_at(other) for other in others} == {id_at(one)}


def test_s2_a_relative_checkpoint_is_where_it_is_if_it_is_a_local_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ck").mkdir()
    monkeypatch.chdir(tmp_path)
    assert id_at("ck") == id_at("./ck") == id_at(str(tmp_path / "ck"))
    assert id_at("elsewhere") == "ottla-elsewhere"  # the file system that Hadoop has by default may be another one


def test_s2_other_checkpoints_are_other_sinks() -> None:
    long = "a" * 150
    places = ["/data/a", "/data/b", "s3://b/a", "hdfs://b/a", "a", "/data/a/b", "/data/a_b", "/hdfs/b/a"]
    places += ["/jobs/orders (v2)", "/jobs/orders/v2", f"s3://prod/{long}", f"s3://test/{long}", "/数据", "/数"]
    assert len({id_at(place) for place in places}) == len(places)
    names = ["my query", "my_query", "my-query", "数"]
    assert len({sink_options({**SERVERS, "queryname": name}).sink_id for name in names}) == len(names)


def batch(at: int, sink: str, record: Decision | Forgotten) -> LedgerBatch:
    return LedgerBatch(at, at, -1, -1, False, None, (encode(sink, record),))


def decision(sink: str, query: str, number: int) -> Decision:
    return Decision(BatchKey(query, number), Handle(driver_id(sink), 1, number), (), Plan())


def test_s2_the_ledger_tells_which_sinks_have_decided_batches_of_a_query() -> None:
    ledger = Ledger("b")
    ledger.apply([batch(0, "a", decision("a", "q", 3)), batch(1, "b", decision("b", "q", 4))])
    ledger.apply([batch(2, "a", decision("a", "other", 0))])
    assert ledger.sinks_of("q") == {"a": 3, "b": 4}
    assert ledger.sinks_of("other") == {"a": 0}
    assert set(ledger.decisions()) == {"q"}
    ledger.apply([batch(3, "a", Forgotten("q", "decision"))])
    assert ledger.sinks_of("q") == {"b": 4}
    assert ledger.has_decided("a")
    ledger.apply([batch(4, "a", Forgotten("other", "decision"))])
    assert not ledger.has_decided("a")


def test_s2_what_another_sink_decides_counts_when_it_is_committed() -> None:
    ledger = Ledger("b")
    open_one = batch(0, "a", decision("a", "q", 3))._replace(producer_id=7, producer_epoch=0, transactional=True)
    ledger.apply([open_one])
    assert ledger.sinks_of("q") == {}
    ledger.apply([open_one._replace(base_offset=1, last_offset=1, commit=True, records=())])
    assert ledger.sinks_of("q") == {"a": 3}


# on a broker


def options(world: SinkWorld, checkpoint: Path | str, **more: str) -> SinkOptions:
    given = {"kafka.bootstrap.servers": world.bootstrap, "topic": world.topic, "checkpointlocation": str(checkpoint)}
    return sink_options(given | more)


def plan(world: SinkWorld, batch: int, end: int) -> None:
    """What Spark writes into the checkpoint before a batch runs."""
    (world.checkpoint / "metadata").write_text(json.dumps({"id": query_of(world)}))
    world.plan(batch, end, "g")


def query_of(world: SinkWorld) -> str:
    return f"{QUERY}.{world.topic}"


def run(world: SinkWorld, options: SinkOptions, batch: int, *slots: str) -> str:
    """A micro-batch, as Spark runs it: commit() is called in another process. Returns the sink's id."""
    driver = KafkaSink(options, SCHEMA, on_driver=True)
    messages = [world.task(driver, batch, slot, words, query=query_of(world)) for slot, words in enumerate(slots)]
    committer = KafkaSink(options, SCHEMA, on_driver=False)
    try:
        committer.commit(messages, batch)
    except ConfigError:
        committer.abort(messages)
        raise
    assert driver.claim is not None
    return driver.claim.sink


def output(world: SinkWorld) -> Counter[str]:
    """The words that are committed, when the transactions of all sinks are over."""
    with Admin({"bootstrap.servers": world.bootstrap}) as admin:
        while admin.list_transactions(f"^{PREFIX}ottla-.*", ["PrepareCommit", "PrepareAbort"]):
            pass
    return world.output()


def moved(world: SinkWorld) -> SinkWorld:
    there = world.checkpoint.with_name("moved")
    shutil.move(world.checkpoint, there)
    return world._replace(checkpoint=there)


def test_s2_a_moved_checkpoint_does_not_write_its_last_batch_twice(world: SinkWorld) -> None:
    plan(world, 0, 3)
    first = run(world, options(world, world.checkpoint), 0, "a b", "c")
    world = moved(world)
    with pytest.raises(ConfigError, match=f"has its batch 0 under the sink {first}.*set sink.id to {first}"):
        run(world, options(world, world.checkpoint), 0, "a b", "c")
    assert output(world) == ABC
    assert run(world, options(world, world.checkpoint, **{"sink.id": first}), 0, "a b", "c") == first
    plan(world, 1, 4)
    run(world, options(world, world.checkpoint, **{"sink.id": first}), 1, "d")
    assert output(world) == ABC + Counter("d")


def test_s2_a_renamed_query_does_not_write_its_last_batch_twice(world: SinkWorld) -> None:
    plan(world, 0, 3)
    run(world, options(world, world.checkpoint, queryname=f"{world.topic}.one"), 0, "a b", "c")
    for name in ({"queryname": f"{world.topic}.two"}, {}):
        with pytest.raises(ConfigError, match=f"has its batch 0 under the sink ottla-{world.topic}.one"):
            run(world, options(world, world.checkpoint, **name), 0, "a b", "c")
    assert output(world) == ABC


def test_s2_a_moved_checkpoint_without_a_decided_batch_goes_on_where_it_is(world: SinkWorld) -> None:
    plan(world, 0, 3)
    world = moved(world)
    run(world, options(world, world.checkpoint), 0, "a b", "c")
    assert output(world) == ABC


def test_s2_a_copy_with_a_sink_id_of_its_own_writes_by_itself(world: SinkWorld) -> None:
    plan(world, 0, 3)
    run(world, options(world, world.checkpoint), 0, "a")
    run(world, options(world, world.checkpoint, **{"sink.id": f"{world.topic}.copy"}), 0, "a")
    assert output(world) == Counter({"a": 2})


def test_s2_a_copy_that_is_ahead_stops_neither_itself_nor_the_query_it_was_copied_from(world: SinkWorld) -> None:
    own = {"sink.id": f"{world.topic}.copy"}
    plan(world, 0, 3)
    first = run(world, options(world, world.checkpoint), 0, "a")
    for number in range(3):
        plan(world, number, 3 + number)
        run(world, options(world, world.checkpoint, **own), number, "copied")
    plan(world, 1, 9)
    assert run(world, options(world, world.checkpoint), 1, "b") == first
    assert output(world) == Counter({"a": 1, "b": 1, "copied": 3})


def of_a_version_before(options: SinkOptions, number: int = -1) -> SinkOptions:
    former = former_default_sink_ids(options.query_name, options.checkpoint)
    assert len({options.sink_id, *former}) == 3
    return replace(options, sink_id=former[number])


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("tells_its_query", [True, False])
def test_s2_a_pipeline_of_a_version_before_goes_on_under_its_id(
    world: SinkWorld, tells_its_query: bool, number: int
) -> None:
    now = options(world, f"file:{world.checkpoint}")
    before = of_a_version_before(now, number)
    plan(world, 0, 3)
    assert run(world, before, 0, "a b", "c") == before.sink_id
    if not tells_its_query:
        (world.checkpoint / "metadata").unlink()
    assert run(world, now, 0, "a b", "c") == before.sink_id
    assert output(world) == ABC
    world.plan(1, 4, "g")
    assert run(world, now, 1, "d") == before.sink_id
    assert output(world) == ABC + Counter("d")


def test_s2_a_driver_that_goes_on_asks_the_ledger_no_second_time(world: SinkWorld) -> None:
    """Who reads the ledger writes a record, and waits for it: two of three reads of a micro-batch told nothing new."""
    now = options(world, world.checkpoint)
    plan(world, 0, 3)
    run(world, now, 0, "a")

    def end() -> int:
        tp = TopicPartition(now.ledger_topic, 0)
        with Admin({"bootstrap.servers": world.bootstrap}) as admin:
            return admin.list_offsets({tp: -1})[tp].offset

    output(world)
    before = end()
    driver = KafkaSink(now, SCHEMA, on_driver=True)
    assert end() == before + 1
    claim = driver.claim
    assert claim is not None
    assert list(check_not_moved(claim, BatchKey(query_of(world), 0))) == []
    assert list(check_not_moved(claim, BatchKey(query_of(world), 1))) == []
    assert next(check_not_moved(claim, BatchKey(query_of(world), 2))) == ReadLedger()


def test_s2_a_driver_that_goes_on_sees_that_a_version_before_has_gone_on_meanwhile(world: SinkWorld) -> None:
    now = options(world, world.checkpoint)
    before = replace(now, sink_id=former_default_sink_ids(now.query_name, now.checkpoint)[0])
    plan(world, 0, 3)
    assert run(world, now, 0, "a") == now.sink_id
    plan(world, 1, 4)
    assert run(world, now, 1, "b") == now.sink_id
    plan(world, 2, 5)
    assert run(world, before, 2, "c") == before.sink_id
    plan(world, 3, 6)
    assert run(world, now, 3, "d") == before.sink_id
    assert output(world) == ABC + Counter("d")


def test_s2_a_new_pipeline_does_not_take_the_id_that_another_one_has_had_before(world: SinkWorld) -> None:
    now = options(world, f"file:{world.checkpoint}")
    before = of_a_version_before(now)
    world.committer().commit([world.task(KafkaSink(before, SCHEMA, on_driver=True), 0, 0, "x")], 0)
    plan(world, 0, 3)
    assert run(world, now, 0, "a b", "c") == now.sink_id
    assert output(world) == ABC + Counter("x")


def test_s2_a_batch_write_of_a_version_before_is_finished_under_its_id(world: SinkWorld) -> None:
    now = options(world, f"file:{world.checkpoint}")
    before = of_a_version_before(now)
    world.committer().commit([world.task(KafkaSink(before, SCHEMA, on_driver=True), 0, 0, "x", query=UNNAMED)], None)
    writer = OttlaWriter(now, SCHEMA, False)
    assert writer._sink.claim is not None
    assert writer._sink.claim.sink == before.sink_id
