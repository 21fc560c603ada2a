"""A shard's long decision, carried out in slices: what happens to those who come meanwhile."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from ottla.broker.runtime.shard import ShardRunner
from ottla.broker.runtime.slices import TURN_MS
from ottla.coordinator.decision import NOTHING, Decision, Reply
from ottla.coordinator.group.shard import GroupShard
from ottla.testing import AsyncBroker
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.heartbeat import HeartbeatRequest
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.messages.sync_group import SyncGroupRequest
from tests.broker.ticking import TickingClock, some_turns_until, steps, turns
from tests.broker.wire_client import WireClient

_INPUTS = 10 * TURN_MS
_SESSION_MS = 10_000


@pytest.fixture
async def broker() -> AsyncIterator[AsyncBroker]:
    async with AsyncBroker({"offsets.topic.num.partitions": 1}, clock=TickingClock()) as running:
        assert await running.node.groups.ready() is None
        yield running


@pytest.fixture
def runner(broker: AsyncBroker) -> ShardRunner[GroupShard]:
    found = broker.node.groups.runner(0)
    assert found is not None
    return found


def _long(token: int, parts: int) -> Decision:
    """So many decisions that do nothing, of which the last one answers."""
    return Decision(rest=lambda: _long(token, parts - 1)) if parts > 1 else Decision(replies=(Reply(token, None),))


async def test_what_has_come_meanwhile_is_carried_out_in_slices_too_and_in_order(
    client: WireClient, runner: ShardRunner[GroupShard]
) -> None:
    """Deletions of 100 groups that had waited for that of a large one were one turn, of 20 ms and more."""
    taken: list[int] = []

    def take(number: int) -> Decision:
        taken.append(number)
        return NOTHING

    long = runner.submit(lambda token, now_ms: _long(token, 1_000))
    for number in range(_INPUTS):
        runner.tell(lambda now_ms, number=number: take(number))  # type: ignore[misc]
    last = asyncio.create_task(client.ask(ApiKey.HEARTBEAT, HeartbeatRequest("none", 1, "none")))
    await some_turns_until(lambda: len(runner._inbox) == _INPUTS + 1)
    assert (long.done(), taken) == (False, [])
    assert max(steps(await turns(last, lambda: len(taken)))) <= TURN_MS
    assert long.done()
    assert taken == list(range(_INPUTS))


async def test_a_member_that_was_heard_in_time_is_not_expelled_because_its_session_ended_meanwhile(
    broker: AsyncBroker, client: WireClient, runner: ShardRunner[GroupShard]
) -> None:
    """Its heartbeat waits for a long decision, and so does its timer, which the heartbeat sets again."""
    asked = JoinGroupRequest(
        "g", _SESSION_MS, _SESSION_MS, "", None, "consumer", (JoinGroupRequestProtocol("range", b""),)
    )
    named = await client.ask(ApiKey.JOIN_GROUP, asked)
    joined = await client.ask(ApiKey.JOIN_GROUP, asked._replace(member_id=named.member_id))
    member = (joined.generation_id, joined.member_id)
    synced = await client.ask(ApiKey.SYNC_GROUP, SyncGroupRequest("g", *member, None, "consumer", "range"))
    assert synced.error_code == ErrorCode.NONE
    answer = runner.submit(lambda token, now_ms: _long(token, 1_000))
    heartbeat = asyncio.create_task(client.ask(ApiKey.HEARTBEAT, HeartbeatRequest("g", *member)))
    await some_turns_until(lambda: len(runner._inbox) > 0)
    broker.clock.advance(_SESSION_MS)
    broker.node.timers.fire()
    assert not answer.done()
    assert (await heartbeat).error_code == ErrorCode.NONE
    again = await client.ask(ApiKey.HEARTBEAT, HeartbeatRequest("g", *member))
    assert again.error_code == ErrorCode.NONE
    broker.clock.advance(_SESSION_MS)
    broker.node.timers.fire()
    late = await client.ask(ApiKey.HEARTBEAT, HeartbeatRequest("g", *member))
    assert late.error_code == ErrorCode.UNKNOWN_MEMBER_ID
