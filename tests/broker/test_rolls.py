"""Segments that end with a request: the event loop syncs no directory, and makes few new segments in one turn."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import pytest

from ottla.broker.handlers.produce import ROLLS_AT_ONCE
from ottla.broker.runtime.partition import Partition
from ottla.broker.runtime.slices import TURN_MS
from ottla.testing import AsyncBroker
from ottla.wire.apis import ApiKey
from ottla.wire.messages import produce as p
from ottla.wire.messages.end_txn import EndTxnRequest
from ottla.wire.messages.init_producer_id import InitProducerIdRequest
from tests.broker.own_syncs import syncs_of_this_thread
from tests.broker.ticking import TickingClock, some_turns_until, steps, turns
from tests.broker.wire_client import WireClient, batch

_MANY = 4 * ROLLS_AT_ONCE
_FEW = ROLLS_AT_ONCE // 2
_PRODUCE = 12
#: Two of these are too large for a segment.
_LARGE = batch(bytes(600_000))

pytestmark = pytest.mark.usefixtures("transaction_coordinator")


@pytest.fixture
async def broker(directory: Path) -> AsyncIterator[AsyncBroker]:
    """A record that is two milliseconds older than another one is in another segment."""
    async with AsyncBroker(data_dir=directory, clock=TickingClock()) as running:
        await running.node.topics.create("t", _MANY, {"segment.bytes": "1048576", "segment.ms": "1"})
        yield running


def _partition(broker: AsyncBroker, number: int) -> Partition:
    found = broker.node.partitions.find("t", number)
    assert found is not None
    return found


def _segments(broker: AsyncBroker) -> int:
    return sum(len(_partition(broker, number).log._segments) for number in range(_MANY))


async def _produce(
    client: WireClient, numbers: Iterable[int], records: bytes = _LARGE, transactional_id: str | None = None
) -> None:
    data = tuple(p.PartitionProduceData(number, records) for number in numbers)
    request = p.ProduceRequest(transactional_id, -1, 60_000, (p.TopicProduceData(name="t", partition_data=data),))
    answer = await client.ask(ApiKey.PRODUCE, request, _PRODUCE)
    assert {each.error_code for topic in answer.responses for each in topic.partition_responses} == {0}


@pytest.mark.parametrize("count", [1, _FEW, _MANY])
async def test_first_segments_that_end_have_their_names_synced_in_another_thread(
    broker: AsyncBroker, client: WireClient, count: int
) -> None:
    await _produce(client, range(count))
    with syncs_of_this_thread() as made:
        await _produce(client, range(count))
    assert (_segments(broker), made) == (_MANY + count, [])
    assert all(_partition(broker, number).log._segments.is_named for number in range(count))


async def test_so_do_those_that_one_request_ends_itself(broker: AsyncBroker, client: WireClient) -> None:
    with syncs_of_this_thread() as made:
        await _produce(client, [0, 0, 1, 1, 1])
    assert (_segments(broker), made) == (_MANY + 3, [])


async def test_so_do_those_that_end_with_a_transaction(broker: AsyncBroker, client: WireClient) -> None:
    begun = await client.ask(ApiKey.INIT_PRODUCER_ID, InitProducerIdRequest("x", 60_000))
    producer = begun.producer_id, begun.producer_epoch
    how = {"producer_id": producer[0], "producer_epoch": producer[1], "base_sequence": 0, "transactional": True}
    await _produce(client, range(_FEW), batch(b"a", **how), "x")
    with syncs_of_this_thread() as made:
        answer = await client.ask(ApiKey.END_TXN, EndTxnRequest("x", *producer, committed=True), 4)
        assert answer.error_code == 0
        await some_turns_until(lambda: _segments(broker) == _MANY + _FEW)
    assert made == []


async def test_many_segments_that_end_at_once_end_in_several_turns(broker: AsyncBroker, client: WireClient) -> None:
    for values in (b"a", b"abc"):
        await _produce(client, range(_MANY), batch(*map(bytes, values)))
    before = _segments(broker)
    written = asyncio.create_task(_produce(client, range(_MANY), batch(*map(bytes, b"abcde"))))
    assert max(steps(await turns(written, lambda: _segments(broker)))) <= TURN_MS
    await written
    assert _segments(broker) == before + _MANY


def _begun(broker: AsyncBroker) -> int:
    return sum(_partition(broker, number).log.end_offset > 0 for number in range(_MANY))


async def test_first_records_of_many_partitions_are_written_in_several_turns(
    broker: AsyncBroker, client: WireClient
) -> None:
    """With each comes a file, of the partition's leader epochs."""
    written = asyncio.create_task(_produce(client, range(_MANY), batch(b"a")))
    assert max(steps(await turns(written, lambda: _begun(broker)))) <= TURN_MS
    await written
    assert _begun(broker) == _MANY


async def test_first_records_of_a_few_are_written_at_once(broker: AsyncBroker, client: WireClient) -> None:
    written = asyncio.create_task(_produce(client, range(_FEW), batch(b"a")))
    assert max(steps(await turns(written, lambda: _begun(broker)))) == _FEW
    await written
