"""What is answered of markers where the device has to have them first (`flush.messages`)."""

from dataclasses import replace

import pytest

from ottla.base.limits import MAX_INLINE_MARKERS
from ottla.base.types import TopicPartition
from ottla.broker.runtime.markers import Marker
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
async def test_a_sync_of_others_does_not_hide_that_one_is_refused(broker: AsyncBroker, client: WireClient) -> None:
    await broker.node.topics.create("t", 1, {"flush.messages": "1"})
    log = _partition(broker).log
    assert await _mark(client, 5) is ErrorCode.NONE
    appended = log.append(batch(b"x"), now_ms=broker.node.clock.now_ms())
    assert (appended.error, log.synced.is_due) == (ErrorCode.NONE, True)
    assert await _mark(client, 4) is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert log.end_offset == 2


_MARKER = Marker(_PRODUCER, 0, False, 0, 0)


async def test_each_partition_has_an_outcome_whether_or_not_it_is_synced(broker: AsyncBroker) -> None:
    await broker.node.topics.create("t", 1, {"flush.messages": "1"})
    await broker.node.topics.create("u", 1, {})
    tps = [TopicPartition(topic, 0) for topic in ("t", "u", "missing")]
    outcomes = [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert await broker.node.markers.write(tps, _MARKER) == dict(zip(tps, outcomes, strict=True))


async def test_those_of_very_many_partitions_wait_for_the_device_too(broker: AsyncBroker) -> None:
    count = MAX_INLINE_MARKERS + 1
    await broker.node.topics.create("t", count, {"flush.messages": "1"})
    tps = [TopicPartition("t", number) for number in range(count)]
    assert set((await broker.node.markers.write(tps, _MARKER)).values()) == {ErrorCode.NONE}
    logs = [each.log for each in broker.node.partitions.all() if each.tp.topic == "t"]
    assert [(log.end_offset, log.synced.offset) for log in logs] == [(1, 1)] * count


@pytest.mark.usefixtures("group_coordinator")
async def test_one_in_the_topic_of_groups_is_synced_before_its_coordinator_hears_of_it(
    broker: AsyncBroker,
) -> None:
    found = broker.node.partitions.find("__consumer_offsets", 0)
    assert found is not None
    found.log.config = replace(found.log.config, flush_messages=1)
    broker.node.markers.write([found.tp], _MARKER)
    assert (found.log.end_offset, found.log.synced.offset) == (1, 1)
