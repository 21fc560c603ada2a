"""What follows from a coordinator's log, once it is read, is done in slices too; nobody sees a shard half begun."""

import asyncio
from collections.abc import AsyncIterator, Hashable
from functools import partial
from pathlib import Path

import pytest

from ottla.base.limits import MAX_FRESH_STARTS, MAX_OFFSETS_PER_STEP
from ottla.base.require import InvariantError
from ottla.broker.runtime.markers import Marker
from ottla.broker.runtime.shard import ShardRunner, ShardState
from ottla.broker.runtime.slices import TURN_MS
from ottla.coordinator.decision import NOTHING, Decision, LogRecord, Reply, TransactionalWrite
from ottla.coordinator.group.shard import GroupShard
from ottla.testing import AsyncBroker
from ottla.wire.errors import ErrorCode
from ottla.wire.offsets_records import (
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitValue,
    encode_group_metadata_key,
    encode_group_metadata_value,
    encode_offset_commit_key,
    encode_offset_commit_value,
)
from ottla.wire.transaction_records import PartitionsSchema, TransactionLogValue, encode_key, encode_value
from tests.broker.counting_shard import TP, CountingShard, World, applied, apply
from tests.broker.ticking import TickingClock, some_turns_until, steps

_GROUPS = 100 * TURN_MS
_TRANSACTIONS = 20 * TURN_MS
_MEMBERS = 1_050
#: Timers of one step, and what else sets some in a turn.
_TIMERS = 100
_AROUND = 10


_ONE_OF_EACH = {"offsets.topic.num.partitions": 1, "transaction.state.log.num.partitions": 1}


@pytest.fixture
async def broker() -> AsyncIterator[AsyncBroker]:
    async with AsyncBroker(_ONE_OF_EACH, clock=TickingClock()) as running:
        await running.node.topics.create("t", 1, {})
        await running.node.groups.ready()
        yield running


def _commit(group: str, offset: int, partition: int = 0) -> LogRecord:
    value = OffsetCommitValue(offset, -1, "", 1_700_000_000_000)
    return LogRecord(encode_offset_commit_key(group, "t", partition), encode_offset_commit_value(value))


def _group() -> LogRecord:
    """A group of many members."""
    members = tuple(
        MemberMetadata(f"m{number}", None, "c", "/h", 60_000, 60_000, b"", b"") for number in range(_MEMBERS)
    )
    value = GroupMetadataValue("other", 1, "p", "m0", 1_700_000_000_000, members)
    return LogRecord(encode_group_metadata_key("large"), encode_group_metadata_value(value))


def _broken(now_ms: int) -> Decision:
    raise InvariantError("broken")


@pytest.fixture
async def runner(broker: AsyncBroker) -> ShardRunner[GroupShard]:
    """Its log has one batch, of many groups."""
    found = broker.node.groups.runner(0)
    assert found is not None
    many = (_group(), *(_commit(f"g{number}", 7) for number in range(_GROUPS)))
    await found.submit(lambda token, now_ms: Decision(many, (Reply(token, None),)))
    return found


async def test_what_follows_from_a_log_is_done_in_turns(broker: AsyncBroker, runner: ShardRunner[GroupShard]) -> None:
    """A shard of 20,000 groups ended its load in one turn of 130 ms."""
    timers = broker.node.timers
    runner.tell(_broken)
    seen = [len(timers._live)]
    while broker.node.groups.loading:
        assert broker.node.groups.find("g0") is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await asyncio.sleep(0)
        seen.append(len(timers._live))
    assert len(seen) > (_GROUPS + _MEMBERS / _TIMERS) / TURN_MS, "each group is a step"
    assert max(steps(seen)) <= _TIMERS * TURN_MS + _AROUND
    assert seen[-1] - seen[0] >= _MEMBERS
    assert runner.shard.committed("g0") == {"t": {0: 7}}


async def test_what_comes_behind_the_end_of_the_log_is_heard_when_the_shard_begins(
    broker: AsyncBroker, runner: ShardRunner[GroupShard]
) -> None:
    """A marker was written behind what has been read, and a member's session is over before the shard is active."""
    runner.tell(_broken)
    runner.marker_written(77, commit=True)  # the log has it, and it is read there
    await some_turns_until(lambda: runner._has_read)
    runner.shard.apply_transactional(77, _commit("g0", 8))
    runner.marker_written(77, commit=True)
    await some_turns_until(lambda: bool(_sessions(broker)))
    _, session_ended = broker.node.timers._live[_sessions(broker)[0]]
    session_ended()
    assert broker.node.groups.loading
    assert runner.shard.committed("g0") == {"t": {0: 7}}
    await some_turns_until(lambda: not broker.node.groups.loading)
    assert runner.shard.committed("g0") == {"t": {0: 8}}
    large = runner.shard.group("large")
    assert large is not None
    assert len(large.members) == _MEMBERS - 1


async def test_t3_what_was_decided_is_ended_in_turns_before_the_shard_is_active(broker: AsyncBroker) -> None:
    """The outcomes of 4,000 transactions were written in one turn of 140 ms, the first of an active shard."""
    await broker.node.transactions.ready()
    runner = broker.node.transactions.runner(0)
    log = broker.node.partitions.find("__transaction_state", 0)
    assert runner is not None
    assert log is not None
    decided = tuple(_decided(number) for number in range(_TRANSACTIONS))
    await runner.submit(lambda token, now_ms: Decision(decided, (Reply(token, None),)))
    runner.tell(_broken)
    seen = [log.log.end_offset]
    while broker.node.transactions.loading:
        await asyncio.sleep(0)
        seen.append(log.log.end_offset)
    assert seen[-1] - seen[0] == _TRANSACTIONS, "all have ended, and nobody could ask before"
    assert max(steps(seen)) <= TURN_MS


def _decided(number: int) -> LogRecord:
    """A transaction whose outcome is decided, and of which no marker is written yet."""
    now_ms = 1_700_000_000_000
    partitions = (PartitionsSchema("t", (0,)),)
    value = TransactionLogValue(1_000 + number, -1, -1, 0, -1, 60_000, 2, partitions, now_ms, now_ms)
    return LogRecord(encode_key(f"x{number}"), encode_value(value, 0))


def _sessions(broker: AsyncBroker) -> list[Hashable]:
    """The timers of members that are set."""
    return [key for key in broker.node.timers._live if isinstance(key, tuple) and "heartbeat" in key]


async def test_a_marker_comes_before_inputs_whose_records_are_behind_it(broker: AsyncBroker) -> None:
    """An offset had been committed with the transaction before its own; when the log was read again it was not."""
    runner = broker.node.groups.runner(0)
    log = broker.node.partitions.find("__consumer_offsets", 0)
    assert runner is not None
    assert log is not None
    runner.tell(lambda now_ms: Decision(rest=lambda: NOTHING))
    decision = Decision((_commit("g", 8),), transactional=TransactionalWrite(77, 0))
    runner.tell(partial(_this, decision))
    broker.node.markers.write([runner.tp], Marker(77, 0, True, 0, 0))
    begun = log.log.producers.begin_verification(77, -1, 0, supports_epoch_bump=False, now_ms=0)
    log.log.producers.confirm_verification(77, begun.guard)
    await some_turns_until(lambda: not runner._busy)
    assert log.log.producers.has_ongoing_transaction(77, 0)
    assert runner.shard.committed("g") == {}
    broker.node.markers.write([runner.tp], Marker(77, 0, True, 0, 0))
    assert runner.shard.committed("g") == {"t": {0: 8}}


async def test_a_transaction_that_cannot_end_is_not_passed_over(
    broker: AsyncBroker, runner: ShardRunner[GroupShard]
) -> None:
    """Half of it would have been committed for good, and no other transaction could have ended."""
    for _ in range(MAX_FRESH_STARTS + 1):
        assert runner.state is ShardState.ACTIVE
        runner.shard.apply_transactional(77, _commit("g0", 8))
        runner.shard._offsets._open.clear()
        runner.marker_written(77, commit=True)
        await some_turns_until(lambda: not broker.node.groups.loading)
    assert runner.state is ShardState.UNLOADED


async def test_the_end_of_a_large_transaction_is_applied_in_slices(broker: AsyncBroker) -> None:
    """40,000 offsets had taken 42 and 74 ms in one turn, when they ended and when the log was read again."""
    runner = broker.node.groups.runner(0)
    log = broker.node.partitions.find("__consumer_offsets", 0)
    assert runner is not None
    assert log is not None
    offsets = 4 * TURN_MS * MAX_OFFSETS_PER_STEP
    begun = log.log.producers.begin_verification(77, -1, 0, supports_epoch_bump=True, now_ms=0)
    log.log.producers.confirm_verification(77, begun.guard)
    for begin in range(0, offsets, MAX_OFFSETS_PER_STEP):
        part = tuple(_commit("g", 8, number) for number in range(begin, begin + MAX_OFFSETS_PER_STEP))
        decision = Decision(part, transactional=TransactionalWrite(77, 0))
        runner.tell(partial(_this, decision))
    written = broker.node.partitions.append_marker(
        runner.tp, producer_id=77, producer_epoch=1, commit=True, coordinator_epoch=0, transaction_version=2
    )
    assert written.error is ErrorCode.NONE
    runner.marker_written(77, commit=True)
    assert await _turns_of(runner) >= 3, "live"
    assert set(runner.shard.committed("g")["t"].values()) == {8}
    runner.tell(_broken)
    await some_turns_until(lambda: bool(runner.shard._offsets._ending))
    assert await _turns_of(runner) >= 3, "when the log is read"
    await some_turns_until(lambda: not broker.node.groups.loading)
    assert len(runner.shard.committed("g")["t"]) == offsets


def _this(decision: Decision, now_ms: int) -> Decision:
    return decision


async def _turns_of(runner: ShardRunner[GroupShard]) -> int:
    """How many turns of the loop the end of a transaction takes from now on."""
    turns = 0
    while runner.shard._offsets._ending is not None:
        assert len(runner.shard.committed("g")["t"]) == 4 * TURN_MS * MAX_OFFSETS_PER_STEP, "all is seen, or nothing"
        await asyncio.sleep(0)
        turns += 1
    return turns


async def test_a_batch_of_very_many_records_is_applied_in_steps_while_the_log_is_read(tmp_path: Path) -> None:
    """A group of 3,000 members that had become one of consumers took 110 ms in one turn."""
    world = World(tmp_path)
    many = tuple(LogRecord(b"k", b"%d" % number) for number in range(_MEMBERS))
    await world.runner.submit(lambda token, now_ms: Decision(many, (Reply(token, None),)))
    again = ShardRunner(TP, lambda tp: CountingShard(), apply, world.runtime, lambda _, effect: None)
    seen = [applied(again), *(applied(again) for _ in again.load())]
    assert max(steps(seen)) <= _MEMBERS / 5
    assert seen[-1] == len(many)
    assert again.shard.total == sum(range(_MEMBERS))
