"""A checkpoint that does not fit the query: it is of another source, or the options name other topics by now."""

import json
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from ottla.spark.errors import DataLossError, PipelineError
from tests.spark.source_world import ALL, World, next_batch


@pytest.fixture
def world(bootstrap: str, fresh_name: Callable[[str], str]) -> World:
    made = World(bootstrap, fresh_name("checkpoints"))
    made.make(5)
    return made


@pytest.mark.parametrize("other", [7, {"logOffset": 3}, {"v": 1}, [1]])
def test_s1_a_checkpoint_of_another_source_is_told(world: World, other: Any) -> None:
    stream = world.stream()
    start = stream.initialOffset()
    for call in (
        lambda: stream.latestOffset(other, ALL),
        lambda: stream.partitions(other, {world.topic: {"0": 5}}),
        lambda: stream.partitions(start, other),
        lambda: world.stream(kafka__group__id="g", commitOffsets="source").commit(other),
    ):
        with pytest.raises(PipelineError, match=r"the checkpoint is of another source.*checkpointLocation"):
            call()


def test_s1_a_topic_that_is_not_read_any_more_is_told_from_one_that_is_gone(
    world: World, fresh_name: Callable[[str], str]
) -> None:
    other = World(world.bootstrap, fresh_name("other"))
    other.make(1)
    end, _ = next_batch(world.stream(), world.stream().initialOffset())
    told = f"partition {world.topic}-0 was read up to 5, and the query's options do not name it any more"
    pattern = f"{other.topic}$"
    assigned = json.dumps({other.topic: [0]})
    for which in ({"subscribe": other.topic}, {"subscribePattern": pattern}, {"assign": assigned}):
        with pytest.raises(DataLossError, match=told):
            world.stream(**which).latestOffset(end, ALL)
        after = other.stream(failOnDataLoss=False, **which)
        assert next_batch(after, end)[1][0] == "0.0"


def test_s1_a_batch_with_which_spark_s_own_connector_went_back_has_no_rows(world: World) -> None:
    """As it plans one where a log lost its end; the log has grown since, in partition 1 not as far as it was."""
    before, planned = {world.topic: {"0": 4, "1": 7}}, {world.topic: {"0": 2, "1": 3}}
    stream = world.stream(failOnDataLoss=False)
    assert stream.partitions(before, planned) == []
    assert next_batch(stream, planned)[1] == world.rows(range(2, 5), range(3, 5))
