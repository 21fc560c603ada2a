"""A fault of one partition, and what is no fault at all: the other partitions go on, and are stopped in order."""

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from ottla.base.clock import ManualClock
from ottla.base.errors import StorageError
from ottla.base.types import TopicPartition
from ottla.broker.runtime.upkeep import Upkeep
from ottla.broker.server import Listener
from ottla.log.checkpoint import CLEAN_SHUTDOWN_MARKER, RECOVERY_POINT_CHECKPOINT, decode_offsets
from ottla.log.results import Origin
from ottla.testing import AsyncBroker
from ottla.wire.errors import ErrorCode
from ottla.wire.records import Record, encode_batch


def _append(broker: AsyncBroker, topic: str) -> None:
    batch = encode_batch([Record(0, 1, None, b"x", ())])
    appended = broker.node.partitions.append(TopicPartition(topic, 0), batch, origin=Origin.COORDINATOR)
    assert appended.error is ErrorCode.NONE


def _upkeep(broker: AsyncBroker) -> Upkeep:
    def nobody_asks(frame: object, client_host: str, /) -> None:
        raise AssertionError("nothing is sent here")

    node = broker.node
    listener = Listener(nobody_asks, node.clock, max_request_bytes=1, max_connections=1, max_idle_ms=-1)
    return Upkeep(node.config, node.clock, node.timers, node.slices, node.partitions, listener)


async def _until(condition: Callable[[], bool]) -> None:
    for _ in range(1_000_000):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never came about")


async def _two_topics(data_dir: Path) -> AsyncBroker:
    broker = await AsyncBroker(data_dir=data_dir).start()
    for name in ("first", "second"):
        broker.node.topics.create(name, 1, {})
        _append(broker, name)
    return broker


@pytest.mark.parametrize("broken", ["first-0", "__cluster_metadata-0"])
async def test_a_log_that_cannot_be_flushed_keeps_no_other_from_it_when_the_broker_stops(
    tmp_path: Path, broken: str
) -> None:
    broker = await _two_topics(tmp_path)
    broker.node.topics.alter("first", {"retention.ms": "1000"})
    (tmp_path / broken).rename(tmp_path / "elsewhere")
    with pytest.raises(StorageError, match="without the mark of a clean stop"):
        await broker.stop()
    written = decode_offsets((tmp_path / RECOVERY_POINT_CHECKPOINT).read_bytes())
    assert written[TopicPartition("second", 0)] == 1
    assert not (tmp_path / CLEAN_SHUTDOWN_MARKER).exists()


@pytest.fixture
async def broker() -> AsyncIterator[AsyncBroker]:
    async with AsyncBroker() as running:
        yield running


class _Syncs:
    """Keeps the first sync of a file waiting in its thread."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.begun = threading.Event()
        self.go_on = threading.Event()
        self._sync = os.fdatasync
        patch.setattr(os, "fdatasync", self)

    def __call__(self, descriptor: int) -> None:
        if not self.begun.is_set():
            self.begun.set()
            assert self.go_on.wait(60), "nobody lets it go on"
        self._sync(descriptor)


async def test_a_topic_that_is_deleted_while_it_is_flushed_is_no_fault_of_the_disk(
    broker: AsyncBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broker.node.topics.create("t", 1, {})
    _append(broker, "t")
    syncs = _Syncs(monkeypatch)
    flushing = asyncio.create_task(_upkeep(broker).flush())
    await _until(syncs.begun.is_set)
    await broker.node.topics.delete_all([broker.node.image.topics["t"]])
    syncs.go_on.set()
    await flushing
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


async def test_upkeep_that_is_stopped_begins_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock()
    async with AsyncBroker({"log.retention.minutes": "1"}, clock=clock) as broker:
        for name in ("t", "u"):
            broker.node.topics.create(name, 1, {})
            _append(broker, name)
        upkeep = _upkeep(broker)
        upkeep.start()
        syncs = _Syncs(monkeypatch)
        clock.advance(60_000)
        broker.node.timers.fire()
        await _until(syncs.begun.is_set)
        stopping = asyncio.create_task(upkeep.stop())
        await asyncio.sleep(0)
        clock.advance(600_000)
        broker.node.timers.fire()
        syncs.go_on.set()
        await stopping
        await asyncio.sleep(0)
        assert [each.log.log_start_offset for each in broker.node.partitions.all()] == [0, 0]
