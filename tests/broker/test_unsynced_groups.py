"""A device that does not take what the group coordinator has written: its memory is what its log says.

Found by a world that loses power (`broker-consumer-groups`, seed 13): members that had been refused were in the log,
the coordinator went on without them, and no later start could read what it wrote.
"""

from __future__ import annotations

from ottla.base.types import TopicPartition
from ottla.broker.metadata.names import GROUP_TOPIC
from ottla.broker.runtime.partitions import Partition
from ottla.broker.runtime.shard import ShardRunner, ShardState
from ottla.coordinator.group.shard import GroupShard
from ottla.log.config import LogConfig
from ottla.log.memory import MemoryStorage
from ottla.log.partition import PartitionLog
from ottla.testing import AsyncBroker
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from tests.broker.wire_client import WireClient


def _coordinator(broker: AsyncBroker, storage: MemoryStorage) -> ShardRunner[GroupShard]:
    """The coordinator of a group, with its log on a device that the test has in its hand."""
    runner = broker.node.groups.find("g")
    assert isinstance(runner, ShardRunner)
    before = broker.node.partitions.find(GROUP_TOPIC, runner.tp.partition)
    assert before is not None
    log = PartitionLog.open(TopicPartition(*runner.tp), storage, LogConfig(flush_messages=1), 0)
    broker.node.partitions.add([Partition(runner.tp, before.topic_id, log, 0)])
    return runner


async def _join(client: WireClient, member: str) -> ConsumerGroupHeartbeatResponse:
    request = ConsumerGroupHeartbeatRequest(
        "g", member, 0, rebalance_timeout_ms=60_000, subscribed_topic_names=("t",), topic_partitions=()
    )
    answer = await client.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, request)
    assert isinstance(answer, ConsumerGroupHeartbeatResponse)
    return answer


def _members(runner: ShardRunner[GroupShard]) -> set[str]:
    group = runner.shard.consumer_groups.find("g")
    return set() if group is None else set(group.members)


async def test_a_member_that_was_refused_by_the_device_is_a_member_when_it_is_in_the_log() -> None:
    async with AsyncBroker({"log.flush.interval.messages": "1"}) as broker:
        await broker.node.topics.create("t", 1, {})
        await broker.node.groups.ready()
        storage = MemoryStorage()
        runner = _coordinator(broker, storage)
        storage.refuses = lambda action, name: action == "sync"
        async with WireClient(broker) as client:
            answers = [await _join(client, "m1"), await _join(client, "m2")]
            # the second one is not tried: nobody hears of what a loss of power would take
            assert [each.error_code for each in answers] == [
                ErrorCode.NOT_COORDINATOR,
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
            ]
            assert _members(runner) == {"m1"}
            storage.refuses = None
            assert (await _join(client, "m2")).error_code == ErrorCode.NONE
        assert _members(runner) == {"m1", "m2"}
        runner.unload(ShardState.LOADING)
        runner.shard = runner._make_shard(runner.tp)
        await runner.read()
        assert (runner.state, _members(runner)) == (ShardState.ACTIVE, {"m1", "m2"})
