"""An answer to what a member asked in an older generation changes nothing: the new one stands."""

import asyncio
from typing import Any

import pytest

from ottla import AsyncConsumer, CommitFailedError, OffsetAndMetadata, RebalanceInProgressError, TopicPartition
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.offset_commit import OffsetCommitResponse, OffsetCommitResponsePartition
from tests.client.conftest import Watchdog
from tests.client.cooperative import CooperativeRoundRobin
from tests.client.scripted_broker import Hold, ScriptedBroker, changed

_T0 = TopicPartition("t", 0)
#: A dynamic member's first JoinGroup only brings its id.
_FIRST_JOINS = 2
_EAGER: dict[str, object] = {"group.id": "g", "heartbeat.interval.ms": 1}
_COOPERATIVE: dict[str, object] = {**_EAGER, "partition.assignment.strategy": [CooperativeRoundRobin()]}


async def joined(consumer: AsyncConsumer) -> None:
    while not consumer.assignment():
        await consumer.poll(0.01)


def waits_behind(broker: ScriptedBroker, api: ApiKey, first: ApiKey) -> bool:
    """Whether a request of `api` came after one of `first`."""
    apis = [asked.api for asked in broker.requests]
    return first in apis and api in apis[apis.index(first) :]


async def polled_until(consumer: AsyncConsumer, event: "asyncio.Task[Any]") -> None:
    while not event.done():
        await consumer.poll(0.001)


async def stays(broker: ScriptedBroker, consumer: AsyncConsumer, generation: int) -> None:
    """Poll for a while: a member that has to join again does so in the first of these polls."""
    for _ in range(50):
        await consumer.poll(0.001)
    await broker.saw(ApiKey.HEARTBEAT, len(broker.asked(ApiKey.HEARTBEAT)) + 1)
    assert len(broker.asked(ApiKey.JOIN_GROUP)) == _FIRST_JOINS + generation - 1
    assert {beat.generation_id for beat in broker.asked(ApiKey.HEARTBEAT)} <= set(range(1, generation + 1))


@pytest.mark.parametrize("config", [_EAGER, _COOPERATIVE], ids=["eager", "cooperative"])
async def test_a_commit_that_is_answered_after_a_join_is_answered_for_its_own_generation(
    watchdog: Watchdog, config: dict[str, object]
) -> None:
    """It is refused there. A partition that was kept is still this member's: its offset is committed in the new one."""
    async with watchdog(), ScriptedBroker({"t": 1}) as broker, broker.consumer(config) as consumer:
        consumer.subscribe(["t"])
        await joined(consumer)
        join, commit = Hold(), Hold()
        broker.script(ApiKey.JOIN_GROUP, join)
        broker.script(ApiKey.OFFSET_COMMIT, commit)
        group = broker.kafka.coordinator.group("g")
        group.rebalancing = True
        await polled_until(consumer, asyncio.create_task(join.reached.wait()))
        failed: list[Exception | None] = []
        consumer.commit_async({_T0: OffsetAndMetadata(5)}, lambda offsets, error: failed.append(error))
        await polled_until(consumer, asyncio.create_task(commit.reached.wait()))
        join.release()
        while group.generation == 1 or not consumer.assignment():
            await consumer.poll(0.001)
        commit.release()
        while not failed:
            await consumer.poll(0.001)
        if config is _EAGER:
            assert isinstance(failed[0], CommitFailedError)
        else:
            assert (failed[0], group.offsets) == (None, {_T0: 5})
        await stays(broker, consumer, generation=2)
        assert consumer.assignment() == {_T0}


async def test_a_heartbeat_that_waits_behind_a_sync_does_not_ask_for_another_rebalance(watchdog: Watchdog) -> None:
    async with watchdog(), ScriptedBroker({"t": 1}) as broker, broker.consumer(_EAGER) as consumer:
        held = Hold()
        broker.script(ApiKey.SYNC_GROUP, held)
        consumer.subscribe(["t"])
        while not waits_behind(broker, ApiKey.HEARTBEAT, ApiKey.SYNC_GROUP):
            await consumer.poll(0.001)
        broker.kafka.coordinator.group("g").rebalancing = True  # both are answered so
        held.release()
        await joined(consumer)
        await stays(broker, consumer, generation=2)


async def test_a_commit_in_the_middle_of_a_rebalance_leaves_the_member_in_its_group(watchdog: Watchdog) -> None:
    """The coordinator waits for the leader's SyncGroup: what is committed then is refused, and to be repeated."""

    def refused(answer: OffsetCommitResponse) -> OffsetCommitResponse:
        part = OffsetCommitResponsePartition(0, ErrorCode.REBALANCE_IN_PROGRESS)
        return answer._replace(topics=(answer.topics[0]._replace(partitions=(part,)),))

    async with watchdog(), ScriptedBroker({"t": 1}) as broker, broker.consumer(_COOPERATIVE) as consumer:
        consumer.subscribe(["t"])
        await joined(consumer)
        broker.script(ApiKey.OFFSET_COMMIT, changed(refused))
        with pytest.raises(RebalanceInProgressError):
            await consumer.commit({_T0: OffsetAndMetadata(5)})
        await joined(consumer)
        await consumer.commit({_T0: OffsetAndMetadata(6)})
        assert broker.kafka.coordinator.group("g").offsets == {_T0: 6}
