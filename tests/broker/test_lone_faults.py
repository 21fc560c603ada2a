"""A fault of one partition, and what is no fault at all: the other partitions go on, and are stopped in order."""

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ottla.base.clock import ManualClock
from ottla.base.errors import StorageError
from ottla.base.types import TopicPartition
from ottla.broker.connections import Connections
from ottla.broker.handlers import fetch
from ottla.broker.metadata.image import TOPIC_RESOURCE
from ottla.broker.runtime.upkeep import Upkeep
from ottla.log.checkpoint import CLEAN_SHUTDOWN_MARKER, RECOVERY_POINT_CHECKPOINT, decode_offsets
from ottla.log.partition import PartitionLog
from ottla.log.results import Origin
from ottla.testing import AsyncBroker
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import fetch as f
from ottla.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.wire.messages.metadata import MetadataRequest
from ottla.wire.records import Record, encode_batch
from tests.broker.wire_client import WireClient


def _append(broker: AsyncBroker, topic: str) -> None:
    batch = encode_batch([Record(0, 1, None, b"x", ())])
    appended = broker.node.partitions.append(TopicPartition(topic, 0), batch, origin=Origin.COORDINATOR)
    assert appended.error is ErrorCode.NONE


def _upkeep(broker: AsyncBroker) -> Upkeep:
    def nobody_asks(frame: object, session: object, /) -> None:
        raise AssertionError("nothing is sent here")

    node = broker.node
    connections = Connections(node.clock, max_connections=1, max_idle_ms=-1)
    return Upkeep(node.config, node.clock, node.timers, node.slices, node.partitions, connections)


async def _until(condition: Callable[[], bool]) -> None:
    for _ in range(1_000_000):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never came about")


async def _two_topics(data_dir: Path) -> AsyncBroker:
    broker = await AsyncBroker(data_dir=data_dir).start()
    for name in ("first", "second"):
        await broker.node.topics.create(name, 1, {})
        _append(broker, name)
    return broker


@pytest.mark.parametrize("broken", ["first-0", "__cluster_metadata-0"])
async def test_a_log_that_cannot_be_flushed_keeps_no_other_from_it_when_the_broker_stops(
    tmp_path: Path, broken: str
) -> None:
    broker = await _two_topics(tmp_path)
    await broker.node.topics.alter_all({(TOPIC_RESOURCE, "first"): {"retention.ms": "1000"}})
    (tmp_path / broken).rename(tmp_path / "elsewhere")
    with pytest.raises(StorageError, match="without the mark of a clean stop"):
        await broker.stop()
    written = decode_offsets((tmp_path / RECOVERY_POINT_CHECKPOINT).read_bytes())
    assert written[TopicPartition("second", 0)] == 1
    assert not (tmp_path / CLEAN_SHUTDOWN_MARKER).exists()


async def test_an_error_of_our_own_in_one_partition_keeps_nothing_from_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broker = await _two_topics(tmp_path)
    first, second = (each.log for each in sorted(broker.node.partitions.all(), key=lambda each: each.tp))
    right, second.config = first.config, replace(second.config, retention_ms=1)
    first.config = replace(right, retention_ms="a minute")  # type: ignore[arg-type]
    await _upkeep(broker).apply_retention()
    assert (first.log_start_offset, second.log_start_offset) == (0, 1)
    assert "retention of first-0 has failed" in caplog.text
    first.end_offset += 1  # there are no records so far
    first.producers.end_offset = None  # type: ignore[assignment]
    _append(broker, "second")
    await _upkeep(broker).flush()
    assert (first.recovery_point, second.recovery_point) == (0, 2)
    assert "flush of first-0 has failed" in caplog.text
    _append(broker, "second")
    with pytest.raises(StorageError, match="without the mark of a clean stop"):
        await broker.stop()
    written = decode_offsets((tmp_path / RECOVERY_POINT_CHECKPOINT).read_bytes())
    assert written[TopicPartition("second", 0)] == 3


class _LostFile:
    """A log's file that the disk does not give any more."""

    def read(self, position: int, length_bytes: int) -> bytes:
        raise StorageError("the disk refuses to read")

    def fileno(self) -> int:
        return -1


class _LostLog:
    """A log whose records are found, and cannot be read; everything else is the log's own."""

    def __init__(self, log: PartitionLog) -> None:
        self._log = log

    def read(self, offset: int, max_bytes: int, **options: Any) -> Any:
        found = self._log.read(offset, max_bytes, **options)
        return found._replace(slices=tuple(each._replace(file=_LostFile()) for each in found.slices))  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)


@pytest.mark.parametrize("partitions", [2, fetch.AT_ONCE + 1])
async def test_a_partition_that_the_disk_does_not_give_keeps_no_other_from_its_reader(
    broker: AsyncBroker, caplog: pytest.LogCaptureFixture, partitions: int
) -> None:
    await broker.node.topics.create("t", partitions, {})
    batch = encode_batch([Record(0, 1, None, b"x", ())])
    for number in range(2):
        broker.node.partitions.append(TopicPartition("t", number), batch, origin=Origin.CLIENT)
    lost = broker.node.partitions.find("t", 0)
    assert lost is not None
    lost.log = _LostLog(lost.log)  # type: ignore[assignment]
    wanted = tuple(f.FetchPartition(number, partition_max_bytes=1000) for number in range(partitions))
    topics = (f.FetchTopic(topic="t", partitions=wanted),)
    async with WireClient(broker) as client:
        asked = f.FetchRequest(max_wait_ms=0, min_bytes=1, session_epoch=-1, topics=topics)
        answer = await client.ask(ApiKey.FETCH, asked, 12)
    told = [(each.error_code, bytes(each.records or b"")) for each in answer.responses[0].partitions]
    assert told[0] == (ErrorCode.KAFKA_STORAGE_ERROR, b"")
    assert told[1][0] == ErrorCode.NONE
    assert len(told[1][1]) == len(batch)
    assert "t-0: the disk refuses to read" in caplog.text


@pytest.fixture
async def broker() -> AsyncIterator[AsyncBroker]:
    async with AsyncBroker() as running:
        yield running


class _Syncs:
    """Keeps the first sync of a file waiting in its thread: of a log's file (fdatasync), or of a checkpoint (fsync)."""

    def __init__(self, patch: pytest.MonkeyPatch, call: str = "fdatasync") -> None:
        self.begun = threading.Event()
        self.go_on = threading.Event()
        self._sync = getattr(os, call)
        patch.setattr(os, call, self)

    def __call__(self, descriptor: int) -> None:
        if not self.begun.is_set():
            self.begun.set()
            assert self.go_on.wait(60), "nobody lets it go on"
        self._sync(descriptor)


async def test_a_topic_that_is_deleted_while_it_is_flushed_is_no_fault_of_the_disk(
    broker: AsyncBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await broker.node.topics.create("t", 1, {})
    _append(broker, "t")
    syncs = _Syncs(monkeypatch)
    flushing = asyncio.create_task(_upkeep(broker).flush())
    await _until(syncs.begun.is_set)
    await broker.node.topics.delete_all([broker.node.image.topics["t"]])
    syncs.go_on.set()
    await flushing
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


async def test_a_checkpoint_that_takes_long_stops_nobody(broker: AsyncBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    await broker.node.topics.create("t", 1, {})
    _append(broker, "t")
    syncs = _Syncs(monkeypatch, "fsync")
    writing = asyncio.get_running_loop().run_in_executor(None, broker.node.partitions.checkpoint_plan())
    await _until(syncs.begun.is_set)
    async with WireClient(broker) as one, WireClient(broker) as other:
        topics = (DeleteRecordsTopic("t", (DeleteRecordsPartition(0, 1),)),)
        deleting = asyncio.create_task(one.ask(ApiKey.DELETE_RECORDS, DeleteRecordsRequest(topics, 1_000)))
        await _until(lambda: _start(broker, "t") == 1)
        await other.ask(ApiKey.METADATA, MetadataRequest(None))
        assert not deleting.done(), "it may only be answered when it is written down"
        syncs.go_on.set()
        assert (await deleting).topics[0].partitions[0] == (0, 1, ErrorCode.NONE)
        await writing
    written = (broker.data_dir / "log-start-offset-checkpoint").read_bytes()
    assert decode_offsets(written)[TopicPartition("t", 0)] == 1


def _start(broker: AsyncBroker, topic: str) -> int:
    partition = broker.node.partitions.find(topic, 0)
    assert partition is not None
    return partition.log.log_start_offset


async def test_upkeep_that_is_stopped_begins_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock()
    async with AsyncBroker({"log.retention.minutes": "1"}, clock=clock) as broker:
        for name in ("t", "u"):
            await broker.node.topics.create(name, 1, {})
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
