"""Segments that end with a request: the event loop syncs no directory, and makes few new segments in one turn."""

import asyncio
from collections.abc import AsyncIterator, Generator, Iterable
from pathlib import Path

import pytest

from ottla.base.limits import MAX_INLINE_WRITE_BYTES
from ottla.base.steps import result_of
from ottla.broker.handlers.produce import AT_ONCE, ROLLS_AT_ONCE
from ottla.broker.runtime.partition import Partition
from ottla.broker.runtime.slices import TURN_MS
from ottla.log.results import NO_GUARD, Appended
from ottla.testing import AsyncBroker
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import produce as p
from ottla.wire.messages.end_txn import EndTxnRequest
from ottla.wire.messages.init_producer_id import InitProducerIdRequest
from tests.broker.full_disk import no_room
from tests.broker.own_syncs import syncs_of_this_thread
from tests.broker.ticking import TickingClock, some_turns_until, steps, turns
from tests.broker.wire_client import WireClient, batch

_MANY = 4 * ROLLS_AT_ONCE
_FEW = ROLLS_AT_ONCE // 2
_PRODUCE = 12
_NOW_MS = 1_700_000_000_000
#: What a full disk still has room for in each file: indexes, but no batch of twice the size.
_ROOM = 10_000
#: Two of these are too large for a segment.
_LARGE = batch(bytes(600_000))

pytestmark = pytest.mark.usefixtures("transaction_coordinator")


@pytest.fixture
async def broker(directory: Path) -> AsyncIterator[AsyncBroker]:
    """A record that is two milliseconds older than another one is in another segment."""
    async with AsyncBroker(data_dir=directory, clock=TickingClock()) as running:
        await running.node.topics.create("t", _MANY, {"segment.bytes": "1048576", "segment.ms": "1"})
        yield running


def _partition(broker: AsyncBroker, number: int, topic: str = "t") -> Partition:
    found = broker.node.partitions.find(topic, number)
    assert found is not None
    return found


def _segments(broker: AsyncBroker) -> int:
    return sum(len(_partition(broker, number).log._segments) for number in range(_MANY))


async def _ask(
    client: WireClient,
    numbers: Iterable[int],
    records: bytes,
    transactional_id: str | None = None,
    topic: str = "t",
) -> list[int]:
    """The errors."""
    data = tuple(p.PartitionProduceData(number, records) for number in numbers)
    request = p.ProduceRequest(transactional_id, -1, 60_000, (p.TopicProduceData(name=topic, partition_data=data),))
    answer = await client.ask(ApiKey.PRODUCE, request, _PRODUCE)
    return [each.error_code for each in answer.responses[0].partition_responses]


async def _produce(
    client: WireClient,
    numbers: Iterable[int],
    records: bytes = _LARGE,
    transactional_id: str | None = None,
    topic: str = "t",
) -> None:
    assert {*await _ask(client, numbers, records, transactional_id, topic)} == {ErrorCode.NONE}


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


def _being_written(partition: Partition, records: bytes) -> Generator[None, None, Appended]:
    """A large batch of somebody else, with which the test goes on."""
    work = partition.append_in_parts(records, now_ms=_NOW_MS, verification_guard=NO_GUARD, looked=None, max_named=1)
    next(work)
    return work


@pytest.mark.parametrize("goes", [False, True])
async def test_so_do_those_that_end_when_a_large_batch_of_another_is_there(
    broker: AsyncBroker, client: WireClient, goes: bool
) -> None:
    """The topic may go meanwhile, and its directory with it."""
    large = batch(bytes(MAX_INLINE_WRITE_BYTES))
    size = str(len(large))
    await broker.node.topics.create("u", 1, {"segment.bytes": size, "max.message.bytes": size})
    partition = _partition(broker, 0, "u")
    work = _being_written(partition, large)
    behind = asyncio.create_task(_ask(client, [0], batch(b"a"), topic="u"))
    await some_turns_until(lambda: bool(broker.node.slices._tasks))
    if goes:
        await broker.node.topics.delete_all([broker.node.image.topics["u"]])
    with syncs_of_this_thread() as made:
        result_of(work)
        errors = await behind
    assert made == []
    assert errors == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if goes else ErrorCode.NONE]
    assert len(partition.log._segments) == (1 if goes else 2)


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


async def test_so_do_those_whose_first_batch_the_disk_refuses(broker: AsyncBroker, client: WireClient) -> None:
    for values in (b"a", b"abc"):
        await _produce(client, range(_MANY), batch(*map(bytes, values)))
    before, refused = _segments(broker), batch(*map(bytes, b"abcde"), bytes(2 * _ROOM))
    with no_room(_ROOM):
        written = asyncio.create_task(_ask(client, range(_MANY), refused))
        assert max(steps(await turns(written, lambda: _segments(broker)))) <= TURN_MS
    assert await written == [ErrorCode.KAFKA_STORAGE_ERROR] * _MANY
    assert _segments(broker) == before + _MANY


def _begun(broker: AsyncBroker) -> int:
    return sum(_partition(broker, number).log.end_offset > 0 for number in range(_MANY))


@pytest.mark.parametrize("count", [ROLLS_AT_ONCE + 1, _MANY])
async def test_first_records_of_many_partitions_are_written_in_several_turns(
    broker: AsyncBroker, client: WireClient, count: int
) -> None:
    """With each comes a file, of the partition's leader epochs."""
    written = asyncio.create_task(_produce(client, range(count), batch(b"a")))
    assert max(steps(await turns(written, lambda: _begun(broker)))) <= TURN_MS
    await written
    assert _begun(broker) == count


@pytest.mark.parametrize("count", [_FEW, ROLLS_AT_ONCE])
async def test_first_records_of_a_few_are_written_at_once(broker: AsyncBroker, client: WireClient, count: int) -> None:
    written = asyncio.create_task(_produce(client, range(count), batch(b"a")))
    assert max(steps(await turns(written, lambda: _begun(broker)))) == count
    await written


def _records(broker: AsyncBroker) -> int:
    return sum(_partition(broker, number).log.end_offset for number in range(_MANY))


async def test_later_records_of_very_many_are_written_in_several_turns(broker: AsyncBroker, client: WireClient) -> None:
    """No file comes with them."""
    await _produce(client, range(_MANY), batch(b"a"))
    numbers = [*range(_MANY), *range(_MANY)]
    assert len(numbers) > AT_ONCE
    written = asyncio.create_task(_produce(client, numbers, batch(b"a")))
    assert max(steps(await turns(written, lambda: _records(broker)))) <= TURN_MS
    await written
    assert _records(broker) == 3 * _MANY
