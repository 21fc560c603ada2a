"""One WriteTxnMarkers that would fence a coordinator in thousands of partitions takes no long turn of the loop."""

import asyncio

from bench.wire import Wire, made_topic, settled
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.init_producer_id import InitProducerIdRequest
from ottla.wire.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from tests.broker.counted_turns import CountedBroker

#: One after the other in one turn they make some 60,000 calls.
_PARTITIONS = 3_000
_CALLS = 20_000


async def _fence_everywhere(broker: CountedBroker) -> None:
    async with Wire(broker.bootstrap_servers) as wire:
        await made_topic(wire, "t", _PARTITIONS)
        asked = FindCoordinatorRequest("", 1, ("x",))
        await settled(wire, ApiKey.FIND_COORDINATOR, asked, lambda answer: answer.coordinators[0].error_code)
        begin = InitProducerIdRequest("x", 60_000)
        mine = await settled(wire, ApiKey.INIT_PRODUCER_ID, begin, lambda answer: answer.error_code)
        named = (WritableTxnMarkerTopic("t", tuple(range(_PARTITIONS))),)
        marker = WritableTxnMarker(mine.producer_id, mine.producer_epoch + 1, False, named)
        with broker.counted() as turns:
            answer = await wire.ask(ApiKey.WRITE_TXN_MARKERS, WriteTxnMarkersRequest((marker,)))
        (topic,) = answer.markers[0].topics
        assert {each.error_code for each in topic.partitions} == {ErrorCode.INVALID_PRODUCER_EPOCH}
        assert len(topic.partitions) == _PARTITIONS
        assert 0 < turns.most < _CALLS, f"{turns.most:,} calls in one turn of {turns.whose}"


def test_t14_markers_that_are_refused_everywhere_take_several_turns() -> None:
    with CountedBroker({"transaction.state.log.num.partitions": "1"}) as broker:
        asyncio.run(_fence_everywhere(broker))
