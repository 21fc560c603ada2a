"""SPEC S1: a broker that has lost the end of a log with the power is believed, not what a worker kept of that end."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from pyspark.sql.streaming.datasource import ReadMaxRows

from ottla.spark.source import KafkaRanges
from ottla.testing import Broker
from ottla.wire.batch import iter_headers
from tests.spark.source_world import World, next_batch

if TYPE_CHECKING:
    from ottla.spark.source import OttlaStreamReader


def planned_by(stream: "OttlaStreamReader", start: dict[str, Any], end: dict[str, Any]) -> str | None:
    """What its tasks are told of the connections that the batch was planned by."""
    tasks = stream.partitions(start, end)
    (unbroken,) = {wanted.unbroken for task in tasks if isinstance(task, KafkaRanges) for wanted in task.wanted}
    return unbroken


def test_s1_what_a_broker_has_lost_with_the_power_is_not_read_in_the_place_of_what_came_since(tmp_path: Path) -> None:
    """Nothing tells it: the log has all that was read, its topic id, and the leader epoch that it had."""
    with Broker(data_dir=tmp_path) as broker:
        world = World(broker.bootstrap_servers, "t")
        world.make(1)
        for n in range(1, 6):
            world.fill(1, n)  # a batch each
        stream = world.stream()
        start, rows = next_batch(stream, stream.initialOffset(), ReadMaxRows(4))
        assert rows == world.rows(range(2), range(2))
        before = json.dumps(start)
        broker.kill()
        for partition in range(2):
            log = tmp_path / f"t-{partition}" / f"{0:020}.log"
            data = log.read_bytes()
            log.write_bytes(data[: [at for at, _header in iter_headers(data)][3]])
        broker.start()
        world.fill(5, 10)
        end, rows = next_batch(stream, start)
        assert rows == sorted(["0.2", "1.2", *world.rows(range(10, 15), range(10, 15))])
        assert end["epochs"] == json.loads(before)["epochs"]


def test_s1_what_is_kept_serves_the_next_batch_while_no_connection_of_the_driver_is_lost(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path) as broker:
        world = World(broker.bootstrap_servers, "t")
        world.make(6)
        stream = world.stream()
        first = stream.initialOffset()
        of_a_checkpoint = first | {"from": {"t": {"0": 0}}, "to": {"t": {"0": 1}}}
        assert planned_by(stream, first, of_a_checkpoint) is None, "nobody was asked"
        ends = [first]
        for _ in range(2):
            ends.append(stream.latestOffset(ends[-1], ReadMaxRows(4)))
        told = planned_by(stream, ends[0], ends[1])
        assert told is not None
        assert planned_by(stream, ends[1], ends[2]) == told
        broker.kill()
        broker.start()
        ends.append(stream.latestOffset(ends[-1], ReadMaxRows(4)))
        assert planned_by(stream, ends[2], ends[3]) != told
