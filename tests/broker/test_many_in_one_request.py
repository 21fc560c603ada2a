"""Requests of few names, each of which is much work, and of many transactions: some of them in a turn."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ottla.base.limits import MAX_TOMBSTONES_PER_BATCH
from ottla.base.require import InvariantError
from ottla.broker.handlers import add_partitions_to_txn
from ottla.broker.handlers.parts import PART_DELETED_GROUPS, PART_NAMES, PART_PARTITIONS
from ottla.broker.runtime.slices import TURN_MS
from ottla.coordinator.decision import Decision
from ottla.testing import AsyncBroker
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from ottla.wire.messages.delete_groups import DeleteGroupsRequest
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.broker.ticking import TickingClock, in_pieces, some_turns_until, steps, turns
from tests.broker.wire_client import WireClient

_GROUPS = PART_DELETED_GROUPS - 1
_OFFSETS = PART_PARTITIONS // _GROUPS + 1
_TRANSACTIONS = add_partitions_to_txn._AT_ONCE + 1
_PLACES = PART_PARTITIONS + 1
_MANY = (TURN_MS + 2) * MAX_TOMBSTONES_PER_BATCH

pytestmark = pytest.mark.usefixtures("group_coordinator", "transaction_coordinator")


@pytest.fixture
async def broker(directory: Path) -> AsyncIterator[AsyncBroker]:
    async with AsyncBroker(data_dir=directory, clock=TickingClock()) as running:
        await running.node.topics.create("t", _OFFSETS, {})
        yield running


@pytest.fixture
async def second(broker: AsyncBroker) -> AsyncIterator[WireClient]:
    """Another connection to it."""
    async with WireClient(broker) as connected:
        yield connected


async def test_few_groups_with_many_offsets_are_deleted_in_turns(broker: AsyncBroker, client: WireClient) -> None:
    """Ten of 10,000 offsets each would have taken ten times as long as one, in one turn."""
    groups = tuple(f"g{number}" for number in range(_GROUPS))
    partitions = tuple(OffsetCommitRequestPartition(number, 1) for number in range(_OFFSETS))
    topics = (OffsetCommitRequestTopic(name="t", partitions=partitions),)
    for group in groups:
        await client.ask(ApiKey.OFFSET_COMMIT, OffsetCommitRequest(group, topics=topics), 9)

    def there() -> int:
        runners = [(broker.node.groups.find(group), group) for group in groups]
        return sum(not isinstance(each, ErrorCode) and each.shard.group(group) is not None for each, group in runners)

    assert there() == len(groups)
    answer = asyncio.create_task(client.ask(ApiKey.DELETE_GROUPS, DeleteGroupsRequest((*groups[1:], "no", groups[0]))))
    assert max(steps(await turns(answer, there))) <= TURN_MS
    told = {each.group_id: each.error_code for each in (await answer).results}
    assert told == {**dict.fromkeys(groups, ErrorCode.NONE), "no": ErrorCode.GROUP_ID_NOT_FOUND}
    assert there() == 0


async def test_one_group_with_very_many_offsets_is_deleted_in_turns_and_who_joins_meanwhile_waits(
    broker: AsyncBroker, client: WireClient, second: WireClient
) -> None:
    """10,000 offsets had taken 32 to 42 ms in one turn, and nobody could delete a group with so many as 30,000."""
    await broker.node.topics.create("many", _MANY, {})
    partitions = tuple(OffsetCommitRequestPartition(number, 1) for number in range(_MANY))
    topics = (OffsetCommitRequestTopic(name="many", partitions=partitions),)
    await client.ask(ApiKey.OFFSET_COMMIT, OffsetCommitRequest("g", topics=topics), 9)
    runner = broker.node.groups.find("g")
    assert not isinstance(runner, ErrorCode)
    partition = broker.node.partitions.find(*runner.tp)
    assert partition is not None
    begun = partition.log.end_offset

    def written() -> int:
        return partition.log.end_offset - begun

    answer = asyncio.create_task(client.ask(ApiKey.DELETE_GROUPS, DeleteGroupsRequest(("g",))))
    await some_turns_until(lambda: written() > 0)
    assert written() < _MANY
    late = OffsetCommitRequest("g", topics=(OffsetCommitRequestTopic(name="t", partitions=partitions[:1]),))
    committed = asyncio.create_task(second.ask(ApiKey.OFFSET_COMMIT, late, 9))
    assert max(steps(await turns(answer, written))) <= TURN_MS * MAX_TOMBSTONES_PER_BATCH + 1
    assert [each.error_code for each in (await answer).results] == [ErrorCode.NONE]
    assert (await committed).topics[0].partitions[0].error_code == ErrorCode.NONE
    assert runner.shard.committed("g") == {"t": {0: 1}}, "what is committed after the deletion stays"


async def test_many_transactions_in_one_request_have_a_turn_each(broker: AsyncBroker, client: WireClient) -> None:
    """As brokers send it. 500 had taken 29 ms in one turn."""
    topics = (AddPartitionsToTxnTopic("t", (0,)),)
    asked = tuple(AddPartitionsToTxnTransaction(f"x{n}", n, 0, False, topics) for n in range(_TRANSACTIONS))
    request = AddPartitionsToTxnRequest(transactions=asked)
    answer, pieces = await in_pieces(broker, client, ApiKey.ADD_PARTITIONS_TO_TXN, request, 5)
    assert pieces >= _TRANSACTIONS
    told = answer.results_by_transaction
    assert [each.transactional_id for each in told] == [f"x{n}" for n in range(_TRANSACTIONS)]
    errors = {each.topic_results[0].results_by_partition[0].partition_error_code for each in told}
    assert errors == {ErrorCode.INVALID_PRODUCER_ID_MAPPING}


@pytest.mark.parametrize(
    "topics",
    [
        tuple(AddPartitionsToTxnTopic(f"n{number}", (0,)) for number in range(_PLACES)),
        (AddPartitionsToTxnTopic("n", tuple(range(_PLACES))),),
    ],
    ids=["topics", "partitions"],
)
async def test_many_partitions_that_a_transaction_does_not_get_are_told_in_turns(
    broker: AsyncBroker, client: WireClient, topics: tuple[AddPartitionsToTxnTopic, ...]
) -> None:
    """29,000 had been told in one turn, of 25 to 60 ms."""
    request = AddPartitionsToTxnRequest((), "x", 1, 0, topics)
    answer, pieces = await in_pieces(broker, client, ApiKey.ADD_PARTITIONS_TO_TXN, request, 3)
    assert pieces >= 2 * _PLACES, "each is looked for, and told"
    told = [(each.name, each.results_by_partition) for each in answer.results_by_topic_v3_and_below]
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert told == [(each.name, tuple((index, unknown) for index in each.partitions)) for each in topics]


@pytest.mark.parametrize("version", [3, 5])
async def test_members_that_are_not_there_are_told_in_turns_and_one_that_is_leaves(
    broker: AsyncBroker, client: WireClient, version: int
) -> None:
    """10,000 were looked for, and answered, in one turn of 22 ms."""
    asked = JoinGroupRequest("g", 10_000, 10_000, "", None, "consumer", (JoinGroupRequestProtocol("range", b""),))
    named = await client.ask(ApiKey.JOIN_GROUP, asked)
    joined = await client.ask(ApiKey.JOIN_GROUP, asked._replace(member_id=named.member_id))
    assert joined.error_code == ErrorCode.NONE
    there = MemberIdentity(joined.member_id)
    strangers = [MemberIdentity(f"m{n}", f"i{n}" if n % 2 else None) for n in range(PART_PARTITIONS)]
    members = (*strangers[:150], there, *strangers[150:], there)
    answer, pieces = await in_pieces(broker, client, ApiKey.LEAVE_GROUP, LeaveGroupRequest("g", members), version)
    assert pieces > 2 * len(members) / PART_NAMES
    assert [(each.member_id, each.group_instance_id) for each in answer.members] == [
        (each.member_id, each.group_instance_id) for each in members
    ]
    errors = [each.error_code for each in answer.members]
    assert errors.pop(150) == ErrorCode.NONE
    assert set(errors) == {ErrorCode.UNKNOWN_MEMBER_ID}, "also for who is named again"
    nameless = await client.ask(ApiKey.LEAVE_GROUP, LeaveGroupRequest("", members), version)
    assert (nameless.error_code, nameless.members) == (ErrorCode.INVALID_GROUP_ID, ())


async def test_no_member_is_unknown_because_its_shard_is_read_again(broker: AsyncBroker, client: WireClient) -> None:
    """A shard whose log is being read knows nobody yet."""
    runner = broker.node.groups.find("g")
    assert not isinstance(runner, ErrorCode)

    def broken(now_ms: int) -> Decision:
        raise InvariantError("broken")

    running = len(broker.node.slices._tasks)
    members = tuple(MemberIdentity(f"m{n}") for n in range(10 * PART_PARTITIONS))
    answer = asyncio.create_task(client.ask(ApiKey.LEAVE_GROUP, LeaveGroupRequest("g", members), 5))
    await some_turns_until(lambda: len(broker.node.slices._tasks) > running)
    await asyncio.sleep(0)  # a turn of the loop, in which it begins
    runner.tell(broken)
    told = await answer
    assert (told.error_code, told.members) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ())
