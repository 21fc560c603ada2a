"""The regular flush of a log with very many producers: others are served meanwhile."""

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from types import FrameType

import pytest

from ottla.broker.connections import Connections
from ottla.broker.runtime.slices import TURN_MS
from ottla.broker.runtime.upkeep import Upkeep
from ottla.log.snapshot import FEW_PRODUCERS
from ottla.testing import AsyncBroker
from tests.broker.ticking import TickingClock
from tests.broker.wire_client import batch

_PRODUCERS = 5 * TURN_MS * FEW_PRODUCERS


@pytest.fixture
async def broker(directory: Path) -> AsyncIterator[AsyncBroker]:
    async with AsyncBroker(data_dir=directory, clock=TickingClock()) as running:
        await running.node.topics.create("t", 1, {})
        yield running


async def test_the_producers_of_a_log_are_packed_in_slices_and_written_by_another_thread(broker: AsyncBroker) -> None:
    node = broker.node
    partition = node.partitions.find("t", 0)
    assert partition is not None
    for number in range(_PRODUCERS):
        records = batch(b"a", producer_id=number, producer_epoch=0, base_sequence=0)
        partition.log.append(records, now_ms=node.clock.now_ms())
    packed = [0]

    def note(frame: FrameType, event: str, _argument: object) -> None:
        packed[-1] += event == "call" and frame.f_code.co_qualname == "_pack"

    connections = Connections(node.clock, max_connections=1, max_idle_ms=-1)
    upkeep = Upkeep(node.config, node.clock, node.timers, node.slices, node.partitions, connections)
    flushing = asyncio.create_task(upkeep.flush())
    sys.setprofile(note)
    while not flushing.done():
        await asyncio.sleep(0)
        packed.append(0)
    sys.setprofile(None)
    assert (sum(packed), partition.log.flushed_offset) == (_PRODUCERS, _PRODUCERS)
    assert max(packed) <= TURN_MS * FEW_PRODUCERS
