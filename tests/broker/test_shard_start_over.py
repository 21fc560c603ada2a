"""A coordinator shard that is read again from its log: clients are told to wait, and nothing is lost meanwhile."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from ottla.base.require import InvariantError
from ottla.broker.node import load_coordinators
from ottla.broker.runtime.shard import ShardRunner
from ottla.broker.runtime.slices import TURN_MS
from ottla.coordinator.decision import Decision
from ottla.coordinator.group.shard import GroupShard
from ottla.testing import AsyncBroker
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import txn_offset_commit as toc
from ottla.wire.messages.heartbeat import HeartbeatRequest
from ottla.wire.messages.init_producer_id import InitProducerIdRequest
from ottla.wire.messages.list_transactions import ListTransactionsRequest
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from tests.broker.ticking import TickingClock, some_turns_until
from tests.broker.wire_client import WireClient

_COMMITS = 30 * TURN_MS


@pytest.fixture
async def broker() -> AsyncIterator[AsyncBroker]:
    async with AsyncBroker({"offsets.topic.num.partitions": 1}, clock=TickingClock()) as running:
        await running.node.topics.create("t", 1, {})
        await running.node.groups.ready()
        await running.node.transactions.ready()
        yield running


@pytest.fixture
async def client(broker: AsyncBroker) -> AsyncIterator[WireClient]:
    """A client that has committed offsets often enough for the log to take several slices."""
    async with WireClient(broker) as connected:
        for offset in range(_COMMITS):
            one = (OffsetCommitRequestPartition(0, offset, -1, ""),)
            request = OffsetCommitRequest("g", -1, "", None, -1, (OffsetCommitRequestTopic(name="t", partitions=one),))
            answer = await connected.ask(ApiKey.OFFSET_COMMIT, request, 8)
            assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE
        yield connected


def _broken(now_ms: int) -> Decision:
    raise InvariantError("broken")


def _runner(broker: AsyncBroker) -> ShardRunner[GroupShard]:
    runner = broker.node.groups.runner(0)
    assert runner is not None
    return runner


async def _committed(client: WireClient) -> tuple[int, int]:
    """Error and offset."""
    group = OffsetFetchRequestGroup("g", topics=(OffsetFetchRequestTopics(name="t", partition_indexes=(0,)),))
    answer = (await client.ask(ApiKey.OFFSET_FETCH, OffsetFetchRequest(groups=(group,)), 8)).groups[0]
    return answer.error_code, answer.topics[0].partitions[0].committed_offset if answer.topics else -1


async def _loaded(broker: AsyncBroker) -> None:
    await some_turns_until(lambda: not broker.node.groups.loading)


async def test_clients_are_told_to_wait_while_a_shard_is_read_again(broker: AsyncBroker, client: WireClient) -> None:
    _runner(broker).tell(_broken)
    assert await _committed(client) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1)
    heartbeat = await client.ask(ApiKey.HEARTBEAT, HeartbeatRequest("g", 1, "m"))
    assert heartbeat.error_code == ErrorCode.NONE, (
        "as in Apache Kafka: nobody is told to leave by a shard that does not know"
    )
    await _loaded(broker)
    assert await _committed(client) == (0, _COMMITS - 1)


async def test_a_topic_deleted_meanwhile_loses_its_committed_offsets(broker: AsyncBroker, client: WireClient) -> None:
    _runner(broker).tell(_broken)
    await broker.node.topics.delete_all([broker.node.image.topics["t"]])
    await _loaded(broker)
    assert await _committed(client) == (0, -1)


async def test_a_topic_deleted_while_shards_load_at_the_start_loses_its_committed_offsets(
    broker: AsyncBroker, client: WireClient
) -> None:
    node = broker.node
    node.groups.unload()
    loading = asyncio.create_task(node.groups.load())
    await asyncio.sleep(0)
    assert node.groups.loading
    await node.topics.delete_all([node.image.topics["t"]])
    await loading
    assert await _committed(client) == (0, -1)


async def test_transactions_are_loading_while_groups_are(broker: AsyncBroker, client: WireClient) -> None:
    await client.ask(ApiKey.INIT_PRODUCER_ID, InitProducerIdRequest("x", 60_000))
    node = broker.node
    node.groups.unload()
    node.transactions.unload()
    loading = asyncio.create_task(load_coordinators(node))
    answer = await client.ask(ApiKey.LIST_TRANSACTIONS, ListTransactionsRequest())
    assert answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    await loading
    answer = await client.ask(ApiKey.LIST_TRANSACTIONS, ListTransactionsRequest())
    assert [each.transactional_id for each in answer.transaction_states] == ["x"]


async def test_t14_transactions_are_not_listed_while_a_shard_of_them_is_not_available(
    broker: AsyncBroker, client: WireClient
) -> None:
    """As when its log cannot be read: what it has would be missing in silence, and look as if nobody had it."""
    await client.ask(ApiKey.INIT_PRODUCER_ID, InitProducerIdRequest("x", 60_000))
    next(broker.node.transactions.active()).unload()
    answer = await client.ask(ApiKey.LIST_TRANSACTIONS, ListTransactionsRequest())
    assert (answer.error_code, answer.transaction_states) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, ())


@pytest.mark.parametrize("version", [3, 5])
async def test_a_producer_that_commits_offsets_waits_for_its_coordinator(
    broker: AsyncBroker, client: WireClient, version: int
) -> None:
    begun = await client.ask(ApiKey.INIT_PRODUCER_ID, InitProducerIdRequest("x", 60_000))
    node = broker.node
    node.transactions.unload()
    node.transactions.expect()
    topics = (toc.TxnOffsetCommitRequestTopic("t", (toc.TxnOffsetCommitRequestPartition(0, 7),)),)
    request = toc.TxnOffsetCommitRequest("x", "g", begun.producer_id, begun.producer_epoch, topics=topics)
    answer = await client.ask(ApiKey.TXN_OFFSET_COMMIT, request, version)
    # NOT_ENOUGH_REPLICAS ends the producers of Apache Kafka's clients.
    assert answer.topics[0].partitions[0].error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
