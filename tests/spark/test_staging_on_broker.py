"""`atomicity=batch` on our broker and on Apache Kafka: tasks stage, the driver copies, in one transaction."""

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from ottla import Admin, AlterConfig, ConfigResource, NewTopic, ResourceType
from ottla.base.errors import ConfigError
from ottla.base.types import TopicPartition
from ottla.client.config.admin import admin_config
from ottla.client.errors import RequestTimeoutError
from ottla.client.net.cluster import Cluster
from ottla.spark import staging
from ottla.spark.errors import InDoubtError, PipelineError, SinkFencedError
from ottla.spark.ids import driver_id, other_staging_topic, staging_topic
from ottla.spark.ledger import Plan
from ottla.spark.ledger_io import LedgerKafka
from ottla.spark.link import KafkaLink, link
from ottla.spark.options import sink_options
from ottla.spark.pipeline import planned
from ottla.spark.requests import CopyStaged
from ottla.spark.staged import Staged, StagedAt
from ottla.wire.apis import ApiKey
from tests.spark.brokers import on_either_broker
from tests.spark.sink_world import QUERY, SinkWorld, commit_until, ends_driver, ends_slots

pytestmark = on_either_broker

WHOLE = {"atomicity": "batch"}
#: Two words of this size go to the staging topic, one still travels in the report.
LONG = staging.INLINE_BYTES * 2 // 3


def long(letter: str, words: int = 3) -> str:
    return " ".join(letter * LONG for _ in range(words))


def staged_records(world: SinkWorld) -> int:
    """How many records the staging topic holds; 0 without a topic."""
    topic = staging_topic(world.sink)
    with Admin({"bootstrap.servers": world.bootstrap}) as admin:
        if topic not in {each.name for each in admin.list_topics(internal=True)}:
            return 0
        tps = [TopicPartition(topic, each.partition) for each in admin.describe_topics([topic])[topic].partitions]
        first, last = (admin.list_offsets(dict.fromkeys(tps, time)) for time in (-2, -1))
    return sum(last[tp].offset - first[tp].offset for tp in tps)


def copies(request: object) -> bool:
    return isinstance(request, CopyStaged)


def test_s2_few_rows_need_no_topic_and_no_transaction_of_a_slot(world: SinkWorld) -> None:
    world.plan(0, 3, "g")
    messages = world.batch(world.driver(**WHOLE, **{"kafka.compression.type": "lz4"}), 0, "a", "", "b c")
    assert world.open_transactions() == []
    world.committer(**WHOLE).commit(messages, 0)
    assert world.output() == Counter("abc")
    assert world.group_offset("g") == 3
    world.committer(**WHOLE).commit(messages, 0)  # commit() runs twice
    world.committer(**WHOLE).commit(world.batch(world.driver(**WHOLE), 0, "x", "y", "z"), 0)  # a replay is skipped
    assert world.output() == Counter("abc")
    assert staged_records(world) == 0


def test_s2_many_rows_go_by_the_staging_topic_and_are_deleted_there(world: SinkWorld) -> None:
    driver = world.driver(**WHOLE)
    lost = world.task(driver, 0, 0, long("x"))  # an attempt that Spark does not take, as after a failure
    world.plan(0, 3, "g")
    messages = world.batch(driver, 0, long("a"), long("b", 4), "c")
    assert lost.report is not None and lost.report.staged is not None
    assert staged_records(world) == 3
    world.committer(**WHOLE).commit(messages, 0)
    assert world.output() == Counter({"a" * LONG: 3, "b" * LONG: 4, "c": 1})
    assert staged_records(world) == 0


@pytest.mark.parametrize("where", [copies, ends_driver])
def test_s2_a_driver_that_dies_before_its_end_leaves_nothing(world: SinkWorld, where: Callable[[object], bool]) -> None:
    driver = world.driver(**WHOLE)
    world.plan(0, 3, "g")
    plan = Plan(planned(str(world.checkpoint), 0, None).digest, world.topic)
    commit_until(world.committer(**WHOLE), world.batch(driver, 0, long("a"), "b"), where, plan)
    assert world.open_transactions() == ([driver_id(world.sink)] if where is ends_driver else [])
    assert world.driver(**WHOLE).claim is not None
    assert world.output() == Counter()
    world.committer(**WHOLE).commit(world.batch(world.driver(**WHOLE), 0, "y", "z"), 0)
    assert world.output() == Counter("yz")


class _NoDeletion(Cluster):
    """Nobody answers a DeleteRecords in time."""

    async def request(self, node_id: int, api: ApiKey, message: tuple[Any, ...], **how: Any) -> Any:
        if api is ApiKey.DELETE_RECORDS:
            raise RequestTimeoutError("DeleteRecords: no answer")
        return await super().request(node_id, api, message, **how)


def test_s2_what_was_copied_and_cannot_be_deleted_is_no_error(world: SinkWorld) -> None:
    config = {"bootstrap.servers": world.bootstrap}
    kafka = KafkaLink(config, cluster=_NoDeletion(admin_config(config), random.Random()))
    try:
        kafka.run(staging.forget_staged(kafka, [Staged((), StagedAt(world.topic, 0, "a", 0, 0, 1))]))
    finally:
        kafka.shut()


def test_s2_a_driver_that_was_replaced_writes_nothing(world: SinkWorld) -> None:
    zombie = world.batch(world.driver(**WHOLE), 0, long("a"), "b")
    world.plan(0, 3, "g")
    world.committer(**WHOLE).commit(world.batch(world.driver(**WHOLE), 0, "y", "z"), 0)
    with pytest.raises(SinkFencedError):
        world.committer(**WHOLE).commit(zombie, 0)
    world.committer(**WHOLE).abort(zombie)
    assert world.output() == Counter("yz")
    assert world.open_transactions() == []


def test_s2_a_batch_that_fails_while_it_is_copied_is_aborted(world: SinkWorld) -> None:
    """The staged rows are gone: retention, or somebody has deleted them."""
    world.plan(0, 3, "g")
    messages = world.batch(world.driver(**WHOLE), 0, "a", long("b"))
    with Admin({"bootstrap.servers": world.bootstrap}) as admin:
        admin.delete_topics([staging_topic(world.sink)])
        while staging_topic(world.sink) in {each.name for each in admin.list_topics(internal=True)}:
            pass
        admin.create_topics([NewTopic(staging_topic(world.sink), 6)])
    with pytest.raises(PipelineError):
        world.committer(**WHOLE).commit(messages, 0)
    world.committer(**WHOLE).abort(messages)
    assert world.open_transactions() == []
    world.committer(**WHOLE).commit(world.batch(world.driver(**WHOLE), 0, "y"), 0)
    assert world.output() == Counter("y")


def test_s2_sinks_whose_names_are_one_to_kafka_stage_apart(world: SinkWorld) -> None:
    """Kafka takes no topic whose name differs from another's in `.` and `_` alone."""
    for batch, words in enumerate(("ab", "cd")):
        for sink, word in zip((f"{world.topic}.x", f"{world.topic}_x"), words, strict=True):
            options = {**WHOLE, "sink.id": sink}
            world.plan(batch, 3, "g")
            driver = world.driver(**options)
            link(driver.options.client).memory.pop(("staging topic", sink), None)  # as in another process
            world.committer(**options).commit(world.batch(driver, batch, long(word)), batch)
    assert world.output() == Counter({letter * LONG: 3 for letter in "abcd"})
    with Admin({"bootstrap.servers": world.bootstrap}) as admin:
        staged = {each.name for each in admin.list_topics(internal=True) if each.name.startswith("__ottla_staging.")}
    other = other_staging_topic(f"{world.topic}_x")
    assert {name for name in staged if world.topic in name} == {staging_topic(f"{world.topic}.x"), other}


def test_s2_a_topic_that_takes_only_small_batches_gets_halves(world: SinkWorld) -> None:
    with Admin({"bootstrap.servers": world.bootstrap}) as admin:
        resource = ConfigResource(ResourceType.TOPIC, world.topic)
        admin.incremental_alter_configs({resource: [AlterConfig("max.message.bytes", "20000")]})
    world.plan(0, 3, "g")
    word = "w" * 1_000
    messages = world.batch(world.driver(**WHOLE), 0, " ".join([word] * 100))
    world.committer(**WHOLE).commit(messages, 0)
    assert world.output() == Counter({word: 100})


def test_s2_a_batch_half_committed_by_slots_is_completed_whole(world: SinkWorld) -> None:
    driver = world.driver()
    world.plan(0, 3, "g")
    plan = Plan(planned(str(world.checkpoint), 0, None).digest, world.topic)
    commit_until(world.committer(), world.batch(driver, 0, "a", "b", "c"), ends_slots, plan)
    with Admin({"bootstrap.servers": world.bootstrap}) as admin:
        admin.fence_producers([f"__ottla/{world.sink}/slot-1"])
    again = world.driver(**WHOLE)
    with pytest.raises(InDoubtError):
        world.batch(again, 0, "x", "b", "c")
    world.committer(**WHOLE).commit(world.batch(again, 0, "a", "b", "c"), 0)
    assert world.output() == Counter("abc")


def test_s2_what_contradicts_it_is_refused(bootstrap: str) -> None:
    given = {"kafka.bootstrap.servers": bootstrap, "topic": "t", "sink.id": "s", **WHOLE}
    with pytest.raises(ConfigError, match="needs semantics=exactly-once"):
        sink_options({**given, "semantics": "at-least-once"})
    with pytest.raises(ConfigError, match="leave the option out"):
        sink_options({**given, "two.phase.commit": "required"})


def test_s2_the_ledger_says_complete_in_one_transaction(world: SinkWorld) -> None:
    world.plan(0, 3, "g")
    sink = world.committer(**WHOLE)
    sink.commit(world.batch(world.driver(**WHOLE), 0, "a", "b"), 0)
    world.settle()
    kafka = link(sink.options.client)
    ledgers = kafka.run(LedgerKafka(kafka, "", sink.options.ledger_topic, 1, 60_000).read_all())
    assert (ledgers.of[world.sink].undone(), ledgers.of[world.sink].past()[QUERY].complete) == ([], 0)
