"""SPEC S1 on a real broker: the source's driver and tasks are called as Spark does, while topics change under them."""

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from pyspark.sql.streaming.datasource import ReadMaxRows

from ottla import Admin, Producer
from ottla.base.errors import ConfigError
from ottla.base.types import TopicPartition
from ottla.client.core.offsets import OffsetAndMetadata
from ottla.spark.errors import DataLossError, OpenTransactionError, PipelineError
from ottla.spark.link import KafkaLink
from ottla.spark.options import source_options
from ottla.spark.plan import Range, SourceOffset
from ottla.spark.range_reader import Wanted, read_ranges
from ottla.spark.topics import Topics
from tests.spark.source_world import ALL, ROWS, World, batch_values, next_batch, restored, values
from tests.spark.throttled_link import throttled_link


@pytest.fixture
def world(bootstrap: str, fresh_name: Callable[[str], str]) -> World:
    made = World(bootstrap, fresh_name("source"))
    made.make(5)
    return made


def test_s1_a_batch_read_of_nothing_is_empty(world: World, fresh_name: Callable[[str], str]) -> None:
    empty = World(world.bootstrap, fresh_name("empty"))
    empty.make(0)
    assert batch_values(empty.reader()) == []
    assert batch_values(empty.reader(subscribePattern="nothing-is-called-so")) == []


def test_s1_a_pattern_reads_no_ledger_and_a_name_does(world: World) -> None:
    ledger = World(world.bootstrap, f"__ottla_ledger.of-{world.topic}")
    ledger.make(1)
    reader = world.reader(subscribePattern=f".*{world.topic}")
    assert batch_values(reader) == world.rows(range(5), range(5))
    assert batch_values(ledger.reader()) == ledger.rows(range(1), range(1))


def test_s1_an_internal_topic_is_read_by_its_name_and_by_no_pattern(
    world: World, fresh_name: Callable[[str], str]
) -> None:
    with Admin({"bootstrap.servers": world.bootstrap}) as admin:
        admin.alter_group_offsets(fresh_name("group"), {TopicPartition(world.topic, 0): OffsetAndMetadata(3)})
    offsets = World(world.bootstrap, "__consumer_offsets")
    all_of_it = sorted(offsets.stream().initialOffset()["to"][offsets.topic], key=int)
    assigned = json.dumps({offsets.topic: [int(p) for p in all_of_it]})
    for which in ({"subscribe": offsets.topic}, {"assign": assigned}):
        reader = offsets.reader(**which)
        assert sum(batch.num_rows for each in reader.partitions() for batch in reader.read(each)) > 0
    assert offsets.reader(subscribePattern="^__consumer_offsets$").partitions() == []


@pytest.mark.parametrize("by_pattern", [True, False])
def test_s1_a_read_sees_what_was_made_since_the_last_one(
    world: World, fresh_name: Callable[[str], str], by_pattern: bool
) -> None:
    """The process keeps its link. What that knows of topics may be five minutes old."""
    prefix = fresh_name("since")
    first, second = World(world.bootstrap, f"{prefix}.1"), World(world.bootstrap, f"{prefix}.2")
    which = {"subscribePattern": f"{prefix}.*"} if by_pattern else {"subscribe": first.topic}
    first.make(1)
    assert batch_values(first.reader(**which)) == ["0.0", "1.0"]
    assert first.stream(**which).initialOffset()["to"] == {first.topic: {"0": 0, "1": 0}}
    second.make(1)
    with Admin({"bootstrap.servers": world.bootstrap}) as admin:
        admin.create_partitions({first.topic: 3})
    with Producer({"bootstrap.servers": world.bootstrap}) as producer:
        producer.send(first.topic, b"2.0", partition=2)
    assert batch_values(first.reader(**which)) == sorted(["0.0", "1.0", "2.0", *(["0.0", "1.0"] if by_pattern else [])])
    begins = {first.topic: {"0": 0, "1": 0, "2": 0}, **({second.topic: {"0": 0, "1": 0}} if by_pattern else {})}
    assert first.stream(**which).initialOffset()["to"] == begins


def test_s1_bounds_by_offset(world: World) -> None:
    reader = world.reader(startingOffsets=world.json(1, -2), endingOffsets=world.json(3, -1))
    assert batch_values(reader) == world.rows(range(1, 3), range(5))
    only_one = json.dumps({world.topic: {"0": 4}})
    assert batch_values(world.reader(startingOffsets=only_one)) == world.rows(range(4, 5), range(5))
    assert batch_values(world.reader(endingOffsets=only_one)) == world.rows(range(4), range(5))
    with pytest.raises(ConfigError, match=r"startingOffsets can't be latest \(-1\) for batch reads"):
        world.reader(startingOffsets=world.json(1, -1))


def test_s1_bounds_by_time(world: World) -> None:
    strategy = "startingOffsetsByTimestampStrategy"
    late = world.reader(startingTimestamp=1003)
    assert batch_values(late) == world.rows(range(3, 5), range(5))
    with pytest.raises(
        ConfigError, match=f"{world.topic}-0 holds no record at or after 2003; set {strategy} to latest"
    ):
        world.reader(startingTimestamp=2003).partitions()
    assert batch_values(world.reader(startingTimestamp=2003, **{strategy: "latest"})) == world.rows(
        range(0), range(3, 5)
    )
    assert batch_values(world.reader(endingTimestamp=2003)) == world.rows(range(5), range(3))
    only_one = json.dumps({world.topic: {"0": 1002}})
    assert batch_values(world.reader(startingOffsetsByTimestamp=only_one)) == world.rows(range(2, 5), range(5))
    assert batch_values(world.reader(endingOffsetsByTimestamp=only_one)) == world.rows(range(2), range(5))


@pytest.mark.parametrize("names", ['{"TOPIC":[0,9]}', '{"TOPIC":[9]}'])
def test_s1_an_assigned_partition_must_exist(world: World, names: str) -> None:
    wrong = names.replace("TOPIC", world.topic)
    message = f"assign names partition 9 of topic {world.topic}, which does not exist"
    with pytest.raises(ConfigError, match=message):
        world.reader(assign=wrong).partitions()
    with pytest.raises(ConfigError, match=message):
        world.stream(assign=wrong).initialOffset()
    before = world.stream(assign=json.dumps({world.topic: [0]})).initialOffset()
    with pytest.raises(ConfigError, match=message):
        world.stream(assign=wrong).latestOffset(before, ALL)


def test_s1_a_topic_must_exist(bootstrap: str, fresh_name: Callable[[str], str]) -> None:
    missing = World(bootstrap, fresh_name("missing"))
    with pytest.raises(ConfigError, match=f"topic {missing.topic} does not exist"):
        missing.stream().initialOffset()


def test_s1_bounds_that_contradict_are_refused(world: World) -> None:
    with pytest.raises(ConfigError, match=f"the read of {world.topic}-0 would begin at offset 4, after its end at 2"):
        world.reader(startingOffsets=world.json(4, 0), endingOffsets=world.json(2, 5)).partitions()
    elsewhere = '{"elsewhere":{"0":1}}'
    for option in ("startingOffsets", "endingOffsets", "startingOffsetsByTimestamp"):
        with pytest.raises(ConfigError, match=f"{option} names partition 0 of topic elsewhere"):
            world.reader(**{option: elsewhere}).partitions()
    with pytest.raises(ConfigError, match="startingOffsets names partition 0 of topic elsewhere"):
        world.stream(startingOffsets=elsewhere).initialOffset()


def test_s1_a_bound_outside_the_log_is_a_loss(world: World) -> None:
    beyond = world.json(0, 99)
    message = f"Offsets: offset 99 of {world.topic}-1 is not in the log, which holds 0 to 5"
    for options in ({"startingOffsets": beyond, "endingOffsets": beyond}, {"endingOffsets": beyond}):
        with pytest.raises(DataLossError, match=message):
            world.reader(**options).partitions()
    with pytest.raises(DataLossError, match="starting" + message):
        world.stream(startingOffsets=beyond).initialOffset()
    accepted = world.reader(endingOffsets=beyond, failOnDataLoss=False)
    assert batch_values(accepted) == world.rows(range(0), range(5))
    stream = world.stream(startingOffsets=beyond, failOnDataLoss=False)
    assert next_batch(stream, stream.initialOffset())[1] == world.rows(range(5), range(0))


class Growing(KafkaLink):
    """A link to a topic that gets three records to a partition after each question where it ends."""

    world: World

    async def offsets_at(self, times: Mapping[TopicPartition, int], *, committed: bool) -> dict[TopicPartition, int]:
        """The answer, and then the records."""
        found = await super().offsets_at(times, committed=committed)
        await asyncio.to_thread(self.world.fill, 3)
        return found


class GrowingTopics(Topics):
    """The partitions of a `Growing` link."""

    growing: Growing

    @property
    def kafka(self) -> KafkaLink:
        """The link."""
        return self.growing


def test_s1_a_log_that_grows_while_its_ends_are_asked_has_no_open_transaction(world: World) -> None:
    options = source_options({"kafka.bootstrap.servers": world.bootstrap, "subscribe": world.topic}, streaming=False)
    topics = GrowingTopics(options)
    topics.growing = Growing(options.kafka)
    topics.growing.world = world
    try:
        there = topics.there(as_of_now=True).partitions
        assert len(there) == 2
        for offset in (7, 11):  # the log ended at 5 before, and then at 8
            topics.require_stable("endingOffsets", dict.fromkeys(there, offset))
    finally:
        topics.growing.shut()


def test_s1_a_bound_behind_an_open_transaction_names_it(world: World) -> None:
    behind = world.json(5, 7)
    stands = f"Offsets: offset 7 of {world.topic}-1 lies behind an open transaction, {world.topic}-tx, which holds back"
    readers = (
        {"startingOffsets": behind},
        {"endingOffsets": behind},
        {"endingOffsets": behind, "failOnDataLoss": False},
    )
    with Producer({"bootstrap.servers": world.bootstrap, "transactional.id": f"{world.topic}-tx"}) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        for n in range(5, 8):
            producer.send(world.topic, f"1.{n}".encode(), partition=1).result(10)
        for options in readers:
            with pytest.raises(OpenTransactionError, match=f"{stands} readers of committed records at offset 5"):
                world.reader(**options).partitions()
        with pytest.raises(OpenTransactionError, match="starting" + stands):
            world.stream(startingOffsets=behind).initialOffset()
        dirty = world.reader(endingOffsets=behind, kafka__isolation__level="read_uncommitted")
        assert batch_values(dirty) == world.rows(range(5), range(7))
        producer.commit_transaction()
    assert batch_values(world.reader(endingOffsets=behind)) == world.rows(range(5), range(7))


@contextmanager
def open_transaction(world: World) -> Iterator[Producer]:
    """Three open records in partition 1, and two of another producer behind them: the log ends at 10, committed
    records end at 5."""
    with Producer({"bootstrap.servers": world.bootstrap, "transactional.id": f"{world.topic}-tx"}) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        for n in range(5, 8):
            producer.send(world.topic, f"1.{n}".encode(), partition=1).result(10)
        with Producer({"bootstrap.servers": world.bootstrap}) as other:
            for n in range(8, 10):
                other.send(world.topic, f"1.{n}".encode(), partition=1).result(10)
        yield producer


@pytest.mark.parametrize("fails", [True, False])
@pytest.mark.parametrize("adopted", [True, False])
def test_s1_what_was_read_behind_an_open_transaction_is_not_read_again(
    world: World, adopted: bool, fails: bool
) -> None:
    """By Spark's own connector, or by ours with another kafka.isolation.level."""
    stands = f"the checkpoint: offset 10 of {world.topic}-1 lies behind an open transaction, {world.topic}-tx, which"
    with open_transaction(world) as producer:
        dirty = world.stream(kafka__isolation__level="read_uncommitted")
        read = dirty.latestOffset(dirty.initialOffset(), ALL)
        read = {world.topic: {"0": 5, "1": 10}} if adopted else restored(read)
        stream = world.stream(failOnDataLoss=fails)
        for _ in range(2):
            with pytest.raises(OpenTransactionError, match=f"{stands} holds back readers of .* 5 .the log ends at 10"):
                stream.latestOffset(read, ALL)
        producer.commit_transaction()
    while stream.latestOffset(read, ALL).get("to") != {world.topic: {"0": 5, "1": 11}}:
        pass  # the marker is written behind the answer to EndTxn
    world.fill(1, first=11)
    assert next_batch(world.stream(failOnDataLoss=fails), read)[1] == ["0.11", "1.11"]


@pytest.mark.parametrize("fails", [True, False])
def test_s1_a_plan_that_ends_behind_an_open_transaction_loses_nothing(world: World, fails: bool) -> None:
    """It was made with kafka.isolation.level=read_uncommitted, and is run again without."""
    with open_transaction(world) as producer:
        dirty = world.stream(kafka__isolation__level="read_uncommitted")
        start = dirty.initialOffset()
        end = restored(dirty.latestOffset(start, ALL))
        stream = world.stream(failOnDataLoss=fails, kafka__fetch__max__wait__ms=1)
        with pytest.raises(OpenTransactionError, match=f"offset 10 of {world.topic}-1 lies behind an open transaction"):
            values(stream, stream.partitions(start, end))
        producer.commit_transaction()
    assert values(stream, stream.partitions(start, end)) == world.rows(range(5), range(10))


def test_s1_a_stream_reads_everything_once(world: World) -> None:
    stream = world.stream(kafka__group__id="g")
    start = stream.initialOffset()
    end, first = next_batch(stream, start, ReadMaxRows(4))
    assert first == world.rows(range(2), range(2))
    again = world.stream()
    assert values(again, again.partitions(start, restored(end))) == first
    end, second = next_batch(again, restored(end))
    assert second == world.rows(range(2, 5), range(2, 5))
    assert again.latestOffset(end, ALL) is end


def test_s1_available_now_ends_at_what_was_there(world: World) -> None:
    stream = world.stream()
    start = stream.initialOffset()
    stream.prepareForTriggerAvailableNow()
    world.fill(3, first=5)
    end, read = next_batch(stream, start)
    assert read == world.rows(range(5), range(5))
    assert stream.latestOffset(end, ALL) is end
    assert next_batch(world.stream(), end)[1] == world.rows(range(5, 8), range(5, 8))


@pytest.mark.parametrize("available_now", [False, True])
@pytest.mark.parametrize("records", [3, 9])
def test_s1_a_topic_made_anew_is_a_loss_and_read_from_its_beginning(
    world: World, records: int, available_now: bool
) -> None:
    stream = world.stream()
    end, _ = next_batch(stream, stream.initialOffset())
    world.delete()
    world.make(records)
    for accepted in (False, True):
        stream = world.stream(failOnDataLoss=not accepted, kafka__client__id="another process")
        if available_now:
            stream.prepareForTriggerAvailableNow()
        if accepted:
            after, read = next_batch(stream, restored(end))
            assert read == world.rows(range(records), range(records))
            assert stream.latestOffset(after, ALL) is after
        else:
            with pytest.raises(DataLossError, match=f"{world.topic}-0 was read up to 5, then made anew"):
                stream.latestOffset(restored(end), ALL)


@pytest.mark.parametrize("available_now", [False, True])
def test_s1_deleted_records_are_a_loss(world: World, available_now: bool) -> None:
    start = world.stream().initialOffset()
    world.forget(3)
    for accepted in (False, True):
        stream = world.stream(failOnDataLoss=not accepted)
        if available_now:
            stream.prepareForTriggerAvailableNow()
        if accepted:
            assert next_batch(stream, start)[1] == world.rows(range(3, 5), range(5))
        else:
            with pytest.raises(DataLossError, match="begins at 3 now; offset 0 was to be read next"):
                stream.latestOffset(start, ALL)


def test_s1_records_deleted_after_they_were_planned_are_a_loss(world: World) -> None:
    for accepted in (False, True):
        stream = world.stream(failOnDataLoss=not accepted)
        start = stream.initialOffset()
        planned = stream.partitions(start, stream.latestOffset(start, ALL))
        world.forget(4 if accepted else 2)
        if accepted:
            assert values(stream, planned) == world.rows(range(4, 5), range(5))
        else:
            with pytest.raises(DataLossError, match=f"offset 0 of {world.topic}-0 is not in the log any more"):
                values(stream, planned)


@pytest.mark.parametrize("remade", [False, True])
def test_s1_a_planned_range_is_never_read_from_another_topic_of_that_name(world: World, remade: bool) -> None:
    lenient, strict = world.stream(failOnDataLoss=False), world.stream()
    start = strict.initialOffset()
    end = strict.latestOffset(start, ALL)
    assert len(values(strict, strict.partitions(start, end))) == 10
    world.delete()
    if remade:
        world.make(9)
    with pytest.raises(DataLossError, match="was deleted and made again" if remade else "is gone"):
        values(strict, strict.partitions(start, end))
    assert values(lenient, lenient.partitions(start, end)[:1]) == []


def test_s1_a_topic_that_is_deleted_under_a_query_is_a_loss(world: World) -> None:
    stream = world.stream()
    end, _ = next_batch(stream, stream.initialOffset())
    world.delete()
    with pytest.raises(DataLossError, match=f"partition {world.topic}-0 is gone; offset 5 was to be read next"):
        world.stream().latestOffset(end, ALL)
    assert world.stream(failOnDataLoss=False).latestOffset(end, ALL) is end


def test_s1_a_topic_made_again_under_a_query_is_found_without_waiting_for_metadata_to_age(world: World) -> None:
    stream = world.stream(failOnDataLoss=False)
    end, _ = next_batch(stream, stream.initialOffset())
    world.delete()
    assert world.stream(failOnDataLoss=False).latestOffset(end, ALL) is end
    world.make(3)
    after = end
    while after is end:
        after = world.stream(failOnDataLoss=False).latestOffset(end, ALL)
    assert values(stream, stream.partitions(end, after)) == world.rows(range(3), range(3))


def test_s1_a_checkpoint_of_spark_s_own_connector_is_taken_up(world: World) -> None:
    committed, planned = ({world.topic: {"0": at, "1": at + 1}} for at in (1, 3))
    stream = world.stream(startingOffsets="latest", kafka__group__id="g")
    assert values(stream, stream.partitions(committed, planned)) == world.rows(range(1, 3), range(2, 4))
    end, rows = next_batch(stream, planned)
    assert rows == world.rows(range(3, 5), range(4, 5))
    assert (end["from"], end["to"], end["group"]) == (planned, {world.topic: {"0": 5, "1": 5}}, "g")
    later = world.stream()
    assert values(later, later.partitions(restored(planned), restored(end))) == rows


def test_s1_a_partition_that_spark_s_own_connector_has_found_last_is_read_from_its_beginning(world: World) -> None:
    stream = world.stream()
    committed, planned = {world.topic: {"0": 1}}, {world.topic: {"0": 2, "1": 2}}
    assert values(stream, stream.partitions(committed, planned)) == world.rows(range(1, 2), range(2))


def test_s1_what_of_a_foreign_checkpoint_cannot_be_taken_up_is_told(world: World) -> None:
    stream = world.stream()
    with pytest.raises(PipelineError, match=r"first micro-batch is not committed.*format\("):
        stream.partitions(stream.initialOffset(), {world.topic: {"0": 2, "1": 2}})
    world.forget(4)
    with pytest.raises(DataLossError, match="begins at 4 now; offset 1 was to be read next"):
        stream.partitions({world.topic: {"0": 1}}, {world.topic: {"0": 5}})


#: Least offsets and longest wait; eight records are left after the first micro-batch.
_WAITS = ((9, "15m"), (8, "15m"), (9, "0s"))


def test_s1_a_micro_batch_waits_for_its_least_size(world: World) -> None:
    """All but the first one after a start, as in Spark's connector."""
    streams = [world.stream(minOffsetsPerTrigger=least, maxTriggerDelay=delay) for least, delay in _WAITS]
    patient, enough, impatient = streams
    for stream in streams:
        end, rows = next_batch(stream, stream.initialOffset(), ReadMaxRows(3))
        assert rows == world.rows(range(1), range(1))
    assert patient.latestOffset(end, ALL) is end
    for stream in (enough, impatient):
        assert next_batch(stream, end)[1] == world.rows(range(1, 5), range(1, 5))


def test_s1_a_fetch_that_a_quota_puts_off_is_asked_again_and_no_loss(world: World) -> None:
    options = source_options({"kafka.bootstrap.servers": world.bootstrap, "subscribe": world.topic}, streaming=False)
    kafka = throttled_link(options.kafka)
    try:
        batches = read_ranges(kafka, options, ROWS, [Wanted(Range(TopicPartition(world.topic, 0), 0, 5), None)])
        assert [v.decode() for batch in batches for v in batch.column("value").to_pylist()] == world.rows(
            range(5), range(0)
        )
    finally:
        kafka.shut()


def test_s1_the_source_commits_its_groups_offsets_for_other_sinks(
    world: World, fresh_name: Callable[[str], str]
) -> None:
    group = fresh_name("group")
    stream = world.stream(kafka__group__id=group, commitOffsets="source")
    end, _ = next_batch(stream, stream.initialOffset())
    stream.commit(end)
    with Admin({"bootstrap.servers": world.bootstrap}) as admin:
        committed = admin.list_group_offsets(group)
    assert {tp: at.offset for tp, at in committed.items()} == {TopicPartition(world.topic, p): 5 for p in range(2)}


def test_s1_it_commits_none_for_a_topic_that_is_gone(world: World, fresh_name: Callable[[str], str]) -> None:
    group, gone = fresh_name("group"), TopicPartition(fresh_name("gone"), 0)
    stream = world.stream(kafka__group__id=group, commitOffsets="source")
    end, _ = next_batch(stream, stream.initialOffset())
    planned = SourceOffset.from_json(end)
    stream.commit(planned._replace(end={**planned.end, gone: 3}).to_json())
    with Admin({"bootstrap.servers": world.bootstrap}) as admin:
        assert {tp.topic for tp in admin.list_group_offsets(group)} == {world.topic}


def test_s1_partitions_with_few_records_share_a_task(world: World) -> None:
    """Unless the query says what it wants: then it is as with Spark's connector."""
    shares = world.reader().partitions()
    assert [[(each.range.tp.partition, each.range.size) for each in task.wanted] for task in shares] == [
        [(0, 5), (1, 5)]
    ]
    for options in ({"minRecordsPerPartition": 5}, {"minPartitions": 1}, {"maxRecordsPerPartition": 9}):
        assert len(world.reader(**options).partitions()) == 2
    assert len(world.reader(maxRecordsPerPartition=2).partitions()) == 6
    batches = list(world.reader().read(shares[0]))
    assert [v.decode() for batch in batches for v in batch.column("value").to_pylist()] == world.rows(
        range(5), range(5)
    )
    assert len(batches) == 1, "for each batch costs Spark some time"


def test_s1_a_replay_has_the_tasks_that_were_planned(world: World) -> None:
    """The options may be others by then: the exactly-once sink then finds the slots that it has written."""
    stream = world.stream()
    start = stream.initialOffset()
    planned = restored(stream.latestOffset(start, ALL))
    assert len(stream.partitions(start, planned)) == 1
    assert len(world.stream(minRecordsPerPartition=1).partitions(start, planned)) == 1
    assert len(world.stream(maxRecordsPerPartition=2).partitions(start, planned)) == 1
    del planned["tasks"]  # as it was before it was kept
    assert len(stream.partitions(start, planned)) == 2
