"""A batch that only a raised `max.message.bytes` allows is written in parts: no turn of the loop is long for it."""

import asyncio
from collections.abc import AsyncIterator, Generator
from pathlib import Path
from typing import Any

import pytest

from ottla.base.limits import MAX_INLINE_WRITE_BYTES, WRITTEN_AT_ONCE_BYTES
from ottla.base.steps import result_of
from ottla.base.types import TopicPartition
from ottla.broker.runtime.markers import Marker
from ottla.broker.runtime.partition import Partition
from ottla.log.results import NO_GUARD, Appended, Isolation
from ottla.testing import AsyncBroker
from ottla.wire.apis import ApiKey
from ottla.wire.batch import iter_headers
from ottla.wire.compression import Compression
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import produce as p
from ottla.wire.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from ottla.wire.messages.delete_topics import DeleteTopicsRequest
from ottla.wire.messages.end_txn import EndTxnRequest
from ottla.wire.messages.init_producer_id import InitProducerIdRequest
from ottla.wire.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from tests.broker.records_io import fetch
from tests.broker.ticking import TickingClock, some_turns_until, steps, turns
from tests.broker.wire_client import WireClient, batch

_PRODUCE = 12
_PARTITIONS = 3
_SIZE = 4 * WRITTEN_AT_ONCE_BYTES
_LARGE = batch(bytes(_SIZE))
_TAKES_IT = {"max.message.bytes": str(2 * _SIZE)}
_FEW_TURNS = 50
_NOW_MS = 1_700_000_000_000

pytestmark = pytest.mark.usefixtures("transaction_coordinator")


@pytest.fixture
async def broker(directory: Path) -> AsyncIterator[AsyncBroker]:
    """With a clock by which each part is a slice of its own."""
    async with AsyncBroker(data_dir=directory, clock=TickingClock()) as running:
        await running.node.topics.create("t", _PARTITIONS, _TAKES_IT)
        yield running


@pytest.fixture
async def other(broker: AsyncBroker) -> AsyncIterator[WireClient]:
    """Another client."""
    async with WireClient(broker, "other") as connected:
        yield connected


def _partition(broker: AsyncBroker, number: int = 0) -> Partition:
    found = broker.node.partitions.find("t", number)
    assert found is not None
    return found


def _request(*records: tuple[int, bytes], acks: int = -1, transactional_id: str | None = None) -> p.ProduceRequest:
    data = tuple(p.PartitionProduceData(number, each) for number, each in records)
    return p.ProduceRequest(transactional_id, acks, 60_000, (p.TopicProduceData(name="t", partition_data=data),))


async def _produce(client: WireClient, *records: tuple[int, bytes], **how: Any) -> list[tuple[int, int]]:
    """The error and the base offset of each."""
    answer = await client.ask(ApiKey.PRODUCE, _request(*records, **how), _PRODUCE)
    return [(each.error_code, each.base_offset) for each in answer.responses[0].partition_responses]


def _begun(partition: Partition) -> Generator[None, None, Appended]:
    """A large batch of somebody that is being written, as far as the test goes on with it."""
    work = partition.append_in_parts(_LARGE, now_ms=_NOW_MS, verification_guard=NO_GUARD, looked=None, max_named=1)
    next(work)
    assert partition.is_held
    return work


async def _waits(answer: "asyncio.Task[Any]") -> bool:
    for _ in range(_FEW_TURNS):
        await asyncio.sleep(0)
    return not answer.done()


def _sizes(partition: Partition) -> list[int]:
    (piece,) = partition.log.read(0, 10**8).slices
    return [header.size_bytes for _, header in iter_headers(piece.read())]


def _file_bytes(broker: AsyncBroker) -> int:
    return sum(_partition(broker, number).log._segments.active.log.size_bytes for number in range(_PARTITIONS))


async def _count(client: WireClient) -> None:
    """From now on there are quotas, by which nobody is kept waiting."""
    unlimited = EntryData((EntityData("client-id", None),), (OpData("request_percentage", 1e9, False),))
    await client.ask(ApiKey.ALTER_CLIENT_QUOTAS, AlterClientQuotasRequest((unlimited,)), 1)


@pytest.mark.parametrize("numbers", [(0,), (0, 1, 2), (0, 0)])
async def test_each_turn_writes_a_part_and_all_is_there(
    broker: AsyncBroker, client: WireClient, numbers: tuple[int, ...]
) -> None:
    answer = asyncio.create_task(_produce(client, *((number, _LARGE) for number in numbers)))
    written = steps(await turns(answer, lambda: _file_bytes(broker)))
    assert 0 < max(written) <= WRITTEN_AT_ONCE_BYTES
    offsets = [numbers[:at].count(number) for at, number in enumerate(numbers)]
    assert await answer == [(0, offset) for offset in offsets]
    for number in set(numbers):
        assert _sizes(_partition(broker, number)) == [len(_LARGE)] * numbers.count(number)


async def test_with_quotas_too(broker: AsyncBroker, client: WireClient) -> None:
    await _count(client)
    answer = asyncio.create_task(_produce(client, (0, _LARGE)))
    written = steps(await turns(answer, lambda: _file_bytes(broker)))
    assert (max(written) <= WRITTEN_AT_ONCE_BYTES, await answer) == (True, [(0, 0)])


async def test_one_that_a_topic_compresses_anew(broker: AsyncBroker, client: WireClient) -> None:
    """What comes is small, what is written is large."""
    await broker.node.topics.create("u", 1, {**_TAKES_IT, "compression.type": "uncompressed"})
    found = broker.node.partitions.find("u", 0)
    assert found is not None
    partition, small = found, batch(bytes(_SIZE), compression=Compression.ZSTD)
    data = (p.TopicProduceData(name="u", partition_data=(p.PartitionProduceData(0, small),)),)
    request = p.ProduceRequest(None, -1, 60_000, data)
    answer = asyncio.create_task(client.ask(ApiKey.PRODUCE, request, _PRODUCE))
    written = steps(await turns(answer, lambda: partition.log._segments.active.log.size_bytes))
    assert (len(small) < 10_000, max(written) <= WRITTEN_AT_ONCE_BYTES) == (True, True)
    assert (await answer).responses[0].partition_responses[0].error_code == ErrorCode.NONE
    assert _sizes(partition) == [len(_LARGE)]


async def test_who_writes_to_the_partition_waits_and_nobody_else_does(
    broker: AsyncBroker, client: WireClient, other: WireClient
) -> None:
    work = _begun(_partition(broker))
    behind = asyncio.create_task(_produce(client, (0, batch(b"a"))))
    assert await _waits(behind)
    assert await _produce(other, (1, batch(b"b"))) == [(0, 0)]
    assert result_of(work).base_offset == 0
    assert await behind == [(0, 1)]
    assert not _partition(broker).is_held


async def test_so_does_a_request_for_several_and_another_large_one(
    broker: AsyncBroker, client: WireClient, other: WireClient
) -> None:
    """They wait in their order, and again where the first of them is large, too."""
    work = _begun(_partition(broker))
    large = asyncio.create_task(_produce(client, (1, batch(b"a")), (0, _LARGE), (2, batch(b"b"))))
    assert await _waits(large)
    small = asyncio.create_task(_produce(other, (0, batch(b"c"))))
    assert await _waits(small)
    result_of(work)
    assert (await large, await small) == ([(0, 0), (0, 1), (0, 0)], [(0, 2)])
    assert _sizes(_partition(broker)) == [len(_LARGE), len(_LARGE), len(batch(b"c"))]


@pytest.mark.parametrize("commit", [True, False])
async def test_so_does_the_marker_of_another_producers_transaction(
    broker: AsyncBroker, client: WireClient, commit: bool
) -> None:
    begun = await client.ask(ApiKey.INIT_PRODUCER_ID, InitProducerIdRequest("x", 60_000))
    producer = begun.producer_id, begun.producer_epoch
    how = {"producer_id": producer[0], "producer_epoch": producer[1], "base_sequence": 0, "transactional": True}
    records = [(number, batch(b"a", **how)) for number in (0, 1)]
    assert await _produce(client, *records, transactional_id="x") == [(0, 0), (0, 0)]
    log, work = _partition(broker).log, _begun(_partition(broker))
    await client.ask(ApiKey.END_TXN, EndTxnRequest("x", *producer, committed=commit), 4)
    for _ in range(_FEW_TURNS):
        await asyncio.sleep(0)
    assert (log.end_offset, log.last_stable_offset) == (1, 0)
    assert result_of(work).base_offset == 1
    await some_turns_until(lambda: log.last_stable_offset == 3)
    (piece,) = log.read(0, 10**8, isolation=Isolation.READ_COMMITTED).slices
    assert [header.is_control for _, header in iter_headers(piece.read())] == [False, False, True]


async def test_one_may_begin_a_transaction(broker: AsyncBroker, client: WireClient) -> None:
    begun = await client.ask(ApiKey.INIT_PRODUCER_ID, InitProducerIdRequest("x", 60_000))
    how = {"producer_id": begun.producer_id, "producer_epoch": begun.producer_epoch, "transactional": True}
    large = batch(bytes(_SIZE), base_sequence=0, **how)
    assert await _produce(client, (0, large), transactional_id="x") == [(0, 0)]
    assert _partition(broker).log.last_stable_offset == 0


async def test_a_marker_that_is_not_wanted_any_more_by_then_is_not_written(broker: AsyncBroker) -> None:
    """Its coordinator is read again meanwhile, and has it written anew."""
    work, is_wanted = _begun(_partition(broker)), True
    marking = broker.node.markers.write([TopicPartition("t", 0)], Marker(12_345, 0, False, 0, 0), lambda: is_wanted)
    for _ in range(_FEW_TURNS):
        await asyncio.sleep(0)
    is_wanted = False
    result_of(work)
    assert (await marking, _partition(broker).log.end_offset) == ({}, 1)


async def test_the_topic_may_go_meanwhile(broker: AsyncBroker, client: WireClient, other: WireClient) -> None:
    work = _begun(_partition(broker))
    behind = asyncio.create_task(_produce(client, (0, batch(b"a"))))
    assert await _waits(behind)
    deleted = await other.ask(ApiKey.DELETE_TOPICS, DeleteTopicsRequest(topic_names=("t",), timeout_ms=60_000), 5)
    assert deleted.responses[0].error_code == ErrorCode.NONE
    result_of(work)
    assert await behind == [(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)]


async def _replace_the_topic(broker: AsyncBroker, client: WireClient) -> None:
    """With another of the same name."""
    deleted = await client.ask(ApiKey.DELETE_TOPICS, DeleteTopicsRequest(topic_names=("t",), timeout_ms=60_000), 5)
    assert deleted.responses[0].error_code == ErrorCode.NONE
    await broker.node.topics.create("t", _PARTITIONS, _TAKES_IT)


async def test_who_waits_finds_the_topic_that_has_its_name_by_then(
    broker: AsyncBroker, client: WireClient, other: WireClient
) -> None:
    """A large batch is being written to that, too."""
    work = _begun(_partition(broker))
    behind = asyncio.create_task(_produce(client, (0, batch(b"a"))))
    assert await _waits(behind)
    await _replace_the_topic(broker, other)
    following = _begun(_partition(broker))
    result_of(work)
    assert await _waits(behind)
    assert result_of(following).base_offset == 0
    assert await behind == [(0, 1)]


async def test_so_does_a_marker(broker: AsyncBroker, client: WireClient, other: WireClient) -> None:
    work = _begun(_partition(broker))
    marker = WritableTxnMarker(12_345, 0, False, (WritableTxnMarkerTopic("t", (0,)),), 0)
    marking = asyncio.create_task(client.ask(ApiKey.WRITE_TXN_MARKERS, WriteTxnMarkersRequest((marker,)), 1))
    assert await _waits(marking)
    await _replace_the_topic(broker, other)
    following = _begun(_partition(broker))
    result_of(work)
    assert await _waits(marking)
    assert result_of(following).base_offset == 0
    assert (await marking).markers[0].topics[0].partitions[0].error_code == ErrorCode.NONE
    assert _partition(broker).log.end_offset == 2


@pytest.mark.parametrize("has_quotas", [True, False])
async def test_a_client_that_goes_in_its_middle_lets_go(
    broker: AsyncBroker, client: WireClient, has_quotas: bool
) -> None:
    """Also where somebody keeps the task that was to write it, and with its fault all that it had."""
    if has_quotas:
        await _count(client)
    partition = _partition(broker)
    async with WireClient(broker, "goes") as goes:
        await goes.send(ApiKey.PRODUCE, _request((0, _LARGE)), _PRODUCE)
        await some_turns_until(lambda: partition.is_held)
        writing = tuple(broker.node.slices._tasks)
    await some_turns_until(lambda: all(each.done() for each in writing))
    assert ([each.cancelled() for each in writing], partition.is_held) == ([True], False)
    assert await _produce(client, (0, batch(b"a"))) == [(0, 0)]
    assert _sizes(partition) == [len(batch(b"a"))]


async def test_one_of_those_who_wait_may_go(broker: AsyncBroker, client: WireClient) -> None:
    work = _begun(_partition(broker))
    async with WireClient(broker, "goes") as goes:
        gone = asyncio.create_task(_produce(goes, (0, batch(b"a"))))
        behind = asyncio.create_task(_produce(client, (0, batch(b"b"))))
        assert await _waits(gone)
        gone.cancel()
    waiting = broker.node.slices._tasks
    await some_turns_until(lambda: len(waiting) == 1)
    assert result_of(work).base_offset == 0
    assert await behind == [(0, 1)]
    assert _sizes(_partition(broker)) == [len(_LARGE), len(batch(b"b"))]


async def test_a_small_one_of_the_same_request_is_written_at_once(broker: AsyncBroker, client: WireClient) -> None:
    """One that is as large as may be written in a turn is small."""
    small = batch(bytes(MAX_INLINE_WRITE_BYTES - len(batch(bytes(MAX_INLINE_WRITE_BYTES))) + MAX_INLINE_WRITE_BYTES))
    assert len(small) == MAX_INLINE_WRITE_BYTES
    answer = asyncio.create_task(_produce(client, (0, small), (1, _LARGE)))
    held = [await turns(answer, lambda: 2 * _partition(broker).is_held + _partition(broker, 1).is_held)]
    assert {*held[0]} == {0, 1}
    assert await answer == [(0, 0), (0, 0)]


async def test_a_fetch_that_waits_is_answered_when_all_of_it_is_there(
    broker: AsyncBroker, client: WireClient, other: WireClient
) -> None:
    waiting = asyncio.create_task(fetch(other, max_wait_ms=600_000))
    await some_turns_until(lambda: _partition(broker).watched)
    assert await _produce(client, (0, _LARGE)) == [(0, 0)]
    found = await waiting
    assert (found.high_watermark, len(found.records)) == (1, len(_LARGE))


async def test_without_acks_and_a_client_that_goes_it_is_written(broker: AsyncBroker, other: WireClient) -> None:
    await other.send(ApiKey.PRODUCE, _request((0, _LARGE), acks=0), _PRODUCE)
    await other.drained()
    await some_turns_until(lambda: _partition(broker).log.end_offset == 1)
    assert _sizes(_partition(broker)) == [len(_LARGE)]


async def test_a_stop_in_its_middle_leaves_nothing_of_it(tmp_path: Path) -> None:
    async with AsyncBroker(data_dir=tmp_path, clock=TickingClock()) as broker:
        await broker.node.topics.create("t", _PARTITIONS, _TAKES_IT)
        async with WireClient(broker) as client:
            assert await _produce(client, (0, batch(b"a"))) == [(0, 0)]
            await client.send(ApiKey.PRODUCE, _request((0, _LARGE)), _PRODUCE)
            partition = _partition(broker)
            await some_turns_until(lambda: partition.is_held)
    async with AsyncBroker(data_dir=tmp_path) as again:
        partition = _partition(again)
        assert (partition.tp, partition.log.findings.truncated_bytes) == (TopicPartition("t", 0), 0)
        async with WireClient(again) as client:
            assert await _produce(client, (0, batch(b"b"))) == [(0, partition.log.end_offset - 1)]
        sizes = _sizes(partition)
        assert sizes in ([len(batch(b"a")), len(batch(b"b"))], [len(batch(b"a")), len(_LARGE), len(batch(b"b"))])
