"""A marker that a partition refuses is refused, also where others wait for a sync of the partition."""

import pytest

from ottla.base.types import TopicPartition
from ottla.broker.runtime.partition import Partition
from ottla.testing import AsyncBroker
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from tests.broker.wire_client import WireClient, batch

_PRODUCER = 12_345


async def _mark(client: WireClient, coordinator_epoch: int) -> ErrorCode:
    marker = WritableTxnMarker(_PRODUCER, 0, False, (WritableTxnMarkerTopic("t", (0,)),), coordinator_epoch)
    answer = await client.ask(ApiKey.WRITE_TXN_MARKERS, WriteTxnMarkersRequest((marker,)), 1)
    return ErrorCode(answer.markers[0].topics[0].partitions[0].error_code)


def _partition(broker: AsyncBroker) -> Partition:
    found = broker.node.partitions.find(*TopicPartition("t", 0))
    assert found is not None
    return found


@pytest.mark.usefixtures("transaction_coordinator")
async def test_a_sync_that_others_wait_for_does_not_hide_it(broker: AsyncBroker, client: WireClient) -> None:
    await broker.node.topics.create("t", 1, {"flush.messages": "1"})
    log = _partition(broker).log
    assert await _mark(client, 5) is ErrorCode.NONE
    appended = log.append(batch(b"x"), now_ms=broker.node.clock.now_ms())
    assert (appended.error, log.synced.is_due) == (ErrorCode.NONE, True)
    assert await _mark(client, 4) is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert log.end_offset == 2
