"""`commitOffsets=source`: a group belongs to one query, and who shares it is told."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from ottla import Admin, Consumer
from ottla.base.errors import ConfigError
from ottla.base.types import TopicPartition
from ottla.client.core.offsets import OffsetAndMetadata
from ottla.spark.source import OttlaStreamReader
from tests.spark.brokers import on_either_broker
from tests.spark.source_world import ALL, World

pytestmark = on_either_broker


@pytest.fixture
def world(bootstrap: str, fresh_name: Callable[[str], str]) -> World:
    """Five records in each partition."""
    made = World(bootstrap, fresh_name("shared"))
    made.make(5)
    return made


class Query:
    """A query whose source commits for the group."""

    def __init__(self, world: World, group: str) -> None:
        self.stream: OttlaStreamReader = world.stream(kafka__group__id=group, commitOffsets="source")
        self.read: dict[str, Any] = self.stream.initialOffset()

    def batch(self) -> None:
        """One micro-batch, and Spark says that it is committed."""
        while (end := self.stream.latestOffset(self.read, ALL)) is self.read:
            pass
        self.read = end
        self.stream.commit(end)


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Iterator[Callable[[str], list[str]]]:
    """What the log says of a group."""
    yield lambda group: [each.getMessage() for each in caplog.records if f"group.id {group}:" in each.getMessage()]


def test_s3_two_queries_that_commit_for_one_group_are_both_told_once(
    world: World, fresh_name: Callable[[str], str], told: Callable[[str], list[str]]
) -> None:
    group = fresh_name("of-two")
    one, two = Query(world, group), Query(world, group)
    for batch in range(3):
        one.batch()
        assert len(told(group)) == (0, 1, 2)[batch]
        two.batch()
        assert len(told(group)) == (0, 2, 2)[batch]
        world.fill(1, first=5 + batch)
    assert f"somebody else commits offsets of {world.topic}-0 for it, at 6 now" in told(group)[1]
    assert "give each query a group of its own" in told(group)[0]


def test_s3_a_query_alone_in_its_group_is_told_nothing_though_it_was_started_again(
    world: World, fresh_name: Callable[[str], str], told: Callable[[str], list[str]]
) -> None:
    group = fresh_name("of-one")
    for start in range(2):
        query = Query(world, group)
        for batch in range(3):
            query.batch()
            world.fill(1, first=5 + 3 * start + batch)
    assert told(group) == []
    with Admin({"bootstrap.servers": world.bootstrap}) as admin:
        assert admin.list_group_offsets(group)[TopicPartition(world.topic, 0)].offset == 10


def test_s3_offsets_that_somebody_has_reset_are_told(
    world: World, fresh_name: Callable[[str], str], told: Callable[[str], list[str]]
) -> None:
    group = fresh_name("reset")
    query = Query(world, group)
    query.batch()
    with Admin({"bootstrap.servers": world.bootstrap}) as admin:
        admin.alter_group_offsets(group, {TopicPartition(world.topic, 1): OffsetAndMetadata(2)})
    world.fill(1, first=5)
    query.batch()
    assert [f"offsets of {world.topic}-1 for it, at 2 now" in each for each in told(group)] == [True]


def test_s3_a_group_that_consumers_are_in_is_an_option_that_is_wrong(
    world: World, fresh_name: Callable[[str], str]
) -> None:
    group = fresh_name("of-consumers")
    config = {"bootstrap.servers": world.bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    with Consumer(config) as consumer:
        consumer.subscribe([world.topic])
        while not consumer.poll(0.1):
            pass
        query = Query(world, group)
        with pytest.raises(ConfigError, match=f"kafka.group.id {group}: consumers are in this group"):
            query.batch()
