"""SPEC S1: a log that lost its end, and has grown beyond what was read before anybody asked (KIP-320)."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from ottla.base.types import TopicPartition
from ottla.spark.errors import DataLossError
from ottla.spark.options import SourceOptions, source_options
from ottla.spark.plan import SourceOffset
from ottla.spark.source import OttlaStreamReader
from ottla.spark.topics import Topics
from ottla.testing import Broker
from ottla.wire.apis import ApiKey
from ottla.wire.batch import iter_headers
from tests.interop.apache import ApacheKafka
from tests.spark.elected_link import Elections, elected_link
from tests.spark.source_world import ALL, ROWS, World, next_batch, restored

TOPIC = "cut"
TP = TopicPartition(TOPIC, 0)


@pytest.fixture
def broker() -> Iterator[Broker]:
    """One of the test's own, whose disk may fail."""
    with Broker() as broker:
        yield broker


@pytest.fixture
def world(broker: Broker) -> World:
    """Five records in each partition, each in a batch of its own."""
    return filled(World(broker.bootstrap_servers, TOPIC))


def filled(world: World) -> World:
    world.make(1)
    for n in range(1, 5):
        world.fill(1, first=n)
    return world


def shorten(directory: Path, end: int) -> None:
    """Partition 0 loses what it has from offset `end` on. Its broker is down."""
    (log,) = (directory / f"{TOPIC}-0").glob("*.log")
    kept = log.read_bytes()
    size = sum(header.size_bytes for _, header in iter_headers(memoryview(kept)) if header.last_offset < end)
    log.write_bytes(kept[:size])


class Query:
    """Drivers of one query; `starts` is where later leaders of partition 0 have begun."""

    def __init__(self, world: World, broker: Broker, **options: Any) -> None:
        given = {"kafka.bootstrap.servers": world.bootstrap, "subscribe": TOPIC, "startingOffsets": "earliest"}
        self.options: SourceOptions = source_options(
            given | {name: str(value) for name, value in options.items()}, streaming=True
        )
        self.starts: list[int] = []
        self.cluster: Elections
        self.link, self.cluster = elected_link(self.options.kafka, {TP: self.starts})
        self._world, self._broker = world, broker

    def driver(self) -> OttlaStreamReader:
        return OttlaStreamReader(self.options, ROWS, Topics(self.options, lambda: self.link))

    def first(self) -> dict[str, Any]:
        """The first batch, read and committed."""
        driver = self.driver()
        end = restored(driver.latestOffset(driver.initialOffset(), ALL))
        assert end["to"] == {TOPIC: {"0": 5, "1": 5}}
        return end

    def elect(self, end: int) -> None:
        """Another leader has the log of partition 0 up to `end` only."""
        self._broker.kill()
        shorten(self._broker.data_dir, end)
        self._broker.restart()
        self.starts.append(end)

    def asked(self, api: ApiKey) -> int:
        return self.cluster.asked.get(api, 0)


@pytest.fixture
def query(world: World, broker: Broker) -> Iterator[Callable[..., Query]]:
    """Makes queries."""
    made: list[Query] = []

    def make(**options: Any) -> Query:
        made.append(Query(world, broker, **options))
        return made[-1]

    yield make
    for each in made:
        each.link.shut()


def test_s1_a_log_that_was_cut_and_has_grown_since_has_lost_records(world: World, query: Callable[..., Query]) -> None:
    stops = query()
    first = stops.first()
    stops.elect(2)
    world.fill(4, first=10)
    with pytest.raises(DataLossError, match=f"{TP} was read up to 5, then cut at 2; it ends at 6 now"):
        stops.driver().latestOffset(first, ALL)


def test_s1_where_a_loss_is_accepted_all_that_came_behind_the_cut_is_read(
    world: World, query: Callable[..., Query]
) -> None:
    accepts = query(failOnDataLoss=False)
    first = accepts.first()
    accepts.elect(2)
    world.fill(4, first=10)
    driver = accepts.driver()
    end, rows = next_batch(driver, first)
    assert rows == world.rows(range(10, 14), range(10, 14))
    offset = SourceOffset.from_json(restored(end))
    assert (offset.start[TP], offset.end[TP]) == (2, 6)
    assert driver.latestOffset(end, ALL) is end, "once"
    world.fill(1, first=14)
    assert next_batch(accepts.driver(), restored(end))[1] == ["0.14", "1.14"]


def test_s1_a_log_that_was_cut_and_is_still_shorter_is_read_from_the_cut(
    world: World, query: Callable[..., Query]
) -> None:
    accepts = query(failOnDataLoss=False)
    first = accepts.first()
    accepts.elect(1)
    world.fill(2, first=10)
    end, rows = next_batch(accepts.driver(), first)
    assert rows == ["0.10", "0.11", "1.10", "1.11"]
    assert end["from"] == {TOPIC: {"0": 1, "1": 5}}


def test_s1_a_log_that_was_cut_behind_what_was_read_has_lost_nothing(world: World, query: Callable[..., Query]) -> None:
    stops = query(maxOffsetsPerTrigger=4)
    driver = stops.driver()
    first = restored(driver.latestOffset(driver.initialOffset(), driver.getDefaultReadLimit()))
    assert first["to"] == {TOPIC: {"0": 2, "1": 2}}
    stops.elect(3)
    world.fill(1, first=10)
    assert next_batch(stops.driver(), first)[1] == ["0.10", "0.2", "1.10", "1.2", "1.3", "1.4"]


def test_s1_a_new_leader_is_asked_once_and_one_that_stays_never(world: World, query: Callable[..., Query]) -> None:
    """Spark asks an idle query again and again how far the topics reach."""
    idle = query()
    first, driver = idle.first(), idle.driver()

    def ask_twice(read: dict[str, Any]) -> None:
        before = idle.asked(ApiKey.LIST_OFFSETS)
        while idle.asked(ApiKey.LIST_OFFSETS) < before + 4:
            assert driver.latestOffset(read, ALL) is read

    ask_twice(first)
    assert idle.asked(ApiKey.OFFSET_FOR_LEADER_EPOCH) == 0
    idle.starts.append(5)
    ask_twice(first)
    assert idle.asked(ApiKey.OFFSET_FOR_LEADER_EPOCH) == 1
    world.fill(1, first=5)
    driver = idle.driver()
    second = driver.latestOffset(first, ALL)
    assert (second["to"], second["epochs"]) == ({TOPIC: {"0": 6, "1": 6}}, {TOPIC: {"0": 1, "1": 0}})
    ask_twice(second)
    assert idle.asked(ApiKey.OFFSET_FOR_LEADER_EPOCH) == 2


@pytest.mark.interop
def test_s1_apache_kafka_tells_of_a_cut_that_later_records_hide(tmp_path: Path, apache_jars: str) -> None:
    with ApacheKafka(tmp_path / "node") as node:
        world = filled(World(node.bootstrap, TOPIC))
        driver = world.stream()
        first = restored(driver.latestOffset(driver.initialOffset(), ALL))
        assert first["to"] == {TOPIC: {"0": 5, "1": 5}}
        node.kill9()
        shorten(node.data_dir, 2)
        node.restart()
        world.fill(4, first=10)
        with pytest.raises(DataLossError, match=f"{TP} was read up to 5, then cut at 2; it ends at 6 now"):
            world.stream().latestOffset(first, ALL)
        accepts = world.stream(failOnDataLoss=False)
        end, rows = next_batch(accepts, first)
        assert rows == world.rows(range(10, 14), range(10, 14))
        assert accepts.latestOffset(end, ALL) is end
