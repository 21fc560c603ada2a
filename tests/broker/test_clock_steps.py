"""The wall clock is set while the broker runs: time-outs go on as if nothing had happened."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from ottla.base.clock import ManualClock
from ottla.testing import AsyncBroker
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from ottla.wire.messages.end_txn import EndTxnRequest
from ottla.wire.messages.heartbeat import HeartbeatRequest
from ottla.wire.messages.init_producer_id import InitProducerIdRequest
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.messages.sync_group import SyncGroupRequest
from tests.broker.wire_client import WireClient

pytestmark = pytest.mark.usefixtures("group_coordinator", "transaction_coordinator")

_HOUR_MS = 3_600_000
_SESSION_MS = 10_000
_STEPS_MS = (5 * _HOUR_MS, -5 * _HOUR_MS)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def broker(clock: ManualClock) -> AsyncIterator[AsyncBroker]:
    async with AsyncBroker({"group.initial.rebalance.delay.ms": 0}, clock=clock) as running:
        await running.node.topics.create("t", 1, {})
        yield running


async def _member(client: WireClient) -> HeartbeatRequest:
    """A stable group of one; its heartbeat."""
    protocols = (JoinGroupRequestProtocol("range", b""),)

    def join(member_id: str) -> JoinGroupRequest:
        return JoinGroupRequest("g", _SESSION_MS, 60_000, member_id, None, "consumer", protocols)

    member_id = (await client.ask(ApiKey.JOIN_GROUP, join(""))).member_id
    joined = await client.ask(ApiKey.JOIN_GROUP, join(member_id))
    sync = SyncGroupRequest("g", joined.generation_id, member_id, None, "consumer", "range", ())
    assert (await client.ask(ApiKey.SYNC_GROUP, sync)).error_code == ErrorCode.NONE
    return HeartbeatRequest("g", joined.generation_id, member_id)


async def _transaction(client: WireClient) -> EndTxnRequest:
    """An open transaction that may last a minute; the request that commits it."""
    init = await client.ask(ApiKey.INIT_PRODUCER_ID, InitProducerIdRequest("x", 60_000))
    topics = (AddPartitionsToTxnTopic("t", (0,)),)
    transaction = AddPartitionsToTxnTransaction("x", init.producer_id, init.producer_epoch, False, topics)
    added = await client.ask(ApiKey.ADD_PARTITIONS_TO_TXN, AddPartitionsToTxnRequest(transactions=(transaction,)))
    assert added.error_code == ErrorCode.NONE
    return EndTxnRequest("x", init.producer_id, init.producer_epoch, committed=True)


@pytest.mark.parametrize("step_ms", _STEPS_MS)
async def test_a_step_of_the_wall_clock_expels_nobody(broker: AsyncBroker, clock: ManualClock, step_ms: int) -> None:
    async with WireClient(broker) as client:
        heartbeat = await _member(client)
        clock.step(step_ms)
        clock.advance(_SESSION_MS - 1)
        broker.node.timers.fire()
        assert (await client.ask(ApiKey.HEARTBEAT, heartbeat)).error_code == ErrorCode.NONE


@pytest.mark.parametrize("step_ms", _STEPS_MS)
async def test_a_silent_member_is_expelled_in_time_after_a_step(
    broker: AsyncBroker, clock: ManualClock, step_ms: int
) -> None:
    async with WireClient(broker) as client:
        heartbeat = await _member(client)
        clock.step(step_ms)
        clock.advance(_SESSION_MS)
        broker.node.timers.fire()
        assert (await client.ask(ApiKey.HEARTBEAT, heartbeat)).error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("step_ms", _STEPS_MS)
async def test_a_step_of_the_wall_clock_aborts_no_transaction(
    broker: AsyncBroker, clock: ManualClock, step_ms: int
) -> None:
    async with WireClient(broker) as client:
        commit = await _transaction(client)
        clock.step(step_ms)
        clock.advance(60_000)
        broker.node.timers.fire()
        assert (await client.ask(ApiKey.END_TXN, commit, 4)).error_code == ErrorCode.NONE


@pytest.mark.parametrize("step_ms", _STEPS_MS)
async def test_a_transaction_is_aborted_in_time_after_a_step(
    broker: AsyncBroker, clock: ManualClock, step_ms: int
) -> None:
    async with WireClient(broker) as client:
        commit = await _transaction(client)
        clock.step(step_ms)
        clock.advance(60_001)
        broker.node.timers.fire()
        assert (await client.ask(ApiKey.END_TXN, commit, 4)).error_code == ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize("step_ms", _STEPS_MS)
async def test_regular_work_goes_on_at_its_interval_after_a_step(
    broker: AsyncBroker, clock: ManualClock, step_ms: int
) -> None:
    async with WireClient(broker) as idle:
        await idle.ask_api_versions()
        clock.step(step_ms)
        clock.advance(600_001)
        broker.node.timers.fire()
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await idle.ask_api_versions()
