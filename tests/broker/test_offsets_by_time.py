"""ListOffsets by time looks into batches: compressed ones are opened beside the loop, many partitions go in slices."""

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from ottla.broker.runtime.slices import TURN_MS
from ottla.testing import AsyncBroker
from ottla.wire.apis import ApiKey
from ottla.wire.compression import Compression
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import produce as p
from ottla.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.wire.records import Record, encode_batch
from tests.broker.ticking import TickingClock, turns
from tests.broker.wire_client import WireClient, batch

_MANY = 4 * TURN_MS
_T0 = 1_700_000_000_000
#: Functions that look into a batch's records, and Python functions in both ways of running `wire`.
_OPENING = ("decompress", "decode_batch", "open_batch")


@pytest.fixture
async def broker(directory: Path) -> AsyncIterator[AsyncBroker]:
    async with AsyncBroker(data_dir=directory, clock=TickingClock()) as running:
        await running.node.topics.create("t", _MANY, {})
        yield running


def _records(count: int, compression: Compression) -> bytes:
    return encode_batch([Record(at, _T0 + at, None, b"v") for at in range(count)], compression=compression)


async def _produce(client: WireClient, records: bytes, partitions: int = 1) -> None:
    data = tuple(p.PartitionProduceData(number, records) for number in range(partitions))
    asked = p.ProduceRequest(None, -1, 10_000, (p.TopicProduceData(name="t", partition_data=data),))
    (topic,) = (await client.ask(ApiKey.PRODUCE, asked, 12)).responses
    assert {each.error_code for each in topic.partition_responses} == {ErrorCode.NONE}


def _asked(timestamp_ms: int, partitions: int = 1) -> ListOffsetsRequest:
    named = tuple(ListOffsetsPartition(number, timestamp=timestamp_ms) for number in range(partitions))
    return ListOffsetsRequest(topics=(ListOffsetsTopic("t", named),))


def _told(answer: Any) -> list[tuple[int, int, int]]:
    (topic,) = answer.topics
    return [(each.error_code, each.timestamp, each.offset) for each in topic.partitions]


@contextmanager
def _opened_on_the_loop() -> Iterator[list[str]]:
    """Which functions that open a batch are called in this thread meanwhile."""
    called: list[str] = []

    def look(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and frame.f_code.co_name in _OPENING:
            called.append(frame.f_code.co_name)

    sys.setprofile(look)
    try:
        yield called
    finally:
        sys.setprofile(None)


@pytest.mark.parametrize(("timestamp_ms", "found"), [(_T0 + 10, 10), (-3, 19_999), (_T0 + 20_000, -1)])
async def test_a_compressed_batch_is_opened_beside_the_loop(
    client: WireClient, broker: AsyncBroker, timestamp_ms: int, found: int
) -> None:
    await _produce(client, _records(20_000, Compression.LZ4), 4)
    with _opened_on_the_loop() as opened:
        answer = await client.ask(ApiKey.LIST_OFFSETS, _asked(timestamp_ms, 4))
    assert _told(answer) == [(0, _T0 + found if found >= 0 else -1, found)] * 4
    assert opened == []


async def test_a_short_batch_is_looked_at_at_once(client: WireClient, broker: AsyncBroker) -> None:
    await _produce(client, _records(20, Compression.NONE))
    with _opened_on_the_loop() as opened:
        assert _told(await client.ask(ApiKey.LIST_OFFSETS, _asked(_T0 + 10))) == [(0, _T0 + 10, 10)]
    assert opened == ["open_batch"]


async def test_a_search_in_many_partitions_lets_others_have_their_turns(
    client: WireClient, broker: AsyncBroker
) -> None:
    await _produce(client, _records(2_000, Compression.NONE), _MANY)
    answer = asyncio.create_task(client.ask(ApiKey.LIST_OFFSETS, _asked(_T0 + 1, _MANY)))
    assert len(await turns(answer, lambda: 0)) > 2 * _MANY // TURN_MS
    assert _told(await answer) == [(0, _T0 + 1, 1)] * _MANY


async def test_a_topic_that_is_deleted_during_a_search_is_unknown(client: WireClient, broker: AsyncBroker) -> None:
    await _produce(client, _records(2_000, Compression.NONE), _MANY)
    answer = asyncio.create_task(client.ask(ApiKey.LIST_OFFSETS, _asked(_T0 + 1, _MANY)))
    await turns(asyncio.create_task(asyncio.sleep(0)), lambda: 0)
    await broker.node.topics.delete_all([broker.node.image.topics["t"]])
    told = _told(await answer)
    assert {error for error, _, _ in told} <= {ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


async def test_a_batch_that_is_damaged_is_told(client: WireClient, broker: AsyncBroker, directory: Path) -> None:
    await _produce(client, batch(b"a" * 100, compression=Compression.ZSTD))
    log = directory / "t-0" / f"{0:020}.log"
    content = bytearray(log.read_bytes())
    content[-1] ^= 1
    log.write_bytes(content)
    assert _told(await client.ask(ApiKey.LIST_OFFSETS, _asked(_T0))) == [(ErrorCode.CORRUPT_MESSAGE, -1, -1)]
