"""SPEC S1: a broker that has lost the end of a log is believed, not what a worker kept of that end."""

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from pyspark.sql.streaming.datasource import ReadMaxRows

from ottla.spark.errors import DataLossError
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


def _cut(directory: Path, batches: int) -> None:
    """Leave so many batches of each partition."""
    for partition in range(2):
        log = directory / f"t-{partition}" / f"{0:020}.log"
        data = log.read_bytes()
        log.write_bytes(data[: [at for at, _header in iter_headers(data)][batches]])


def test_s1_what_a_broker_has_lost_with_the_power_is_not_read_in_the_place_of_what_came_since(tmp_path: Path) -> None:
    """The log has all that was read, and its topic id. What is kept beyond that is of a former leader epoch."""
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
        _cut(tmp_path, 3)
        broker.start()
        world.fill(5, 10)
        end, rows = next_batch(stream, start)
        assert rows == sorted(["0.2", "1.2", *world.rows(range(10, 15), range(10, 15))])
        assert json.loads(before)["epochs"] == {"t": {"0": 0, "1": 0}}
        assert end["epochs"] == {"t": {"0": 1, "1": 1}}


def test_s1_a_log_that_lost_what_was_read_with_the_power_and_grew_beyond_it_is_told(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path) as broker:
        world = World(broker.bootstrap_servers, "t")
        world.make(1)
        for n in range(1, 6):
            world.fill(1, n)
        stream = world.stream()
        start, rows = next_batch(stream, stream.initialOffset())
        assert len(rows) == 12
        broker.kill()
        _cut(tmp_path, 3)
        broker.start()
        world.fill(9, 10)
        with pytest.raises(DataLossError, match=r"t-0.* 3"):
            next_batch(stream, start)


def test_s1_what_is_kept_of_a_directory_is_not_read_in_one_that_was_put_back(tmp_path: Path) -> None:
    """Nothing tells it but that the broker was started again: a copy of a stop in order begins no leader epoch."""
    directory, copy = tmp_path / "data", tmp_path / "copy"
    with Broker(data_dir=directory) as broker:
        world = World(broker.bootstrap_servers, "t")
        world.make(1)
        for n in range(1, 3):
            world.fill(1, n)
        broker.stop()
        shutil.copytree(directory, copy)
        broker.start()
        for n in range(3, 6):
            world.fill(1, n)
        stream = world.stream()
        start, rows = next_batch(stream, stream.initialOffset(), ReadMaxRows(4))
        assert rows == world.rows(range(2), range(2))
        before = json.dumps(start)
        broker.stop()
        shutil.rmtree(directory)
        shutil.copytree(copy, directory)
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
