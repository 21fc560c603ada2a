"""Topics are made, grown, cut, cleaned, deleted and made again, and the broker dies at every call on the way.

Whatever the next broker finds: what was acknowledged is there, what was not is there whole or not at all, nothing of an
older topic comes back under its name, and everything can be made and written again.
"""

import asyncio
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ottla.base.types import TopicPartition
from ottla.broker.connections import Connections
from ottla.broker.runtime.upkeep import Upkeep
from ottla.log.results import Origin
from ottla.testing import AsyncBroker
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.records import Record, encode_batch
from tests.broker.crash_points import CrashPoint, CrashPoints
from tests.broker.ticking import TickingClock
from tests.broker.wire_client import WireClient

#: So that a few records fill a segment.
_SMALL = (CreatableTopicConfig("internal.segment.bytes", "200"), CreatableTopicConfig("retention.ms", "-1"))


@dataclass
class Topic:
    """What was acknowledged of a topic."""

    partitions: int
    records: dict[tuple[int, int], bytes] = field(default_factory=dict)
    #: Where its first partition begins: the least and the most that may be.
    start: tuple[int, int] = (0, 0)


@dataclass
class Known:
    """What clients know; of the topics in `doubt` a change was asked for and not answered."""

    topics: dict[str, Topic] = field(default_factory=dict)
    #: How many partitions a topic may have: before the change and after it, 0 where there is no topic.
    doubt: dict[str, tuple[int, int]] = field(default_factory=dict)


class _Story:
    """Asks the broker, and notes what it has acknowledged."""

    def __init__(self, broker: AsyncBroker, client: WireClient, known: Known) -> None:
        self._broker = broker
        self._client = client
        self._known = known

    async def create(self, **topics: int) -> None:
        self._known.doubt = {name: (0, count) for name, count in topics.items()}
        wanted = tuple(CreatableTopic(name, count, 1, configs=_SMALL) for name, count in topics.items())
        answer = await self._client.ask(ApiKey.CREATE_TOPICS, CreateTopicsRequest(wanted, 60_000))
        assert {each.error_code for each in answer.topics} == {ErrorCode.NONE}
        self._known.topics |= {name: Topic(count) for name, count in topics.items()}
        self._known.doubt = {}

    async def grow(self, name: str, count: int) -> None:
        topic = self._known.topics[name]
        self._known.doubt = {name: (topic.partitions, count)}
        request = CreatePartitionsRequest((CreatePartitionsTopic(name, count, None),), 60_000)
        answer = await self._client.ask(ApiKey.CREATE_PARTITIONS, request)
        assert answer.results[0].error_code == ErrorCode.NONE
        topic.partitions, self._known.doubt = count, {}

    async def delete(self, *names: str) -> None:
        self._known.doubt = {name: (self._known.topics[name].partitions, 0) for name in names}
        answer = await self._client.ask(ApiKey.DELETE_TOPICS, DeleteTopicsRequest(tuple(map(DeleteTopicState, names))))
        assert {each.error_code for each in answer.responses} == {ErrorCode.NONE}
        for name in names:
            del self._known.topics[name]
        self._known.doubt = {}

    async def cut(self, name: str, offset: int) -> None:
        topic = self._known.topics[name]
        topic.start = (topic.start[0], offset)
        topics = (DeleteRecordsTopic(name, (DeleteRecordsPartition(0, offset),)),)
        answer = await self._client.ask(ApiKey.DELETE_RECORDS, DeleteRecordsRequest(topics, 1_000))
        assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE
        topic.start = (offset, offset)

    def write(self, name: str, partition: int, *values: bytes) -> None:
        for value in values:
            batch = encode_batch([Record(0, 1, None, value, ())])
            tp = TopicPartition(name, partition)
            appended = self._broker.node.partitions.append(tp, batch, origin=Origin.COORDINATOR)
            assert appended.error is ErrorCode.NONE
            self._known.topics[name].records[partition, appended.base_offset] = value


def _upkeep(broker: AsyncBroker) -> Upkeep:
    def nobody_asks(frame: object, session: object, /) -> None:
        raise AssertionError("nothing is sent here")

    node = broker.node
    connections = Connections(node.clock, max_connections=1, max_idle_ms=-1)
    return Upkeep(node.config, node.clock, node.timers, node.slices, node.partitions, connections)


async def _live(data_dir: Path, known: Known) -> None:
    async with AsyncBroker(data_dir=data_dir, clock=TickingClock()) as broker, WireClient(broker) as client:
        story, upkeep = _Story(broker, client, known), _upkeep(broker)
        await story.create(a=2, b=1)
        story.write("a", 0, *(b"%d of a" % number for number in range(6)))
        story.write("b", 0, *(b"%d of b" % number for number in range(4)))
        await upkeep.flush()
        await story.cut("a", 3)
        await story.grow("a", 3)
        story.write("a", 2, b"of the new partition")
        await upkeep.apply_retention()
        await story.cut("b", 4)
        flushing = asyncio.create_task(upkeep.flush())
        await asyncio.sleep(0)
        await story.delete("b")
        await story.create(b=1)
        story.write("b", 0, b"of the second b")
        await flushing
        await story.delete("a", "b")
        await story.create(b=2)
        story.write("b", 1, b"of the third b")


async def _check(point: CrashPoint[Known]) -> None:
    known = point.known
    async with AsyncBroker(data_dir=point.data_dir) as broker:
        image, partitions = broker.node.image, broker.node.partitions
        for name in {*known.topics, *known.doubt, *image.topics}:
            count = len(image.topics[name].partitions) if name in image.topics else 0
            expected = known.topics[name].partitions if name in known.topics else 0
            assert count in known.doubt.get(name, (expected,)), name
            assert all(partitions.find(name, number) for number in range(count)), name
        for name, topic in known.topics.items():
            if name in image.topics:
                _check_records(broker, name, topic)
        names = sorted(path.name for path in point.data_dir.iterdir() if path.is_dir() and any(path.iterdir()))
        led = [str(each.tp) for each in partitions.all()]
        assert names == sorted([*led, "__cluster_metadata-0"])
        for name in {"a", "b", "c"} - image.topics.keys():
            await broker.node.topics.create(name, 2, {})
            assert {each.log.end_offset for each in partitions.all() if each.tp.topic == name} == {0}
        for partition in partitions.all():
            batch = encode_batch([Record(0, 1, None, b"more", ())])
            assert partitions.append(partition.tp, batch, origin=Origin.COORDINATOR).error is ErrorCode.NONE


def _check_records(broker: AsyncBroker, name: str, topic: Topic) -> None:
    first = broker.node.partitions.find(name, 0)
    assert first is not None
    assert topic.start[0] <= first.log.log_start_offset <= topic.start[1]
    for (number, offset), value in topic.records.items():
        partition = broker.node.partitions.find(name, number)
        assert partition is not None
        if offset >= partition.log.log_start_offset:
            read = partition.log.read(offset, 1)
            assert value in b"".join(piece.read() for piece in read.slices), (name, number, offset)


@pytest.fixture
def directory() -> Iterator[Path]:
    """In memory where the system has such a place: there are hundreds of brokers, and each syncs its files."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(prefix="ottla-", dir=memory if os.access(memory, os.W_OK) else None) as path:
        yield Path(path)


async def test_a_broker_that_dies_at_any_call_leaves_what_was_acknowledged_and_nothing_by_halves(
    directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data_dir, known = directory / "data", Known()
    data_dir.mkdir()
    points = CrashPoints(data_dir, directory / "copies", known)
    with points.taken():
        await _live(data_dir, known)
    assert len(points.points) > 100
    for point in points.points:
        caplog.clear()
        try:
            await _check(point)
        except AssertionError as fault:
            raise AssertionError(f"after {point.call}, {point.known}: {fault}") from fault
        assert [each.getMessage() for each in caplog.records if each.levelname in ("ERROR", "CRITICAL")] == []
