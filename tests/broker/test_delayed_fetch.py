"""A fetch that waits reads again only what can change its answer."""

from collections.abc import AsyncIterator

import pytest

from ottla.broker.runtime.partition import Partition
from ottla.testing import AsyncBroker
from ottla.wire.apis import ApiKey
from ottla.wire.messages import fetch as f
from ottla.wire.messages import produce as p
from ottla.wire.messages.end_txn import EndTxnRequest
from ottla.wire.messages.init_producer_id import InitProducerIdRequest
from tests.broker.counted_log import CountedLog
from tests.broker.records_io import fetch, produce
from tests.broker.ticking import some_turns_until
from tests.broker.wire_client import WireClient, batch

pytestmark = pytest.mark.usefixtures("transaction_coordinator")

_PARTITIONS = 20
_VERSION = 11


class _Waiting:
    """A fetch of all partitions of `t` that waits, and which partitions it has read since it began to."""

    def __init__(self, broker: AsyncBroker, reader: WireClient) -> None:
        self._reader = reader
        self.partitions: list[Partition] = []
        self.reads: list[int] = []
        for number in range(_PARTITIONS):
            partition = broker.node.partitions.find("t", number)
            assert partition is not None
            partition.log = CountedLog(partition.log, self.reads)  # type: ignore[assignment]
            self.partitions.append(partition)

    async def begin(self, *, committed: bool, offset: int = 0, min_bytes: int = 1) -> None:
        parts = tuple(f.FetchPartition(n, fetch_offset=offset, partition_max_bytes=2**20) for n in range(_PARTITIONS))
        request = f.FetchRequest(
            max_wait_ms=60_000,
            min_bytes=min_bytes,
            max_bytes=2**20,
            isolation_level=int(committed),
            session_epoch=-1,
            topics=(f.FetchTopic(topic="t", partitions=parts),),
        )
        await self._reader.send(ApiKey.FETCH, request, _VERSION)
        await some_turns_until(lambda: self.partitions[0].watched)
        self.reads.clear()

    async def records(self) -> dict[int, int]:
        """The answer: bytes of records by partition, where there are any."""
        answer = await self._reader.answer(ApiKey.FETCH, _VERSION)
        found = answer.responses[0].partitions
        return {each.partition_index: len(bytes(each.records)) for each in found if each.records}


@pytest.fixture
async def waiting(broker: AsyncBroker) -> AsyncIterator[_Waiting]:
    await broker.node.topics.create("t", _PARTITIONS, {})
    async with WireClient(broker) as reader:
        yield _Waiting(broker, reader)


async def _open_transaction(client: WireClient) -> tuple[int, int]:
    answer = await client.ask(ApiKey.INIT_PRODUCER_ID, InitProducerIdRequest("x", 60_000))
    return answer.producer_id, answer.producer_epoch


async def _produce_in_transaction(client: WireClient, producer: tuple[int, int], sequence: int) -> None:
    records = batch(
        b"x", producer_id=producer[0], producer_epoch=producer[1], base_sequence=sequence, transactional=True
    )
    topics = (p.TopicProduceData(name="t", partition_data=(p.PartitionProduceData(3, records),)),)
    answer = await client.ask(ApiKey.PRODUCE, p.ProduceRequest("x", -1, 1000, topics), 12)
    assert answer.responses[0].partition_responses[0].error_code == 0


async def _a_turn(client: WireClient) -> None:
    """What an append has woken runs before a later request is answered."""
    await client.ask_api_versions()


async def test_appends_behind_an_open_transaction_wake_no_read_committed_fetch(
    client: WireClient, waiting: _Waiting
) -> None:
    producer = await _open_transaction(client)
    await _produce_in_transaction(client, producer, 0)
    await waiting.begin(committed=True)
    for sequence in range(1, 6):
        await _produce_in_transaction(client, producer, sequence)
    await _a_turn(client)
    assert waiting.reads == []
    assert (await client.ask(ApiKey.END_TXN, EndTxnRequest("x", *producer, committed=True), 5)).error_code == 0
    assert list(await waiting.records()) == [3]
    assert waiting.reads == [3]


async def test_a_marker_that_frees_nothing_wakes_no_read_committed_fetch(client: WireClient, waiting: _Waiting) -> None:
    first = await _open_transaction(client)
    await _produce_in_transaction(client, first, 0)
    other = await client.ask(ApiKey.INIT_PRODUCER_ID, InitProducerIdRequest("y", 60_000))
    records = batch(b"x", producer_id=other.producer_id, producer_epoch=0, base_sequence=0, transactional=True)
    topics = (p.TopicProduceData(name="t", partition_data=(p.PartitionProduceData(3, records),)),)
    await client.ask(ApiKey.PRODUCE, p.ProduceRequest("y", -1, 1000, topics), 12)
    await waiting.begin(committed=True)
    await client.ask(ApiKey.END_TXN, EndTxnRequest("y", other.producer_id, 0, committed=True), 5)
    await _a_turn(client)
    assert waiting.reads == []
    await client.ask(ApiKey.END_TXN, EndTxnRequest("x", *first, committed=True), 5)
    assert list(await waiting.records()) == [3]


@pytest.mark.parametrize("committed", [False, True])
async def test_a_waiting_fetch_reads_again_only_what_has_changed(
    client: WireClient, waiting: _Waiting, committed: bool
) -> None:
    small = batch(b"x" * 100)
    await waiting.begin(committed=committed, min_bytes=3 * len(small))
    await produce(client, None, small)
    await _a_turn(client)
    await produce(client, None, None, small)
    await _a_turn(client)
    assert set(waiting.reads) <= {0, 1, 2}
    waiting.reads.clear()
    await produce(client, small)
    assert await waiting.records() == {0: len(small), 1: len(small), 2: len(small)}
    assert set(waiting.reads) <= {0, 1, 2}


@pytest.mark.parametrize("committed", [False, True])
async def test_a_waiting_fetch_hears_of_its_topic_deleted(
    client: WireClient, broker: AsyncBroker, waiting: _Waiting, committed: bool
) -> None:
    await waiting.begin(committed=committed)
    await broker.node.topics.delete_all([broker.node.image.topics["t"]])
    assert await waiting.records() == {}


async def test_a_fetch_does_not_wait_for_more_where_more_is_in_the_next_segment(broker: AsyncBroker) -> None:
    """An answer ends where its segment does. A reader of what lies behind would wait at the end of each."""
    await broker.node.topics.create("t", 1, {"segment.bytes": "1048576"})
    async with WireClient(broker) as client:
        for _ in range(3):
            await produce(client, batch(bytes(700_000)))
        for level in (0, 1):
            for offset in (0, 1):
                options = {"max_wait_ms": 3_600_000, "min_bytes": 1_100_000, "max_bytes": 2**30}
                found = await fetch(client, offset, isolation_level=level, partition_max_bytes=2**30, **options)
                assert 700_000 < len(found.records) < 1_000_000
