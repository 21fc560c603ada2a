"""The broker's regular work, while the topics it works on come and go."""

import asyncio
import shutil
from pathlib import Path

import pytest

from ottla.base.types import TopicPartition
from ottla.broker.connections import Connections
from ottla.broker.runtime.upkeep import Upkeep, idle_check_interval_ms
from ottla.log.results import Origin
from ottla.testing import AsyncBroker
from ottla.wire.errors import ErrorCode
from ottla.wire.records import Record, encode_batch


def _upkeep(broker: AsyncBroker) -> Upkeep:
    connections = Connections(broker.node.clock, max_connections=1, max_idle_ms=-1)
    node = broker.node
    return Upkeep(node.config, node.clock, node.timers, node.slices, node.partitions, connections)


def _append(broker: AsyncBroker, topic: str, count: int) -> None:
    batch = encode_batch([Record(at, 1, None, b"x", ()) for at in range(count)])
    appended = broker.node.partitions.append(TopicPartition(topic, 0), batch, origin=Origin.COORDINATOR)
    assert appended.error is ErrorCode.NONE


async def test_a_flush_leaves_a_topic_alone_that_was_made_again_meanwhile(broker: AsyncBroker) -> None:
    node = broker.node
    for name in ("first", "second"):
        await node.topics.create(name, 1, {})
        _append(broker, name, 5)
    flushing = asyncio.create_task(_upkeep(broker).flush())
    await asyncio.sleep(0)  # the first topic is being synced in another thread
    await node.topics.delete_all([node.image.topics["second"]])
    await node.topics.create("second", 1, {})
    await flushing
    assert sorted(path.name for path in (broker.data_dir / "second-0").iterdir()) == [
        "00000000000000000000.index",
        "00000000000000000000.log",
        "00000000000000000000.timeindex",
        "partition.metadata",
    ]
    assert _recovery_point(broker, "first") == 5
    assert _recovery_point(broker, "second") == 0


def _recovery_point(broker: AsyncBroker, topic: str) -> int:
    partition = broker.node.partitions.find(topic, 0)
    assert partition is not None
    return partition.log.recovery_point


@pytest.mark.parametrize(
    ("settings", "start"), [({}, 0), ({"log.retention.hours": "168"}, 5), ({"log.retention.minutes": "1"}, 5)]
)
async def test_a_broker_for_tests_keeps_records_of_1970_unless_told_otherwise(
    settings: dict[str, str], start: int
) -> None:
    async with AsyncBroker(settings) as broker:
        await broker.node.topics.create("old", 1, {})
        _append(broker, "old", 5)
        await _upkeep(broker).apply_retention()
        partition = broker.node.partitions.find("old", 0)
        assert partition is not None
        assert partition.log.log_start_offset == start


async def test_a_file_that_cannot_be_deleted_stops_retention_of_its_own_partition_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with AsyncBroker({"log.retention.minutes": "1"}) as broker:
        for name in ("first", "second"):
            await broker.node.topics.create(name, 1, {})
            _append(broker, name, 5)
        # Not even root can unlink a directory.
        stuck = broker.data_dir / "first-0" / "00000000000000000000.index"
        stuck.unlink()
        stuck.mkdir()
        upkeep = _upkeep(broker)
        await upkeep.apply_retention()
        assert not (broker.data_dir / "second-0" / "00000000000000000000.log").exists()
        assert "retention of first-0" in caplog.text
        stuck.rmdir()
        await upkeep.apply_retention()
        assert sorted(path.name for path in (broker.data_dir / "first-0").glob("0*")) == [
            "00000000000000000005.index",
            "00000000000000000005.log",
            "00000000000000000005.snapshot",
            "00000000000000000005.timeindex",
        ]


async def test_a_log_that_retention_has_emptied_is_not_taken_for_a_loss_after_a_kill(tmp_path: Path) -> None:
    async with AsyncBroker({"log.retention.minutes": "1"}) as broker:
        await broker.node.topics.create("old", 1, {})
        _append(broker, "old", 5)
        await _upkeep(broker).apply_retention()
        killed = shutil.copytree(broker.data_dir, tmp_path / "killed")
    async with AsyncBroker(data_dir=killed) as broker:
        partition = broker.node.partitions.find("old", 0)
        assert partition is not None
        assert partition.log.log_start_offset == partition.log.end_offset == 5
        assert partition.log.findings.losses == ()


@pytest.mark.parametrize(("limit_ms", "interval_ms"), [(-1, 10_000), (0, 1), (5_000, 5_000), (600_000, 10_000)])
def test_idle_connections_are_looked_for_as_often_as_it_needs(limit_ms: int, interval_ms: int) -> None:
    assert idle_check_interval_ms(limit_ms) == interval_ms
