"""A device that does not take what the group coordinator has written: its memory is what its log says.

Found by a world that loses power (`broker-consumer-groups`, seed 13): members that had been refused were in the log,
the coordinator went on without them, and no later start could read what it wrote.
"""

from __future__ import annotations

from ottla.base.types import TopicPartition
from ottla.broker.metadata.names import GROUP_TOPIC
from ottla.broker.runtime.partition import Partition
from ottla.broker.runtime.shard import ShardRunner, ShardState
from ottla.broker.runtime.wakes import Wakes
from ottla.coordinator.group.context import RequestContext
from ottla.coordinator.group.shard import GroupShard
from ottla.log.config import LogConfig
from ottla.log.memory import MemoryStorage
from ottla.log.partition import PartitionLog
from ottla.testing import AsyncBroker
from ottla.wire.apis import ApiKey
from ottla.wire.consumer_protocol import encode_subscription
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from ottla.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from tests.broker.wire_client import WireClient


def _coordinator(broker: AsyncBroker, storage: MemoryStorage) -> ShardRunner[GroupShard]:
    """The coordinator of a group, with its log on a device that the test has in its hand."""
    runner = broker.node.groups.find("g")
    assert isinstance(runner, ShardRunner)
    before = broker.node.partitions.find(GROUP_TOPIC, runner.tp.partition)
    assert before is not None
    log = PartitionLog.open(TopicPartition(*runner.tp), storage, LogConfig(flush_messages=1), 0)
    broker.node.partitions.add([Partition(runner.tp, before.topic_id, log, 0, Wakes(broker.node.clock))])
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


async def _on_a_device(broker: AsyncBroker) -> tuple[ShardRunner[GroupShard], MemoryStorage]:
    await broker.node.topics.create("t", 1, {})
    await broker.node.groups.ready()
    storage = MemoryStorage()
    return _coordinator(broker, storage), storage


def _refuse(storage: MemoryStorage) -> None:
    """No sync works from now on."""
    storage.refuses = lambda action, name: action == "sync"


def _classic_join(member: str) -> JoinGroupRequest:
    metadata = encode_subscription(ConsumerProtocolSubscription(("t",)))
    protocol = JoinGroupRequestProtocol("range", metadata)
    return JoinGroupRequest("g", 10_000, 10_000, member, None, "consumer", (protocol,))


async def test_a_member_that_was_refused_by_the_device_is_a_member_when_it_is_in_the_log() -> None:
    async with AsyncBroker({"log.flush.interval.messages": "1"}) as broker:
        runner, storage = await _on_a_device(broker)
        _refuse(storage)
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


async def test_who_waited_in_a_classic_group_is_answered_when_it_becomes_a_consumer_group() -> None:
    settings = {"log.flush.interval.messages": "1", "group.initial.rebalance.delay.ms": 60_000}
    async with AsyncBroker(settings) as broker:
        runner, storage = await _on_a_device(broker)
        waiting = runner.submit(
            lambda token, now_ms: runner.shard.join_group(
                token, _classic_join(""), RequestContext("c", "/h"), now_ms, unique_id="u", member_id_required=False
            )
        )
        assert not waiting.done()
        _refuse(storage)
        async with WireClient(broker) as client:
            assert (await _join(client, "m1")).error_code == ErrorCode.NOT_COORDINATOR
        assert waiting.done()
        answer = await waiting
        assert isinstance(answer, JoinGroupResponse)
        assert answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS
        assert len(_members(runner)) == 2
        storage.refuses = None


async def test_a_group_that_becomes_a_classic_one_divides_again() -> None:
    settings = {"log.flush.interval.messages": "1", "group.consumer.assignment.interval.ms": 0}
    async with AsyncBroker(settings) as broker:
        runner, storage = await _on_a_device(broker)
        async with WireClient(broker) as client:
            assert (await _join(client, "m1")).error_code == ErrorCode.NONE
            joined = await client.ask(ApiKey.JOIN_GROUP, _classic_join("c1"), 3)
            assert isinstance(joined, JoinGroupResponse)
            assert joined.error_code == ErrorCode.NONE
            _refuse(storage)
            left = await client.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, ConsumerGroupHeartbeatRequest("g", "m1", -1))
            assert isinstance(left, ConsumerGroupHeartbeatResponse)
            assert left.error_code == ErrorCode.NOT_COORDINATOR
        storage.refuses = None
        group = runner.shard.group("g")
        assert group is not None
        assert group.state_name == "PreparingRebalance"


async def test_a_pattern_is_resolved_with_the_rights_of_its_member() -> None:
    async with AsyncBroker({"log.flush.interval.messages": "1"}) as broker:
        runner, storage = await _on_a_device(broker)
        _refuse(storage)
        request = ConsumerGroupHeartbeatRequest(
            "g", "m1", 0, rebalance_timeout_ms=60_000, subscribed_topic_regex=".*", topic_partitions=()
        )
        context = RequestContext("c", "/h", lambda name: name == "open")
        await runner.submit(
            lambda token, now_ms: runner.shard.consumer_group_heartbeat(token, request, context, now_ms, unique_id="u")
        )
        storage.refuses = None
        assert _members(runner) == {"m1"}
        sees = runner.shard.consumer_groups.room.soft("g").sees
        assert (sees("open"), sees("secret")) == (True, False)
