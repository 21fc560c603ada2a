"""A produce whose records are refused by the thousand: they are named up to a bound, and the answer goes in slices."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ottla.base.limits import MAX_RECORD_ERRORS
from ottla.broker.runtime.slices import TURN_MS
from ottla.testing import AsyncBroker
from ottla.wire.apis import ApiKey
from ottla.wire.compression import Compression
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.records import Record, encode_batch
from tests.broker.ticking import TickingClock, turns
from tests.broker.wire_client import WireClient

_OLD = {"message.timestamp.before.max.ms": "1000"}


@pytest.fixture
async def broker(directory: Path) -> AsyncIterator[AsyncBroker]:
    async with AsyncBroker(data_dir=directory, clock=TickingClock()) as running:
        await running.node.topics.create("compacted", 1, {"cleanup.policy": "compact"})
        await running.node.topics.create("young", 1, _OLD)
        yield running


def _produce(topic: str, count: int, compression: Compression, times: int) -> ProduceRequest:
    batch = encode_batch([Record(at, 5, None, b"") for at in range(count)], compression=compression)
    data = (PartitionProduceData(0, batch),) * times
    return ProduceRequest(None, -1, 10_000, (TopicProduceData(name=topic, partition_data=data),))


@pytest.mark.parametrize("topic", ["compacted", "young"])
@pytest.mark.parametrize(
    ("count", "compression", "times"), [(4_000, Compression.ZSTD, 30), (4_000, Compression.NONE, 60)]
)
async def test_a_request_has_no_more_records_named_than_it_may(
    client: WireClient, broker: AsyncBroker, topic: str, count: int, compression: Compression, times: int
) -> None:
    answer = asyncio.create_task(client.ask(ApiKey.PRODUCE, _produce(topic, count, compression, times), 12))
    seen = await turns(answer, lambda: 0)
    told = (await answer).responses[0].partition_responses
    by = ErrorCode.INVALID_RECORD if topic == "compacted" else ErrorCode.INVALID_TIMESTAMP
    assert [each.error_code for each in told] == [by] * times
    assert [len(each.record_errors) for each in told] == [4_000, 4_000, MAX_RECORD_ERRORS - 8_000] + [0] * (times - 3)
    assert not [each.error_message for each in told[:2] if "are named" in each.error_message]
    assert told[2].error_message.endswith(f"; {MAX_RECORD_ERRORS - 8_000} of {count} refused records are named")
    assert told[3].error_message.endswith(f"; 0 of {count} refused records are named")
    assert len(seen) > MAX_RECORD_ERRORS // TURN_MS, "each of them is a step"
