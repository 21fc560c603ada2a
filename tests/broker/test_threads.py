"""Which work waits for which: what takes the processor has threads of its own."""

from __future__ import annotations

import threading

from ottla.testing import AsyncBroker
from ottla.wire.apis import ApiKey
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.broker.ticking import some_turns_until
from tests.broker.wire_client import WireClient, batch

_VERSION = 12


def _produce(topic: str, value: bytes, acks: int) -> ProduceRequest:
    data = (TopicProduceData(name=topic, partition_data=(PartitionProduceData(0, batch(value)),)),)
    return ProduceRequest(None, acks, 1000, data)


async def _is_written(client: WireClient, topic: str) -> bool:
    answer = await client.ask(ApiKey.PRODUCE, _produce(topic, b"v", -1), _VERSION)
    error: int = answer.responses[0].partition_responses[0].error_code
    return error == 0


async def test_neither_syncs_nor_changes_of_metadata_wait_for_batches_that_are_compressed() -> None:
    """Twenty requests of two kilobytes, each of them sixty megabytes of zeros, kept them for half a minute."""
    may_end = threading.Event()
    async with AsyncBroker() as broker, WireClient(broker) as client, WireClient(broker) as other:
        await broker.create_topics("compressed", config={"compression.type": "gzip"})
        busy = [broker.node.partitions.beside(may_end.wait) for _ in range(40)]
        try:
            await broker.create_topics("synced", config={"flush.messages": "1"})
            assert await _is_written(other, "synced")
            await client.send(ApiKey.PRODUCE, _produce("compressed", bytes(500_000), 0), _VERSION)
            assert await _is_written(other, "synced")
        finally:
            may_end.set()
        compressed = broker.node.partitions.find("compressed", 0)
        assert compressed is not None
        await some_turns_until(lambda: compressed.log.end_offset == 1)
        assert all([await each for each in busy])
