"""SPEC S2 and S3 on our broker and on Apache Kafka: driver and tasks are called as Spark does, and die in between."""

import json
from collections import Counter
from collections.abc import Callable

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from ottla import Admin, NewTopic, Producer
from ottla.base.errors import ConfigError
from ottla.base.types import TopicPartition
from ottla.client.errors import ProducerFencedError
from ottla.spark.errors import InDoubtError, PipelineError, SinkFencedError, SlotsLostError
from ottla.spark.ledger import UNNAMED, BatchKey, SlotMarker
from ottla.spark.options import sink_options
from ottla.spark.pipeline import planned
from ottla.spark.plan import SourceOffset
from ottla.spark.protocol import SlotTask
from ottla.spark.sink import KafkaSink, OttlaWriter
from tests.spark import former_sink
from tests.spark.brokers import on_either_broker
from tests.spark.sink_world import QUERY, SCHEMA, SinkWorld, commit_until, ends_driver, ends_slots

pytestmark = on_either_broker

ABC = Counter(["a", "b", "c"])


def test_s3_no_offsets_are_committed_for_what_the_sink_s_cluster_does_not_have(
    world: SinkWorld, caplog: pytest.LogCaptureFixture
) -> None:
    """A deleted topic, or a source that reads another cluster: the transaction could never take them."""
    here, gone = TopicPartition(world.topic, 0), TopicPartition(f"{world.topic}.gone", 0)
    other = SourceOffset({}, {here: 4}, f"{world.sink}2", {world.topic: "an-id-of-another-cluster"})
    lines = [json.dumps(each.to_json()) for each in (SourceOffset({}, {here: 3, gone: 7}, world.sink), other)]
    (world.checkpoint / "offsets" / "0").write_text("\n".join(["v1", "{}", lines[0]]))
    world.committer().commit(world.batch(world.driver(), 0, "a", "b", "c"), 0)
    (world.checkpoint / "offsets" / "1").write_text("\n".join(["v1", "{}", lines[1]]))
    world.committer().commit(world.batch(world.driver(), 1, "a", "b", "c"), 1)
    assert world.output() == ABC + ABC
    with Admin({"bootstrap.servers": world.bootstrap}) as admin:
        assert {tp: at.offset for tp, at in admin.list_group_offsets(world.sink).items()} == {here: 3}
        assert admin.list_group_offsets(f"{world.sink}2") == {}
    assert (
        f"no offsets of {gone.topic} are committed for {world.sink}: the cluster that the sink writes to" in caplog.text
    )


def test_s2_nothing_is_seen_before_the_commit_and_all_after(world: SinkWorld) -> None:
    driver = world.driver()
    messages = world.batch(driver, 0, "a b", "", "c")
    assert [message.rows for message in messages] == [2, 0, 1]
    assert messages[1].report.handle is None
    assert world.output() == Counter()
    world.committer().commit(messages, 0)
    assert world.output() == ABC
    assert world.open_transactions() == []


def test_s3_the_sources_offsets_are_committed_with_the_output(
    world: SinkWorld, fresh_name: Callable[[str], str]
) -> None:
    group = fresh_name("pipeline")
    for batch, end in enumerate((5, 9)):
        world.plan(batch, end, group)
        world.committer().commit(world.batch(world.driver(), batch, f"w{batch}"), batch)
        assert world.group_offset(group) == end


def test_s3_a_foreach_batch_that_names_the_group_commits_the_sources_offsets(
    world: SinkWorld, fresh_name: Callable[[str], str]
) -> None:
    group, of_the_source = fresh_name("pipeline"), fresh_name("of-the-source")
    for batch, end in enumerate((5, 9)):
        world.plan(batch, end, of_the_source)
        options = {"kafka.group.id": group, "queryid": QUERY, "batchid": str(batch)}
        for _ in range(2):  # the replay is skipped
            messages = world.batch(world.driver(**options), batch, f"w{batch}")
            world.committer(**options).commit(messages, None)
        assert world.group_offset(group) == end
    world.plan(2, 11, of_the_source)
    world.committer().commit(world.batch(world.driver(), 2, "w2"), None)
    with Admin({"bootstrap.servers": world.bootstrap}) as admin:
        assert admin.list_group_offsets(of_the_source) == {}  # other writes of the function may not be done
    assert world.output() == Counter(["w0", "w1", "w2"])


@pytest.mark.parametrize("semantics", ["exactly-once", "at-least-once"])
def test_s3_a_group_whose_offsets_nobody_commits_is_told_once(
    world: SinkWorld, fresh_name: Callable[[str], str], caplog: pytest.LogCaptureFixture, semantics: str
) -> None:
    group = fresh_name("pipeline")
    given = {"kafka.bootstrap.servers": world.bootstrap, "topic": world.topic, "kafka.group.id": group}
    options = sink_options(given | {"semantics": semantics, "sink.id": world.sink})
    for _ in range(2):
        driver = KafkaSink(options, SCHEMA, on_driver=True)
        messages = [world.task(driver, 0, 0, "a", query=UNNAMED)]
        KafkaSink(options, SCHEMA, on_driver=False).commit(messages, None)
    said = [record.getMessage() for record in caplog.records if group in record.getMessage()]
    assert len(said) == 1
    assert f"No offsets of kafka.group.id {group} are committed" in said[0]


def test_s2_an_application_whose_id_looks_like_a_sinks_is_left_alone(world: SinkWorld) -> None:
    with Producer({"bootstrap.servers": world.bootstrap, "transactional.id": f"{world.sink}-1"}) as application:
        application.init_transactions()
        application.begin_transaction()
        application.send(world.topic, b"theirs", partition=0)
        application.flush()
        world.committer().commit(world.batch(world.driver(), 0, "a b", "c"), 0)
        application.commit_transaction()
    assert world.output() == ABC + Counter(["theirs"])


def test_s2_what_a_sink_with_ids_without_a_prefix_left_open_is_aborted(
    world: SinkWorld, fresh_name: Callable[[str], str]
) -> None:
    ledger = fresh_name("ledger")
    world.driver(**{"ledger.topic": ledger})
    with Producer({"bootstrap.servers": world.bootstrap, "transactional.id": f"{world.sink}-0"}) as former:
        former.init_transactions()
        former.begin_transaction()
        former.send(world.topic, b"lost", partition=0)
        key, value = former_sink.encode_record(world.sink, SlotMarker(BatchKey(QUERY, 0), 0, 1, "aa"))
        former.send(ledger, value, key=key, partition=0)
        former.flush()
        again = world.driver(**{"ledger.topic": ledger})
        assert again.claim is not None and again.claim.aborted == 1
        with pytest.raises(ProducerFencedError):
            former.commit_transaction()
    world.committer(**{"ledger.topic": ledger}).commit(world.batch(again, 0, "a b", "c"), 0)
    assert world.output() == ABC


def test_s2_a_driver_that_dies_before_its_decision_leaves_nothing(world: SinkWorld) -> None:
    messages = world.batch(world.driver(), 0, "a b", "c")
    commit_until(world.committer(), messages, ends_driver)
    assert len(world.open_transactions()) == 3
    again = world.driver()
    assert again.claim is not None and again.claim.aborted == 2
    assert world.open_transactions() == []
    world.committer().commit(world.batch(again, 0, "a b", "c"), 0)
    assert world.output() == ABC


def test_s2_a_driver_that_dies_after_its_decision_is_finished_by_the_next(world: SinkWorld) -> None:
    messages = world.batch(world.driver(), 0, "a b", "c")
    commit_until(world.committer(), messages, ends_slots)
    again = world.driver()
    assert again.claim is not None and (again.claim.recovered, again.claim.aborted) == (2, 0)
    assert world.output() == ABC
    replay = world.batch(again, 0, "other", "rows: the batch is committed, they are not looked at")
    world.committer().commit(replay, 0)
    assert world.output() == ABC


def test_s2_commit_may_run_twice(world: SinkWorld) -> None:
    messages = world.batch(world.driver(), 0, "a b", "c")
    for _ in range(2):
        world.committer().commit(messages, 0)
    assert world.output() == ABC


def test_s2_a_second_attempt_at_a_slot_fences_the_first(world: SinkWorld) -> None:
    driver = world.driver()
    first = world.batch(driver, 0, "a b", "c")
    second = world.task(driver, 0, 1, "c")
    world.committer().commit([first[0], second], 0)
    assert world.output() == ABC


def test_s2_with_speculation_the_attempt_that_was_reported_holds(world: SinkWorld) -> None:
    driver = world.driver()
    messages = [world.task(driver, 0, slot, words, attempt=0) for slot, words in enumerate(("a b", "c"))]
    world.task(driver, 0, 1, "c", attempt=1)  # ends just after the other
    world.committer().commit(messages, 0)
    assert world.output() == ABC
    assert world.open_transactions() == []
    world.task(world.driver(), 1, 0, "x", attempt=2)  # its driver dies
    again = world.driver()
    assert again.claim is not None and again.claim.aborted == 1
    assert world.output() == ABC


def test_s2_a_slot_lost_to_a_zombie_is_written_again_and_only_that(world: SinkWorld) -> None:
    driver = world.driver()
    messages = world.batch(driver, 0, "a b", "c")
    world.task(driver, 0, 1, "c")  # a zombie attempt takes the slot over, its message comes to nothing
    with pytest.raises(SlotsLostError, match=r"raise kafka\.transaction\.timeout\.ms.*start the query again"):
        world.committer().commit(messages, 0)
    world.committer().abort(messages)
    again = world.driver()
    assert world.output() == Counter(["a", "b"])
    world.committer().commit(world.batch(again, 0, "a b", "c"), 0)
    assert world.output() == ABC
    world.committer().commit(world.batch(world.driver(), 1, "d"), 1)
    assert world.output() == ABC + Counter("d")


def test_s2_a_replay_with_other_rows_in_a_committed_slot_is_in_doubt(world: SinkWorld) -> None:
    driver = world.driver()
    messages = world.batch(driver, 0, "a b", "c")
    world.task(driver, 0, 1, "c")
    with pytest.raises(SlotsLostError):
        world.committer().commit(messages, 0)
    again = world.driver()
    with pytest.raises(InDoubtError, match="batch 0 of query 9f6d is in doubt: slot 0"):
        world.task(again, 0, 0, "b a")
    assert world.output() == Counter(["a", "b"])


def test_s2_a_batch_write_that_stayed_half_committed_is_told_by_the_next_write(world: SinkWorld) -> None:
    driver = world.driver()
    messages = world.batch(driver, 0, "a b", "c")
    world.task(driver, 0, 1, "c")
    with pytest.raises(SlotsLostError):
        world.committer().commit(messages, 0)
    with pytest.raises(InDoubtError, match=r"batch 0 of query 9f6d is in doubt: slots \[0\] are committed"):
        world.driver().write(BatchKey("another", 0), 0, iter([]))
    assert world.output() == Counter(["a", "b"])


def test_s2_a_zombie_driver_is_fenced(world: SinkWorld) -> None:
    zombie = world.batch(world.driver(), 0, "a b", "c")
    successor = world.driver()
    with pytest.raises(SinkFencedError, match="has taken over"):
        world.committer().commit(zombie, 0)
    world.committer().abort(zombie)
    world.committer().commit(world.batch(successor, 0, "a b", "c"), 0)
    assert world.output() == ABC


def test_s2_an_abort_releases_what_was_not_decided(world: SinkWorld) -> None:
    messages = world.batch(world.driver(), 0, "a b", "c")
    world.committer().abort([messages[0], None])
    assert world.open_transactions() == []
    world.committer().commit(world.batch(world.driver(), 0, "a b", "c"), 0)
    world.committer().abort(messages)  # a late one, of a batch that is decided, does nothing
    assert world.output() == ABC


def test_s2_a_checkpoint_that_was_rolled_back_is_in_doubt(world: SinkWorld) -> None:
    for batch in range(2):
        world.committer().commit(world.batch(world.driver(), batch, "x"), batch)
    with pytest.raises(InDoubtError, match=r"batch 0 .* rolled back"):
        world.task(world.driver(), 0, 0, "x")


def test_s2_a_batch_write_whose_number_does_not_grow_is_told_so(world: SinkWorld) -> None:
    world.committer().commit(world.batch(world.driver(), 1, "x"), None)
    numbered = sink_options(
        {
            "kafka.bootstrap.servers": world.bootstrap,
            "topic": world.topic,
            "sink.id": world.sink,
            "queryId": QUERY,
            "batchId": "0",
        }
    )
    driver = KafkaSink(numbered, SCHEMA, on_driver=True)
    with pytest.raises(InDoubtError, match="batch 1 is decided already; the option batchId has to grow"):
        world.task(driver, 0, 0, "y")


def test_s2_a_batch_that_was_planned_anew_is_in_doubt_and_an_honest_replay_is_not(world: SinkWorld) -> None:
    world.plan(0, 5, "g")
    committed = (world.checkpoint / "offsets" / "0").read_bytes()
    world.committer().commit(world.batch(world.driver(), 0, "a b", "c"), 0)
    world.plan(0, 9, "g")  # offsets/0 and commits/0 were removed, and there is more to read
    again = world.batch(world.driver(), 0, "a b", "c d")
    with pytest.raises(InDoubtError, match=r"batch 0 of query 9f6d is in doubt: .*offsets/0 is not the one"):
        world.committer().commit(again, 0)
    (world.checkpoint / "offsets" / "0").unlink()
    with pytest.raises(PipelineError, match="the checkpoint cannot be read"):
        world.committer().commit(again, 0)
    (world.checkpoint / "offsets" / "0").write_bytes(committed)
    world.committer().commit(world.batch(world.driver(), 0, "c a", "other"), 0)
    assert world.output() == ABC


def test_s2_a_half_committed_batch_that_was_planned_anew_is_in_doubt_although_its_rows_look_alike(
    world: SinkWorld,
) -> None:
    world.plan(0, 2, "g")
    committed = (world.checkpoint / "offsets" / "0").read_bytes()
    driver = world.driver()
    messages = world.batch(driver, 0, "x", "x")
    world.task(driver, 0, 1, "x")  # a zombie, which takes over the slot
    with pytest.raises(SlotsLostError):
        world.committer().commit(messages, 0)
    world.plan(0, 4, "g")  # the checkpoint lost its files; other records are read, which have the same values
    again = world.batch(world.driver(), 0, "x", "x")
    with pytest.raises(InDoubtError, match=r"slots \[0\] of a batch of this number .*offsets/0 is not the one"):
        world.committer().commit(again, 0)
    (world.checkpoint / "offsets" / "0").unlink()
    with pytest.raises(PipelineError, match=r"in whole or in part, .* the checkpoint cannot be read"):
        world.committer().commit(again, 0)
    world.committer().abort(again)
    (world.checkpoint / "offsets" / "0").write_bytes(committed)
    world.committer().commit(world.batch(world.driver(), 0, "x", "x"), 0)
    assert world.output() == Counter(["x", "x"])


def test_s2_the_checkpoint_may_be_known_to_the_tasks_only(world: SinkWorld) -> None:
    world.plan(0, 5, "g")
    messages = world.batch(world.driver(checkpointlocation="/nowhere"), 0, "a b", "c")
    for message in messages:
        message.checkpoint = str(world.checkpoint)
    world.committer(checkpointlocation="/nowhere").commit(messages, 0)
    assert world.group_offset("g") == 5


def test_s3_offsets_in_a_form_that_is_not_known_are_not_passed_over_in_silence(
    world: SinkWorld, caplog: pytest.LogCaptureFixture
) -> None:
    for batch in range(2):
        (world.checkpoint / "offsets" / str(batch)).write_text("v3\n{}\n")
        world.committer().commit(world.batch(world.driver(), batch, "x"), batch)
    # A busy machine may have more to say, such as that a producer was slow.
    said = [record.getMessage() for record in caplog.records if "No offsets of a kafka.group.id" in record.getMessage()]
    assert len(said) == 1
    assert "are committed: the checkpoint's offset log has an unknown form" in said[0]
    with pytest.raises(PipelineError, match=r"kafka\.group\.id g: .* unknown form"):
        world.committer(**{"kafka.group.id": "g"}).commit(world.batch(world.driver(), 1, "x"), 1)


def test_s2_a_foreach_batch_whose_checkpoint_cannot_be_read_says_so_once_for_each_sink(
    world: SinkWorld, caplog: pytest.LogCaptureFixture
) -> None:
    options = [{"checkpointlocation": str(world.checkpoint / "no"), "sink.id": f"{world.sink}.{n}"} for n in range(2)]
    for batch in range(2):
        for sink in options:
            world.committer(**sink).commit(world.batch(world.driver(**sink), batch, "x"), None)
    said = [record.getMessage() for record in caplog.records if record.name == "ottla.spark"]
    assert len(said) == 2
    for sink, line in zip(options, said, strict=True):
        assert line.startswith(f"sink {sink['sink.id']}: the checkpoint cannot be read")


def test_s2_a_replay_asks_for_its_plan_although_the_checkpoint_could_not_be_read_just_now(world: SinkWorld) -> None:
    world.plan(0, 5, "g")
    world.committer().commit(world.batch(world.driver(), 0, "a b", "c"), 0)
    (world.checkpoint / "offsets" / "1").mkdir()
    assert "1" in planned(str(world.checkpoint), 1, None).why
    assert planned(str(world.checkpoint), 0, None).digest is None
    world.committer().commit(world.batch(world.driver(), 0, "a b", "c"), 0)
    assert world.output() == ABC


def test_s2_a_batch_is_skipped_without_a_checkpoint_that_can_be_read(
    world: SinkWorld, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        world.committer(checkpointlocation="/nowhere").commit(world.batch(world.driver(), 0, "a b", "c"), 0)
    assert world.output() == ABC
    said = [record.getMessage() for record in caplog.records if record.name == "ottla.spark"]
    assert any("No offsets of a kafka.group.id are committed" in line for line in said)
    assert "committed already, skipped" in said[-1]


def test_s2_a_half_committed_batch_does_not_go_on_to_another_topic(
    world: SinkWorld, fresh_name: Callable[[str], str]
) -> None:
    driver = world.driver()
    messages = world.batch(driver, 0, "a b", "c")
    world.task(driver, 0, 1, "c")  # a zombie, which takes over the slot
    with pytest.raises(SlotsLostError):
        world.committer().commit(messages, 0)
    with pytest.raises(ConfigError, match=f"is committed to topic {world.topic}, and the rest would go to topic"):
        world.task(world.driver(topic=fresh_name("elsewhere")), 0, 1, "c")
    world.committer().commit(world.batch(world.driver(), 0, "a b", "c"), 0)
    assert world.output() == ABC


def test_s2_tasks_of_a_batch_write_carry_nothing_of_the_complete_ones_before(world: SinkWorld) -> None:
    world.committer().commit(world.batch(world.driver(), 0, "a b", "c"), 0)
    given = {"kafka.bootstrap.servers": world.bootstrap, "topic": world.topic, "sink.id": world.sink}
    writer = OttlaWriter(sink_options({**given, "queryId": "another", "batchId": "0"}), SCHEMA, False)
    message = writer._sink.write(BatchKey("another", 0), 0, iter([]))
    assert message.report is not None and message.report.claim.past == {}


def test_s2_batch_writes_without_query_id_do_not_make_the_ledger_grow(
    world: SinkWorld, fresh_name: Callable[[str], str]
) -> None:
    options = {"kafka.bootstrap.servers": world.bootstrap, "topic": world.topic, "sink.id": world.sink}
    options["ledger.topic"] = ledger = fresh_name("ledger")
    for _ in range(3):
        writer = OttlaWriter(sink_options(options), SCHEMA, False)
        messages = [world.task(writer._sink, writer._key.batch, slot, "a", query=UNNAMED) for slot in range(2)]
        writer.commit(messages)
        assert len(world.live_keys(ledger)) == 4  # decision, done, two slots
    for query in ("x", "y"):
        writer = OttlaWriter(sink_options({**options, "queryId": query, "batchId": "0"}), SCHEMA, False)
        writer.commit([world.task(writer._sink, 0, 0, "b", query=query)])
    assert world.output() == Counter(a=6, b=2)
    kinds = Counter((key["query"], key["kind"]) for key in map(json.loads, world.live_keys(ledger)))
    last = {("y", "decision"): 1, ("y", "done"): 1, ("y", "slot"): 1}
    assert kinds == {(UNNAMED, "decision"): 1, ("x", "decision"): 1, ("x", "done"): 1, ("x", "slot"): 1, **last}
    for query, batch in ((UNNAMED, 2), ("x", 0), ("y", 0)):
        replay = world.task(world.driver(**{"ledger.topic": ledger}), batch, 0, "other", query=query)
        assert replay.report is not None and replay.report.task is SlotTask.SKIP


def test_s2_a_new_query_may_follow_through_the_same_sink(world: SinkWorld) -> None:
    world.committer().commit(world.batch(world.driver(), 5, "a b"), 5)
    driver = world.driver()
    driver.write(BatchKey("another", 0), 0, iter([]))
    assert world.output() == Counter(["a", "b"])


def test_s2_a_transaction_time_that_the_broker_does_not_allow_is_an_option_that_is_wrong(world: SinkWorld) -> None:
    with pytest.raises(
        ConfigError, match=r"kafka\.transaction\.timeout\.ms 2000000000 .* transaction\.max\.timeout\.ms"
    ):
        world.driver(**{"kafka.transaction.timeout.ms": "2000000000"})


def test_s2_a_ledger_with_several_partitions_is_refused(world: SinkWorld, fresh_name: Callable[[str], str]) -> None:
    name = fresh_name("ledger")
    with Admin({"bootstrap.servers": world.bootstrap}) as admin:
        admin.create_topics([NewTopic(name, 2, 1)])
    with pytest.raises(ConfigError, match="must have exactly one partition"):
        world.driver(**{"ledger.topic": name})


def test_s2_at_least_once_writes_at_once(world: SinkWorld) -> None:
    driver = world.driver(semantics="at-least-once")
    assert world.task(driver, 0, 0, "a b c").rows == 3
    assert world.output() == ABC
    driver.commit([None], 0)
    driver.abort([None])
