"""What a small micro-batch asks of Kafka, and how often it waits for the link: counted, for the time is another's."""

import gc
import os
import random
import signal
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

import pyarrow as pa

from ottla import Admin
from ottla.base.types import TopicPartition
from ottla.client.config.admin import admin_config
from ottla.client.net.cluster import Cluster
from ottla.client.producer.producer import AsyncProducer
from ottla.spark.ids import slot_id
from ottla.spark.ledger import BatchKey
from ottla.spark.link import KafkaLink
from ottla.spark.options import SourceOptions, source_options
from ottla.spark.sink import KafkaSink
from ottla.spark.source import OttlaStreamReader
from ottla.spark.topics import Topics
from ottla.testing import Broker
from ottla.wire.apis import ApiKey
from tests.spark.sink_world import QUERY, SinkWorld
from tests.spark.source_world import ALL, ROWS, World, restored

#: A hang is a failure.
_PATIENCE_S = 10


class Asked(Cluster):
    """Counts requests; `after` may change answers."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(admin_config({"bootstrap.servers": bootstrap}), random.Random(1))
        self.asked: Counter[ApiKey] = Counter()
        self.after: Callable[[ApiKey, Any, Any], Any] = lambda _api, _message, answer: answer

    async def request(self, node_id: int, api: ApiKey, message: tuple[Any, ...], **how: Any) -> Any:
        """As the broker answers, or as `after` says."""
        self.asked[api] += 1
        return self.after(api, message, await super().request(node_id, api, message, **how))


class Waited(KafkaLink):
    """Counts how often somebody has waited for its thread."""

    waits = 0

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """As it is; counted."""
        self.waits += 1
        return super().run(coroutine)


class Query:
    """A driver whose link counts."""

    def __init__(self, world: World) -> None:
        given = {"kafka.bootstrap.servers": world.bootstrap, "subscribe": world.topic, "startingOffsets": "earliest"}
        self.options: SourceOptions = source_options(given, streaming=True)
        self.cluster = Asked(world.bootstrap)
        self.link = Waited(self.options.kafka, cluster=self.cluster)
        self.topics = Topics(self.options, lambda: self.link)


@pytest.fixture
def source(bootstrap: str, fresh_name: Callable[[str], str]) -> World:
    source = World(bootstrap, fresh_name("cost"))
    source.make(5)
    return source


@pytest.fixture
def query(source: World) -> Iterator[Query]:
    made = Query(source)
    yield made
    made.link.shut()


def test_s1_a_micro_batch_asks_for_both_ends_of_its_partitions_in_one_step(query: Query) -> None:
    before = query.topics.logs(query.topics.there(as_of_now=True))
    query.cluster.asked.clear()
    query.link.waits = 0
    assert query.topics.logs_there(as_of_now=False) == before
    assert (query.link.waits, query.cluster.asked) == (1, {ApiKey.LIST_OFFSETS: 2})


def test_s1_a_topic_that_is_made_anew_is_found_when_metadata_says_so(query: Query, source: World) -> None:
    driver = OttlaStreamReader(query.options, ROWS, query.topics)
    end = restored(driver.latestOffset(driver.initialOffset(), ALL))
    before = query.topics.logs_there(as_of_now=False)
    source.delete()
    source.make(2)
    query.link.run(query.link.topics([source.topic], as_of_now=True))  # somebody else has asked
    now = query.topics.logs_there(as_of_now=False)
    assert now.ids != before.ids
    assert set(now.latest.values()) == {2}
    assert end["to"] == {source.topic: {"0": 5, "1": 5}}


def test_s1_no_partition_begins_behind_its_end_though_both_are_asked_at_once(query: Query, source: World) -> None:
    """Its leader may change between the two questions; then the first one is asked again, and answered later."""
    tps = [TopicPartition(source.topic, n) for n in range(2)]
    deleted = False

    def delete_then(api: ApiKey, message: Any, answer: Any) -> Any:
        nonlocal deleted
        if api is not ApiKey.LIST_OFFSETS or deleted:
            return answer
        deleted = True  # as if the question for the beginning had come after this
        first = answer.topics[0]
        later = tuple(p._replace(offset=7) if p.partition_index == 0 else p for p in first.partitions)
        source.fill(3, first=5)
        return answer._replace(topics=(first._replace(partitions=later),))

    query.link.run(query.link.extents(tps, committed=True))
    query.cluster.asked.clear()
    query.cluster.after = delete_then
    earliest, ends = query.link.run(query.link.extents(tps, committed=True))
    assert (earliest[tps[0]], earliest[tps[1]]) == (7, 0)
    assert ends[tps[0]][0] == 8
    assert query.cluster.asked == {ApiKey.LIST_OFFSETS: 3}


# the sink


def words(*values: str) -> Any:
    return pa.RecordBatch.from_pydict({"value": pa.array([value.encode() for value in values], pa.binary())})


def has_id(world: SinkWorld, slot: int) -> bool:
    """Whether the broker knows the transactional id of this slot."""
    with Admin({"bootstrap.servers": world.bootstrap}) as admin:
        listed = admin.list_transactions()
    return slot_id(world.sink, slot) in {transaction.transactional_id for transaction in listed}


def producers() -> int:
    """How many there are."""
    gc.collect()
    return sum(isinstance(each, AsyncProducer) for each in gc.get_objects())


def test_s2_the_transaction_of_a_slot_begins_while_its_rows_are_made(world: SinkWorld) -> None:
    seen: list[bool] = []

    def rows(slot: int, *made: Any) -> Iterator[Any]:
        while seen and not has_id(world, slot):
            pass
        seen.append(has_id(world, slot))
        yield from made

    def write(driver: KafkaSink, batch: int, slot: int, *made: Any) -> Any:
        report = driver.write(BatchKey(QUERY, batch), slot, rows(slot, *made)).report
        assert report is not None
        return report.handle

    driver = world.driver()
    assert write(driver, 0, 0, words("a")) is not None
    assert write(driver, 0, 1, words("b")) is not None
    before = producers()
    assert write(driver, 0, 2) is None
    assert write(driver, 0, 2, words()) is None
    assert producers() == before, "the one that has begun for nothing is closed"
    assert seen == [False, True, True, True]
    assert len(world.open_transactions()) == 2
    seen.clear()
    assert write(driver, 0, 3) is None
    assert seen == [False], "the slot before had no rows"


def test_s2_a_task_that_fails_before_its_first_row_leaves_nothing_open(world: SinkWorld) -> None:
    def broken() -> Iterator[Any]:
        yield from ()
        raise ValueError("a fault of the user's function")

    driver = world.driver()
    assert driver.write(BatchKey(QUERY, 0), 0, iter([words("a")])).report is not None
    with pytest.raises(ValueError, match="a fault of the user's function"):
        driver.write(BatchKey(QUERY, 0), 1, broken())
    assert world.open_transactions() == [slot_id(world.sink, 0)]


def test_s2_a_task_without_rows_waits_for_no_broker(fresh_name: Callable[[str], str], tmp_path: Path) -> None:
    """Its transaction may have begun for nothing. A task that fails says so at once, too."""
    (tmp_path / "offsets").mkdir()
    ended: list[str] = []

    def broken() -> Iterator[Any]:
        yield from ()
        raise ValueError("a fault of the user's function")

    def without_rows(driver: KafkaSink) -> None:
        with pytest.raises(ValueError, match="a fault of the user's function"):
            driver.write(BatchKey(QUERY, 0), 2, broken())
        ended.append("a fault")
        assert driver.write(BatchKey(QUERY, 0), 1, iter(())).rows == 0
        ended.append("no rows")

    with Broker() as broker:
        world = SinkWorld.create(broker.bootstrap_servers, fresh_name("words"), tmp_path)
        driver = world.driver(**{"kafka.max.block.ms": "3600000"})
        assert driver.write(BatchKey(QUERY, 0), 0, iter([words("a")])).rows == 1
        assert broker.pid is not None
        os.kill(broker.pid, signal.SIGSTOP)
        task = threading.Thread(target=without_rows, args=(driver,), daemon=True)
        task.start()
        task.join(_PATIENCE_S)
        os.kill(broker.pid, signal.SIGCONT)
        assert ended == ["a fault", "no rows"]
        assert world.open_transactions() == [slot_id(world.sink, 0)]
