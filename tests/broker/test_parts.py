"""Requests of very many partitions: others are served meanwhile, and the answer is the same."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.limits import MAX_INLINE_MARKERS
from ottla.base.types import TopicPartition
from ottla.broker.handlers.parts import PART_PARTITIONS, Part, joined, parts_of
from ottla.broker.handlers.table import TABLE
from ottla.broker.runtime.markers import Marker
from ottla.broker.runtime.slices import TURN_MS
from ottla.log.results import Origin
from ottla.testing import AsyncBroker
from ottla.wire.apis import API, ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import offset_fetch as of
from ottla.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.messages.end_txn import EndTxnRequest
from ottla.wire.messages.init_producer_id import InitProducerIdRequest
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from ottla.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from ottla.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.wire.schema import schema
from tests.broker.ticking import TickingClock, steps, turns
from tests.broker.wire_client import WireClient, batch

#: Partitions of a topic that requests name so often that they are of three parts and more.
_FEW = 60
_TIMES = 3 * PART_PARTITIONS // _FEW + 1
#: Everything that the group has committed.
_FETCH = OffsetFetchRequest((OffsetFetchRequestGroup("g", None, -1, None),))

pytestmark = pytest.mark.usefixtures("group_coordinator", "transaction_coordinator")


@pytest.fixture
async def broker(directory: Path) -> AsyncIterator[AsyncBroker]:
    async with AsyncBroker(data_dir=directory, clock=TickingClock()) as running:
        yield running


def _commit(group: str, topics: list[tuple[str, int]]) -> OffsetCommitRequest:
    return OffsetCommitRequest(
        group,
        topics=tuple(
            OffsetCommitRequestTopic(
                name=name, partitions=tuple(OffsetCommitRequestPartition(n, n) for n in range(count))
            )
            for name, count in topics
        ),
    )


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from([0, 1, 499, 500, 501, 999, 1000, 1700])), max_size=5))
def test_parts_are_the_whole_request_and_their_answers_the_whole_answer(topics: list[tuple[str, int]]) -> None:
    whole = _commit("g", topics)
    cut = parts_of(whole, 2**20) or (Part(whole, False),)
    named = [(topic.name, each) for part in cut for topic in part.request.topics for each in topic.partitions]
    assert named == [(topic.name, each) for topic in whole.topics for each in topic.partitions]
    assert all(sum(len(topic.partitions) for topic in part.request.topics) <= PART_PARTITIONS for part in cut)
    assert joined(cut, [part.request for part in cut]) == whole


def test_what_is_carried_out_in_parts_has_topics_and_partitions_in_request_and_answer() -> None:
    keys = [key for key, entry in TABLE.items() if entry.in_parts]
    assert len(keys) == 5
    for key in keys:
        for message in (API[ApiKey(key)].request, API[ApiKey(key)].response):
            (topics,) = (field.type for field in schema(message).fields if field.name == "topics")
            assert "partitions" in {field.name for field in schema(topics[0]).fields}


async def test_a_commit_of_many_partitions_lets_others_have_their_turns(
    broker: AsyncBroker, client: WireClient
) -> None:
    await broker.node.topics.create("t", _FEW, {})
    tp = broker.node.groups.partition_of("g")
    assert tp is not None
    partition = broker.node.partitions.find(*tp)
    assert partition is not None
    asked = _commit("g", [("nowhere", 2), *[("t", _FEW)] * _TIMES, ("t", _FEW + 1)])
    answer = asyncio.create_task(client.ask(ApiKey.OFFSET_COMMIT, asked, 9))
    seen = await turns(answer, lambda: partition.log.end_offset)
    assert max(steps(seen)) <= PART_PARTITIONS
    missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    committed = [(n, ErrorCode.NONE) for n in range(_FEW)]
    assert [
        (topic.name, [(each.partition_index, each.error_code) for each in topic.partitions])
        for topic in (await answer).topics
    ] == [
        ("nowhere", [(0, missing), (1, missing)]),
        *[("t", committed)] * _TIMES,
        ("t", [*committed, (_FEW, missing)]),
    ]
    fetched = await client.ask(ApiKey.OFFSET_FETCH, _FETCH, 9)
    (topic,) = fetched.groups[0].topics
    assert {each.partition_index: each.committed_offset for each in topic.partitions} == {n: n for n in range(_FEW)}
    await _deletes(broker, client, partition)


async def _deletes(broker: AsyncBroker, client: WireClient, coordinator: Any) -> None:
    """The same offsets deleted by a request, and those of another group with their topic."""
    every = tuple(OffsetDeleteRequestPartition(n) for n in range(_FEW))
    asked = OffsetDeleteRequest("g", (OffsetDeleteRequestTopic("t", every),) * _TIMES)
    answer = asyncio.create_task(client.ask(ApiKey.OFFSET_DELETE, asked))
    assert max(steps(await turns(answer, lambda: coordinator.log.end_offset))) <= PART_PARTITIONS
    deleted = [(n, 0) for n in range(_FEW)]
    told = [[(each.partition_index, each.error_code) for each in topic.partitions] for topic in (await answer).topics]
    assert told == [deleted] * _TIMES

    def there() -> int:
        return sum(broker.node.partitions.find("t", n) is not None for n in range(_FEW))

    gone = asyncio.create_task(client.ask(ApiKey.DELETE_TOPICS, DeleteTopicsRequest((DeleteTopicState("t"),))))
    assert max(steps(await turns(gone, there))) <= TURN_MS
    assert there() == 0


async def _open(client: WireClient) -> tuple[int, int]:
    begun = await client.ask(ApiKey.INIT_PRODUCER_ID, InitProducerIdRequest("x", 60_000))
    assert begun.error_code == 0
    return begun.producer_id, begun.producer_epoch


def _ends(broker: AsyncBroker, count: int) -> list[int]:
    found = [broker.node.partitions.find("t", number) for number in range(count)]
    return [each.log.end_offset for each in found if each is not None]


async def test_offsets_of_many_partitions_are_fetched_in_parts(broker: AsyncBroker, client: WireClient) -> None:
    many = 3 * PART_PARTITIONS + 7
    await broker.node.topics.create("t", _FEW, {})
    await broker.node.topics.create("u", 2, {})
    await client.ask(ApiKey.OFFSET_COMMIT, _commit("g", [("t", _FEW), ("u", 2)]), 9)
    numbers = tuple(n % (_FEW + 1) for n in range(many))
    asked = [of.OffsetFetchRequestTopics(name="u", partition_indexes=(1,))]
    asked += [of.OffsetFetchRequestTopics(name="t", partition_indexes=numbers)]
    groups = (OffsetFetchRequestGroup("g", topics=tuple(asked)), OffsetFetchRequestGroup("nobody", topics=tuple(asked)))
    answer = asyncio.create_task(client.ask(ApiKey.OFFSET_FETCH, OffsetFetchRequest(groups), 9))
    assert len(await turns(answer, lambda: 0)) > 2 * many // PART_PARTITIONS
    told, nothing = (await answer).groups
    expected = [("u", [(1, 1)]), ("t", [(n, -1 if n == _FEW else n) for n in numbers])]
    assert _offsets(told) == expected
    assert _offsets(nothing) == [(name, [(n, -1) for n, _ in each]) for name, each in expected]


def _offsets(group: Any) -> list[tuple[str, list[tuple[int, int]]]]:
    return [(t.name, [(each.partition_index, each.committed_offset) for each in t.partitions]) for t in group.topics]


async def test_all_offsets_of_a_group_with_many_are_fetched_in_parts(broker: AsyncBroker, client: WireClient) -> None:
    many = PART_PARTITIONS + 1
    await broker.node.topics.create("t", many, {})
    await client.ask(ApiKey.OFFSET_COMMIT, _commit("g", [("t", many)]), 9)
    told = (await client.ask(ApiKey.OFFSET_FETCH, _FETCH, 9)).groups[0]
    assert _offsets(told) == [("t", [(n, n) for n in range(many)])]
    by_id = (await client.ask(ApiKey.OFFSET_FETCH, _FETCH, 10)).groups[0]
    assert [len(each.partitions) for each in by_id.topics] == [many]
    assert by_id.topics[0].topic_id == broker.node.image.topics["t"].topic_id


async def test_a_transaction_of_many_partitions_gets_its_markers_in_slices(
    broker: AsyncBroker, client: WireClient
) -> None:
    from ottla.wire.messages import add_partitions_to_txn as ap

    many = 2 * MAX_INLINE_MARKERS
    await broker.node.topics.create("t", many, {})
    producer = await _open(client)
    topics = (ap.AddPartitionsToTxnTopic("t", tuple(range(many))),)
    transaction = ap.AddPartitionsToTxnTransaction("x", *producer, False, topics)
    await client.ask(ApiKey.ADD_PARTITIONS_TO_TXN, ap.AddPartitionsToTxnRequest((transaction,)), 5)
    every = tuple(TxnOffsetCommitRequestPartition(n, n) for n in range(_FEW))
    commit = TxnOffsetCommitRequest("x", "g", *producer, topics=(TxnOffsetCommitRequestTopic("t", every),) * _TIMES)
    committed = await client.ask(ApiKey.TXN_OFFSET_COMMIT, commit)
    assert [each.error_code for topic in committed.topics for each in topic.partitions] == [0] * _FEW * _TIMES
    ended = asyncio.create_task(client.ask(ApiKey.END_TXN, EndTxnRequest("x", *producer, True)))
    seen = await turns(ended, lambda: sum(_ends(broker, many)))
    while seen[-1] < many:
        await asyncio.sleep(0)
        seen.append(sum(_ends(broker, many)))
    assert max(steps(seen)) <= TURN_MS
    assert (await ended).error_code == ErrorCode.NONE
    fetched = await client.ask(ApiKey.OFFSET_FETCH, _FETCH, 9)
    assert len(fetched.groups[0].topics[0].partitions) == _FEW
    assert await _open(client) > producer  # the transaction is over


async def test_markers_end_where_nobody_wants_them_any_more(broker: AsyncBroker) -> None:
    many = 2 * MAX_INLINE_MARKERS
    await broker.node.topics.create("t", many, {})
    partitions = [TopicPartition("t", number) for number in range(many)]
    for wanted, count in ((many // 2, many), (5, 20)):
        before = sum(_ends(broker, many))
        left = iter(range(wanted))
        results = await broker.node.markers.write(
            partitions[:count],
            Marker(7, 0, True, 0, 0),
            lambda left=left: next(left, None) is not None,  # type: ignore[misc]
        )
        assert len(results) == sum(_ends(broker, many)) - before == wanted


async def test_records_of_many_partitions_are_deleted_in_slices(broker: AsyncBroker, client: WireClient) -> None:
    many = 10 * TURN_MS
    await broker.node.topics.create("t", many, {})
    for number in range(many):
        broker.node.partitions.append(TopicPartition("t", number), batch(b"a", b"b"), origin=Origin.CLIENT)
    every = tuple(DeleteRecordsPartition(number, 1) for number in range(many + 1))
    asked = DeleteRecordsRequest((DeleteRecordsTopic("t", every), DeleteRecordsTopic("nowhere", every[:1])), 60_000)
    answer = asyncio.create_task(client.ask(ApiKey.DELETE_RECORDS, asked))

    def starts() -> int:
        found = [broker.node.partitions.find("t", number) for number in range(many)]
        return sum(each.log.log_start_offset for each in found if each is not None)

    assert max(steps(await turns(answer, starts))) <= TURN_MS
    there, nowhere = (await answer).topics
    assert [(each.low_watermark, each.error_code) for each in there.partitions] == [
        *[(1, ErrorCode.NONE)] * many,
        (-1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert [each.error_code for each in nowhere.partitions] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
