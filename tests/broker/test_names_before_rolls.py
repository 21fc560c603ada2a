"""The name of a first segment, which the device must know before there is a second one: while it comes, and if not."""

import asyncio
import threading

from ottla.base.steps import result_of
from ottla.base.types import TopicPartition
from ottla.broker.runtime.partition import Partition
from ottla.broker.runtime.wakes import Wakes
from ottla.log.config import LogConfig
from ottla.log.memory import MemoryStorage
from ottla.log.partition import PartitionLog
from ottla.log.results import NO_GUARD
from ottla.testing import AsyncBroker
from ottla.wire.errors import ErrorCode
from tests.broker.records_io import produce
from tests.broker.ticking import some_turns_until
from tests.broker.wire_client import WireClient, batch

_SEGMENT_BYTES = 1_000
_NOW_MS = 1_700_000_000_000
_FEW_TURNS = 50


async def _partition(broker: AsyncBroker) -> tuple[MemoryStorage, Partition]:
    """The only one of a topic `t`, with a record, in a segment for which the next batch is too large."""
    storage, node, tp = MemoryStorage(), broker.node, TopicPartition("t", 0)
    await node.topics.create(tp.topic, 1, {})
    log = PartitionLog.open(tp, storage, LogConfig(segment_bytes=_SEGMENT_BYTES), _NOW_MS)
    partition = Partition(tp, node.image.topics[tp.topic].topic_id, log, 0, Wakes(node.clock))
    node.partitions.add([partition])
    assert log.append(batch(b"first"), now_ms=_NOW_MS).error is ErrorCode.NONE
    return storage, partition


_ROLLS = batch(bytes(_SEGMENT_BYTES - len(batch(b"first"))))


async def test_without_it_nothing_is_written_behind(broker: AsyncBroker, client: WireClient) -> None:
    """Else a loss of power might leave the second segment alone."""
    storage, partition = await _partition(broker)
    storage.refuses = lambda action, name: action == "sync_names"
    (refused,) = await produce(client, _ROLLS)
    assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert (partition.log.end_offset, len(partition.log._segments), partition.log._segments.is_named) == (1, 1, False)
    storage.refuses = None
    (taken,) = await produce(client, _ROLLS)
    assert (taken.error_code, taken.base_offset, len(partition.log._segments)) == (ErrorCode.NONE, 1, 2)


async def test_a_large_batch_of_another_that_begins_while_it_comes_is_waited_for(
    broker: AsyncBroker, client: WireClient
) -> None:
    storage, partition = await _partition(broker)
    has_begun, may_end = threading.Event(), threading.Event()

    def takes_long(action: str, _: str) -> bool:
        if action == "sync_names":
            has_begun.set()
            may_end.wait()
        return False

    storage.refuses = takes_long
    behind = asyncio.create_task(produce(client, _ROLLS))
    await some_turns_until(has_begun.is_set)
    try:
        work = partition.append_in_parts(
            batch(b"a"), now_ms=_NOW_MS, verification_guard=NO_GUARD, looked=None, max_named=1
        )
        next(work)
    finally:
        may_end.set()
    await some_turns_until(lambda: partition.log._segments.is_named)
    for _ in range(_FEW_TURNS):
        await asyncio.sleep(0)
    assert not behind.done()
    assert result_of(work).base_offset == 1
    (taken,) = await behind
    assert (taken.error_code, taken.base_offset, len(partition.log._segments)) == (ErrorCode.NONE, 2, 2)


async def test_it_is_asked_for_once(broker: AsyncBroker, client: WireClient) -> None:
    storage, partition = await _partition(broker)
    calls: list[str] = []

    def note(action: str, _: str) -> bool:
        calls.append(action)
        return False

    storage.refuses = note
    for _ in range(3):
        (taken,) = await produce(client, _ROLLS)
        assert taken.error_code == ErrorCode.NONE
    assert (len(partition.log._segments), calls.count("sync_names")) == (4, 1)
