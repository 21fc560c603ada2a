"""A leader that was deposed and does not know it: the source neither skips nor repeats what it says is not there."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from pyspark.sql.datasource import GreaterThanOrEqual

from ottla.base.types import TopicPartition
from ottla.spark.errors import DataLossError
from ottla.spark.link import KafkaLink
from ottla.spark.options import SourceOptions, source_options
from ottla.spark.plan import Range, SourceOffset
from ottla.spark.range_reader import Wanted, read_ranges
from ottla.spark.source import OttlaReader, OttlaStreamReader
from ottla.spark.topics import Topics
from tests.spark.deposed_link import DeposedLeader, deposed_link
from tests.spark.source_world import ALL, ROWS, World, restored, values

_ACCEPTED = pytest.mark.parametrize("fails", [True, False])


class Query:
    """A query of the world's topic, over a link to a leader that can be deposed."""

    def __init__(self, world: World, *, streaming: bool = True, **options: Any) -> None:
        given = {"kafka.bootstrap.servers": world.bootstrap, "subscribe": world.topic, "startingOffsets": "earliest"}
        given["kafka.retry.backoff.max.ms"] = given["kafka.fetch.max.wait.ms"] = "5"
        given["kafka.retry.backoff.ms"] = "1"
        given |= {name: str(value) for name, value in options.items()}
        self.options: SourceOptions = source_options(given, streaming=streaming)
        self.link: KafkaLink
        self.cluster: DeposedLeader
        self.link, self.cluster = deposed_link(self.options.kafka)
        self.tp = TopicPartition(world.topic, 0)
        self.topics = Topics(self.options, lambda: self.link)

    def stream(self) -> OttlaStreamReader:
        return OttlaStreamReader(self.options, ROWS, self.topics)

    def batch(self) -> OttlaReader:
        return OttlaReader(self.options, ROWS, self.topics)

    def read(self, start: int, end: int) -> list[str]:
        """What a task reads."""
        batches = read_ranges(self.link, self.options, ROWS, [Wanted(Range(self.tp, start, end), None)])
        return [value.decode() for batch in batches for value in batch.column("value").to_pylist()]


@pytest.fixture
def world(bootstrap: str, fresh_name: Callable[[str], str]) -> World:
    """Five records in each partition."""
    made = World(bootstrap, fresh_name("deposed"))
    made.make(5)
    return made


@pytest.fixture
def query(world: World) -> Iterator[Callable[..., Query]]:
    """Makes queries."""
    made: list[Query] = []

    def make(**options: Any) -> Query:
        made.append(Query(world, **options))
        return made[-1]

    yield make
    for each in made:
        each.link.shut()


@_ACCEPTED
@pytest.mark.parametrize("end", [1, 3])
def test_s1_a_task_reads_its_range_though_a_deposed_leader_ends_before_it(
    world: World, query: Callable[..., Query], end: int, fails: bool
) -> None:
    """It begins at offset 2: behind the end of the old leader's log, or before it."""
    task = query(failOnDataLoss=fails)
    task.cluster.depose({task.tp: end}, unaware=9)
    assert task.read(2, 5) == world.rows(range(2, 5), range(0))
    assert task.cluster.old_answers > 0


@_ACCEPTED
def test_s1_a_query_goes_on_though_a_deposed_leader_ends_before_what_was_read(
    world: World, query: Callable[..., Query], fails: bool
) -> None:
    driver = query(failOnDataLoss=fails)
    stream = driver.stream()
    first = stream.latestOffset(stream.initialOffset(), ALL)
    world.fill(1, first=5)
    driver.cluster.depose({driver.tp: 2}, unaware=5)
    end = SourceOffset.from_json(driver.stream().latestOffset(first, ALL))
    assert (end.start[driver.tp], end.end[driver.tp]) == (5, 6)
    assert driver.cluster.old_answers > 0


def test_s1_without_ids_what_was_read_is_not_repeated_because_a_deposed_leader_ends_before_it(
    world: World, query: Callable[..., Query]
) -> None:
    driver = query(failOnDataLoss=False)
    world.fill(1, first=5)
    driver.cluster.depose({driver.tp: 2}, unaware=5)
    old = {world.topic: {"0": 5, "1": 5}}  # of Spark's own connector: it knows no ids
    end = SourceOffset.from_json(driver.stream().latestOffset(old, ALL))
    assert end.start == {driver.tp: 5, TopicPartition(world.topic, 1): 5}


def test_s1_a_query_does_not_begin_earlier_than_it_was_told_because_a_deposed_leader_ends_there(
    world: World, query: Callable[..., Query]
) -> None:
    driver = query(failOnDataLoss=False, startingOffsets=world.json(4, 5))
    driver.cluster.depose({driver.tp: 2}, unaware=5)
    assert SourceOffset.from_json(driver.stream().initialOffset()).end[driver.tp] == 4


def test_s1_a_batch_read_does_not_end_earlier_than_it_was_told_because_a_deposed_leader_ends_there(
    world: World, query: Callable[..., Query]
) -> None:
    driver = query(streaming=False, failOnDataLoss=False, endingOffsets=world.json(4, 0))
    driver.cluster.depose({driver.tp: 2}, unaware=7)
    ranges = [each.range for task in driver.batch().partitions() for each in task.wanted]
    assert ranges == [Range(driver.tp, 0, 4)]


def test_s1_a_filter_by_time_leaves_out_no_records_that_a_deposed_leader_does_not_have(
    world: World, query: Callable[..., Query]
) -> None:
    driver = query(streaming=False, endingOffsets=world.json(5, 0))
    reader = driver.batch()
    reader.pushFilters([GreaterThanOrEqual(("timestamp",), datetime.fromtimestamp(1.003, UTC))])
    driver.link.run(driver.link.topics([world.topic], as_of_now=True))
    asked = reader._since
    driver.cluster.depose({driver.tp: 2}, unaware=1)
    start, _ = asked({driver.tp: 0}, {driver.tp: 5})
    assert driver.cluster.old_answers > 0
    assert start[driver.tp] <= 3


@_ACCEPTED
def test_s1_a_loss_that_stays_is_believed_when_metadata_cannot_be_older_and_only_doubted_once(
    world: World, query: Callable[..., Query], fails: bool
) -> None:
    driver = query(failOnDataLoss=fails)
    driver.link.doubt_s = 0.05
    stream = driver.stream()
    first = stream.latestOffset(stream.initialOffset(), ALL)
    driver.cluster.depose({driver.tp: 2}, unaware=1_000_000)
    stream = driver.stream()
    if fails:
        with pytest.raises(DataLossError, match=f"partition {world.topic}-0 ends at 2 but was read up to 5"):
            stream.latestOffset(first, ALL)
        with pytest.raises(DataLossError, match=f"offset 4 of {world.topic}-0 is not in the log any more"):
            driver.read(4, 5)
    else:
        moved = stream.latestOffset(first, ALL)
        assert moved["to"] == {world.topic: {"0": 2, "1": 5}}
        driver.link.doubt_s = 1_000_000.0
        assert stream.latestOffset(first, ALL) == moved
        driver.link.doubt_s = 0.05
        assert driver.read(4, 5) == []


def _cut(driver: Query, end: int) -> None:
    """For the query it is a log that lost its end: its leader stays the one that does not have it."""
    driver.link.doubt_s = 0.0
    driver.cluster.depose({driver.tp: end}, unaware=1_000_000)


def _moved(stream: OttlaStreamReader, read: dict[str, Any]) -> dict[str, Any]:
    """The batch after `read`. A driver asks Kafka only every 20 ms."""
    while (end := stream.latestOffset(read, stream.getDefaultReadLimit())) is read:
        pass
    return end


@pytest.mark.parametrize("available_now", [False, True])
@pytest.mark.parametrize("options", [{}, {"maxOffsetsPerTrigger": 1}, {"minOffsetsPerTrigger": 3}])
def test_s1_after_a_log_lost_its_end_nothing_that_comes_is_left_out(
    world: World, query: Callable[..., Query], options: dict[str, int], available_now: bool
) -> None:
    driver = query(failOnDataLoss=False, **options)
    stream = driver.stream()
    if available_now:
        stream.prepareForTriggerAvailableNow()
    first = stream.latestOffset(stream.initialOffset(), ALL)
    _cut(driver, 2)
    if available_now:
        stream = driver.stream()
        stream.prepareForTriggerAvailableNow()
    moved = restored(_moved(stream, first))
    assert (moved["from"], moved["to"]) == ({world.topic: {"0": 2, "1": 5}},) * 2
    assert stream.partitions(first, moved) == driver.stream().partitions(first, moved) == []
    assert stream.latestOffset(moved, ALL) is moved, "once"
    driver.cluster.ends = {}  # the log is longer now than it was, but the query has noted where it was cut
    world.fill(4, first=5)
    begin, read, stream = moved, list[str](), driver.stream()
    while (end := stream.latestOffset(begin, stream.getDefaultReadLimit())) is not begin:
        read += [value for value in values(stream, stream.partitions(begin, end)) if value.startswith("0")]
        begin = end
    assert read == world.rows(range(2, 9), range(0))


def test_s1_after_a_log_lost_its_end_a_query_goes_on_in_its_other_partitions(
    world: World, query: Callable[..., Query]
) -> None:
    group = {"kafka.group.id": f"of-{world.topic}", "commitOffsets": "source"}
    driver = query(failOnDataLoss=False, minOffsetsPerTrigger=1_000, **group)
    stream = driver.stream()
    first = stream.latestOffset(stream.initialOffset(), ALL)
    world.fill(1, first=5)
    _cut(driver, 2)
    moved = _moved(stream, first)
    assert moved["to"] == {world.topic: {"0": 2, "1": 6}}
    assert values(stream, stream.partitions(first, moved)) == ["1.5"]
    for end, committed in ((first, 5), (moved, 2)):
        stream.commit(end)
        found = driver.link.run(driver.link.admin.list_group_offsets(f"of-{world.topic}"))
        assert found[driver.tp].offset == committed
