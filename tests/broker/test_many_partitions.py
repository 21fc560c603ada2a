"""A produce to, and a fetch of, very many partitions: others are served meanwhile, and the answer is as for a few."""

import asyncio
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from ottla.base.types import TopicPartition
from ottla.broker.handlers import fetch, produce
from ottla.broker.handlers.parts import PART_PARTITIONS
from ottla.broker.runtime.partition import Partition
from ottla.broker.runtime.slices import TURN_MS
from ottla.log.results import Origin
from ottla.testing import AsyncBroker
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import add_partitions_to_txn as ap
from ottla.wire.messages import fetch as f
from ottla.wire.messages import produce as p
from ottla.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from ottla.wire.messages.describe_transactions import DescribeTransactionsRequest
from ottla.wire.messages.end_txn import EndTxnRequest
from ottla.wire.messages.init_producer_id import InitProducerIdRequest
from tests.broker.ticking import TickingClock, some_turns_until, steps, turns
from tests.broker.wire_client import WireClient, batch

_MANY = fetch.AT_ONCE + 5 * TURN_MS
#: Versions in which topics are named.
_PRODUCE, _FETCH = 12, 12

pytestmark = pytest.mark.usefixtures("transaction_coordinator")


@pytest.fixture
async def broker(directory: Path) -> AsyncIterator[AsyncBroker]:
    async with AsyncBroker(data_dir=directory, clock=TickingClock()) as running:
        await running.node.topics.create("t", _MANY, {})
        yield running


def _partition(broker: AsyncBroker, number: int) -> Partition:
    found = broker.node.partitions.find("t", number)
    assert found is not None
    return found


def _written(broker: AsyncBroker) -> int:
    return sum(_partition(broker, number).log.end_offset for number in range(_MANY))


def _produce_all(
    records: bytes, transactional_id: str | None = None, acks: int = -1, more: int = 0
) -> p.ProduceRequest:
    data = tuple(p.PartitionProduceData(number, records) for number in range(_MANY + more))
    return p.ProduceRequest(transactional_id, acks, 60_000, (p.TopicProduceData(name="t", partition_data=data),))


def _errors(answer: Any) -> list[tuple[int, int]]:
    return [(each.index, each.error_code) for topic in answer.responses for each in topic.partition_responses]


async def test_a_produce_to_many_partitions_lets_others_have_their_turns(
    broker: AsyncBroker, client: WireClient
) -> None:
    assert _MANY > produce.AT_ONCE
    written = asyncio.create_task(client.ask(ApiKey.PRODUCE, _produce_all(batch(b"a"), more=1), _PRODUCE))
    assert max(steps(await turns(written, lambda: _written(broker)))) <= TURN_MS
    missing = (_MANY, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert _errors(await written) == [*((number, ErrorCode.NONE) for number in range(_MANY)), missing]
    assert _written(broker) == _MANY


async def test_a_produce_of_many_bytes_lets_others_have_their_turns(broker: AsyncBroker, client: WireClient) -> None:
    records = batch(bytes(produce.BYTES_AT_ONCE // (produce.AT_ONCE - 10)))
    data = tuple(p.PartitionProduceData(number, records) for number in range(produce.AT_ONCE - 5))
    request = p.ProduceRequest(None, -1, 60_000, (p.TopicProduceData(name="t", partition_data=data),))
    written = asyncio.create_task(client.ask(ApiKey.PRODUCE, request, _PRODUCE))
    assert max(steps(await turns(written, lambda: _written(broker)))) <= TURN_MS
    assert _errors(await written) == [(number, ErrorCode.NONE) for number in range(len(data))]


async def test_a_refused_produce_without_an_answer_closes_the_connection_when_the_rest_is_written(
    broker: AsyncBroker, client: WireClient
) -> None:
    await client.send(ApiKey.PRODUCE, _produce_all(batch(b"a"), acks=0), _PRODUCE)
    assert await client.ask_api_versions()
    assert _written(broker) == _MANY
    await client.send(ApiKey.PRODUCE, _produce_all(batch(b"a"), acks=0, more=1), _PRODUCE)
    assert await client.is_closed()
    assert _written(broker) == 2 * _MANY


async def test_a_produce_in_a_transaction_adds_many_partitions_once(broker: AsyncBroker, client: WireClient) -> None:
    begun = await client.ask(ApiKey.INIT_PRODUCER_ID, InitProducerIdRequest("x", 60_000))
    producer = begun.producer_id, begun.producer_epoch
    options = {"producer_id": producer[0], "producer_epoch": producer[1], "base_sequence": 0, "transactional": True}
    coordinator = broker.node.transactions.partition_of("x")
    assert coordinator is not None
    log = broker.node.partitions.find(*coordinator)
    assert log is not None
    before = log.log.end_offset
    records = batch(b"a", **options)
    assert {error for _, error in _errors(await client.ask(ApiKey.PRODUCE, _produce_all(records, "x"), _PRODUCE))} == {
        0
    }
    assert log.log.end_offset == before + 1
    again = await client.ask(ApiKey.PRODUCE, _produce_all(records, "x"), _PRODUCE)
    assert {error for _, error in _errors(again)} == {0}, "it is a duplicate"
    assert _written(broker) == _MANY
    nobodys = await client.ask(ApiKey.PRODUCE, _produce_all(records), _PRODUCE)
    assert {error for _, error in _errors(nobodys)} == {ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}
    assert (await client.ask(ApiKey.END_TXN, EndTxnRequest("x", *producer, committed=True), 5)).error_code == 0


@pytest.mark.parametrize("version", [3, 4])
async def test_many_partitions_are_added_to_a_transaction_all_or_none(
    broker: AsyncBroker, client: WireClient, version: int
) -> None:
    begun = await client.ask(ApiKey.INIT_PRODUCER_ID, InitProducerIdRequest("x", 60_000))

    async def add(numbers: list[int]) -> list[int]:
        topics = (ap.AddPartitionsToTxnTopic("t", tuple(numbers)),)
        one = ap.AddPartitionsToTxnTransaction("x", begun.producer_id, begun.producer_epoch, False, topics)
        if version < 4:
            asked = ap.AddPartitionsToTxnRequest((), "x", begun.producer_id, begun.producer_epoch, topics)
        else:
            asked = ap.AddPartitionsToTxnRequest((one,))
        answer = asyncio.create_task(client.ask(ApiKey.ADD_PARTITIONS_TO_TXN, asked, version))
        assert len(await turns(answer, lambda: 0)) > len(numbers) // TURN_MS
        told = (await answer).results_by_topic_v3_and_below
        (topic,) = told if version < 4 else (await answer).results_by_transaction[0].topic_results
        return [each.partition_error_code for each in topic.results_by_partition]

    many = list(range(_MANY)) * (PART_PARTITIONS // _MANY + 1)
    missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await add([*many, _MANY]) == [ErrorCode.OPERATION_NOT_ATTEMPTED] * len(many) + [missing]
    state = await client.ask(ApiKey.DESCRIBE_TRANSACTIONS, DescribeTransactionsRequest(("x",)))
    assert not state.transaction_states[0].topics
    assert await add(many) == [ErrorCode.NONE] * len(many)
    state = await client.ask(ApiKey.DESCRIBE_TRANSACTIONS, DescribeTransactionsRequest(("x",)))
    assert [sorted(topic.partitions) for topic in state.transaction_states[0].topics] == [list(range(_MANY))]


async def test_the_producers_of_many_partitions_are_told_in_slices(broker: AsyncBroker, client: WireClient) -> None:
    records = batch(b"a", producer_id=7, producer_epoch=0, base_sequence=0)
    await client.ask(ApiKey.PRODUCE, _produce_all(records), _PRODUCE)
    asked = DescribeProducersRequest((TopicRequest("t", (*range(_MANY), _MANY)),))
    answer = asyncio.create_task(client.ask(ApiKey.DESCRIBE_PRODUCERS, asked))
    seen = await turns(answer, lambda: 0)
    assert len(seen) > _MANY // TURN_MS
    (topic,) = (await answer).topics
    assert [[each.producer_id for each in told.active_producers] for told in topic.partitions] == [*[[7]] * _MANY, []]


def _fetch_all(offset: int, *, max_wait_ms: int, committed: bool = False, twice: int = 0) -> f.FetchRequest:
    numbers = [*range(_MANY), *range(twice)]
    parts = tuple(f.FetchPartition(number, fetch_offset=offset, partition_max_bytes=2**20) for number in numbers)
    return f.FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=2**30,
        isolation_level=int(committed),
        session_epoch=-1,
        topics=(f.FetchTopic(topic="t", partitions=parts),),
    )


def _watched(broker: AsyncBroker) -> int:
    return sum(_partition(broker, number).watched for number in range(_MANY))


def _found(answer: Any) -> dict[int, int]:
    """Where there are records, and of how many bytes."""
    return {e.partition_index: len(bytes(e.records)) for t in answer.responses for e in t.partitions if e.records}


@pytest.mark.parametrize("committed", [False, True])
async def test_a_fetch_of_many_partitions_lets_others_have_their_turns(
    broker: AsyncBroker, client: WireClient, committed: bool
) -> None:
    records = batch(b"a")
    for number in range(0, _MANY, 2):
        broker.node.partitions.append(TopicPartition("t", number), records, origin=Origin.CLIENT)
    asked = _fetch_all(0, max_wait_ms=60_000, committed=committed, twice=3)
    answer = asyncio.create_task(client.ask(ApiKey.FETCH, asked, _FETCH))
    seen = await turns(answer, lambda: _watched(broker))
    assert 0 < max(after - before for before, after in pairwise(seen)) <= TURN_MS
    told = await answer
    assert _found(told) == {number: len(records) for number in range(0, _MANY, 2)}
    assert [each.partition_index for each in told.responses[0].partitions] == [*range(_MANY)], "each once"
    assert _watched(broker) == 0


@pytest.mark.parametrize("committed", [False, True])
@pytest.mark.parametrize("when", ["while it is read", "while it waits"])
async def test_what_comes_while_a_fetch_of_many_partitions_goes_on_is_in_its_answer(
    broker: AsyncBroker, client: WireClient, when: str, committed: bool
) -> None:
    enough = 1 if when == "while it is read" else _MANY
    asked = _fetch_all(0, max_wait_ms=60_000, committed=committed)
    answer = asyncio.create_task(client.ask(ApiKey.FETCH, asked, _FETCH))
    await some_turns_until(lambda: _watched(broker) >= enough)
    assert when == "while it waits" or _watched(broker) < _MANY
    broker.node.partitions.append(TopicPartition("t", 0), batch(b"a"), origin=Origin.CLIENT)
    told = await answer
    assert _found(told) == {0: len(batch(b"a"))}
    assert len(told.responses[0].partitions) == _MANY


async def test_a_fetch_of_many_partitions_ends_when_its_time_is_over_or_its_client_has_gone(
    broker: AsyncBroker, client: WireClient
) -> None:
    told = await client.ask(ApiKey.FETCH, _fetch_all(0, max_wait_ms=1), _FETCH)
    assert _found(told) == {}
    assert len(told.responses[0].partitions) == _MANY
    async with WireClient(broker) as gone:
        await gone.send(ApiKey.FETCH, _fetch_all(0, max_wait_ms=60_000), _FETCH)
        await some_turns_until(lambda: _watched(broker) == _MANY)
    await some_turns_until(lambda: _watched(broker) == 0)
    assert await client.ask_api_versions()
