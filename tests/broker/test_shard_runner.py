"""Decide, append, apply, reply: the order, one input at a time, and what a failed append leaves behind."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.base.limits import HERD_ANSWERS_AT_ONCE, MAX_FRESH_STARTS
from ottla.base.require import InvariantError
from ottla.base.types import TopicPartition
from ottla.broker.runtime.shard import ShardRunner, ShardState, ShardUnloadedError
from ottla.broker.runtime.slices import TURN_MS
from ottla.coordinator.decision import (
    NOTHING,
    CancelTimer,
    Decision,
    LogRecord,
    Reply,
    SetTimer,
    TransactionalWrite,
    WriteMarkers,
)
from ottla.log.replay import replay
from ottla.wire.errors import ErrorCode
from tests.broker.counting_shard import TP, CountingShard, World, applied, apply, broken, reading
from tests.broker.ticking import some_turns_until


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


async def test_replies_come_after_the_append(world: World) -> None:
    runner = world.runner
    answer = runner.submit(lambda token, now_ms: runner.shard.add(token, 5))
    assert answer.done()
    assert await answer == 5
    assert runner.shard.events == ["loaded", "decide 5", "apply 5"]
    partition = world.partitions.find(*TP)
    assert partition is not None
    assert [record.value for each in replay(partition.log) for record in each.records] == [b"5"]


async def test_many_are_answered_some_in_a_turn_of_the_loop(world: World) -> None:
    """Each of these answers is encoded and sent in the next turn, and others are served in between."""
    runner, tokens = world.runner, list[int]()

    def waits(token: int, now_ms: int) -> Decision:
        tokens.append(token)
        return NOTHING

    answers = [runner.submit(waits) for _ in range(3 * HERD_ANSWERS_AT_ONCE + 1)]
    runner.tell(lambda now_ms: Decision(replies=tuple(Reply(token, token) for token in tokens)))
    answered = [HERD_ANSWERS_AT_ONCE]
    assert sum(answer.done() for answer in answers) == answered[0]
    while answered[-1] < len(answers):
        await asyncio.sleep(0)  # a turn of the loop
        answered.append(sum(answer.done() for answer in answers))
        assert answered[-1] - answered[-2] <= HERD_ANSWERS_AT_ONCE
    assert await asyncio.gather(*answers) == tokens


async def test_what_was_appended_is_there_after_a_restart(world: World) -> None:
    for amount in (1, 2, 3):
        await world.runner.submit(lambda token, now_ms, amount=amount: world.runner.shard.add(token, amount))  # type: ignore[misc]
    again = world.new_runner()
    assert again.shard.total == 6
    assert again.shard.events == ["apply 1", "apply 2", "apply 3", "loaded"]


async def test_a_failed_append_changes_nothing_and_is_told(world: World) -> None:
    world.lose_partition()
    answer = world.runner.submit(lambda token, now_ms: world.runner.shard.add(token, 5))
    assert await answer is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert world.runner.shard.total == 0


async def test_inputs_that_come_meanwhile_wait_for_their_turn(world: World) -> None:
    runner = world.runner

    def outer(token: int, now_ms: int) -> Decision:
        runner.tell(lambda now_ms: runner.shard.add(0, 2))
        runner.shard.events.append("outer goes on")
        return runner.shard.add(token, 1)

    await runner.submit(outer)
    assert runner.shard.events[1:] == ["outer goes on", "decide 1", "apply 1", "decide 2", "apply 2"]


async def test_timers_are_set_replaced_and_forgotten(world: World) -> None:
    runner = world.runner
    runner.tell(lambda now_ms: Decision(timers=(SetTimer(("gone",), 0), CancelTimer(("gone",)))))
    world.clock.advance(1_000)
    world.runtime.timers.fire()
    assert runner.shard.events == ["loaded", "timer tick", "apply 100"]
    runner.tell(lambda now_ms: Decision(timers=(SetTimer(("late",), 0),)))
    runner.unload()
    world.runtime.timers.fire()
    assert runner.state is ShardState.UNLOADED
    assert "timer late" not in runner.shard.events


async def test_effects_are_carried_out_last(world: World) -> None:
    effect = WriteMarkers("id", 1, 0, True, (), 0)
    world.runner.tell(lambda now_ms: Decision((LogRecord(b"k", b"1"),), effects=(effect,)))
    assert world.effects == [effect]
    assert world.runner.shard.total == 1


async def test_a_transactional_decision_is_a_transactional_batch(world: World) -> None:
    partition = world.partitions.find(*TP)
    assert partition is not None
    begun = partition.log.producers.begin_verification(9, -1, 2, supports_epoch_bump=True, now_ms=world.clock.now_ms())
    partition.log.producers.confirm_verification(9, begun.guard)
    decision = Decision((LogRecord(b"k", b"1"),), transactional=TransactionalWrite(9, 2))
    world.runner.tell(lambda now_ms: decision)
    assert partition.log.producers.has_ongoing_transaction(9, 2)
    (batch,) = replay(partition.log)
    assert batch.producer_id == 9
    world.runner.marker_written(9, commit=True)
    assert world.runner.shard.events[-1] == "marker 9 True"


async def test_a_fault_fails_its_own_request_only(world: World) -> None:
    def broken(token: int, now_ms: int) -> Decision:
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        await world.runner.submit(broken)
    assert await world.runner.submit(lambda token, now_ms: world.runner.shard.add(token, 1)) == 1


async def test_a_broken_invariant_of_a_request_that_is_not_decided_fails_that_request_only(world: World) -> None:
    """However often it comes: reading the log again would keep the partition from all others."""
    shard = world.runner.shard
    for number in range(1, 3 * MAX_FRESH_STARTS):
        with pytest.raises(InvariantError, match="broken"):
            await world.runner.submit(lambda token, now_ms: broken(now_ms))
        assert await world.runner.submit(lambda token, now_ms: shard.add(token, 1)) == number
    assert (world.runner.shard, world.runner.state) == (shard, ShardState.ACTIVE)


@pytest.mark.parametrize("fault", [InvariantError("broken"), RuntimeError("broken")])
async def test_a_request_that_fails_with_its_decision_half_made_has_the_log_read_again(
    world: World, fault: Exception
) -> None:
    runner = world.runner
    await runner.submit(lambda token, now_ms: runner.shard.add(token, 5))

    def half(token: int, now_ms: int) -> Decision:
        runner.shard.is_busy = True
        raise fault

    with pytest.raises(ShardUnloadedError):
        await runner.submit(half)
    await reading(runner)
    assert (runner.shard.is_busy, runner.shard.total) == (False, 5)


async def test_an_input_of_nobody_that_fails_each_time_is_passed_over(world: World) -> None:
    """A timer that comes back each time the log is read."""
    runner = world.runner
    for _ in range(2 * MAX_FRESH_STARTS):
        runner.tell(broken)
        await reading(runner)
    assert runner.state is ShardState.ACTIVE
    assert await runner.submit(lambda token, now_ms: runner.shard.add(token, 1)) == 1


async def test_a_shard_that_broke_is_read_again_from_its_log(world: World) -> None:
    runner = world.runner
    await runner.submit(lambda token, now_ms: runner.shard.add(token, 5))
    broken = runner.shard
    waiting = runner.submit(lambda token, now_ms: NOTHING)
    lost = runner.submit(lambda token, now_ms: Decision((LogRecord(b"k", b"not a number"),), (Reply(token, "never"),)))
    with pytest.raises(ShardUnloadedError):
        await waiting
    with pytest.raises(ShardUnloadedError):
        await lost
    assert runner.shard is not broken
    await reading(runner)
    assert runner.state is ShardState.UNLOADED, "a log that cannot be read is not available"


@pytest.mark.parametrize("fault", [InvariantError("broken"), RuntimeError("broken")])
async def test_an_input_of_nobody_that_fails_starts_the_shard_over(world: World, fault: Exception) -> None:
    """Without its timers a group would stay as it is until a restart."""
    runner = world.runner
    await runner.submit(lambda token, now_ms: runner.shard.add(token, 5))
    runner.shard.total = 99

    def fails(now_ms: int) -> Decision:
        raise fault

    runner.tell(fails)
    await reading(runner)
    assert runner.shard.total == 5
    assert await runner.submit(lambda token, now_ms: runner.shard.add(token, 1)) == 6


class _Hopeless(CountingShard):
    """Fails on what it has read, each time."""

    def loaded(self, now_ms: int) -> Iterator[Decision]:
        raise InvariantError("cannot be")


async def test_a_shard_that_fails_on_its_own_log_is_given_up(world: World) -> None:
    made: list[CountingShard] = []

    def make(tp: TopicPartition) -> CountingShard:
        made.append(_Hopeless())
        return made[-1]

    runner = ShardRunner(TP, make, apply, world.runtime, lambda _, effect: None)
    for _ in runner.load():
        pass
    await reading(runner)
    assert runner.state is ShardState.UNLOADED
    assert len(made) == 1 + MAX_FRESH_STARTS


async def test_a_shard_whose_requests_go_well_is_read_again_as_often_as_it_must_be(world: World) -> None:
    runner = world.runner
    for number in range(1, 2 * MAX_FRESH_STARTS):
        runner.tell(broken)
        await reading(runner)
        assert await runner.submit(lambda token, now_ms: runner.shard.add(token, 1)) == number


async def test_a_shard_is_read_again_in_slices(world: World) -> None:
    runner = world.runner
    for _ in range(5 * TURN_MS):
        await runner.submit(lambda token, now_ms: runner.shard.add(token, 1))
    runner.tell(broken)
    assert runner.shard.total == 0, "nothing is read in the turn that fails"
    applied = await reading(runner)
    assert runner.state is ShardState.ACTIVE
    assert runner.shard.total == sum(applied) == 5 * TURN_MS
    assert max(applied) <= TURN_MS


async def test_what_comes_while_a_shard_is_read_again_waits_or_is_sent_away(world: World) -> None:
    runner = world.runner
    for _ in range(5 * TURN_MS):
        await runner.submit(lambda token, now_ms: runner.shard.add(token, 1))
    runner.tell(broken)
    await asyncio.sleep(0)
    assert 0 < runner.shard.total < 5 * TURN_MS
    with pytest.raises(ShardUnloadedError):
        await runner.submit(lambda token, now_ms: runner.shard.add(token, 1))
    runner.tell(lambda now_ms: runner.shard.add(0, 7))
    world.partitions.append_marker(
        TP, producer_id=9, producer_epoch=0, commit=True, coordinator_epoch=0, transaction_version=0
    )
    runner.marker_written(9, commit=True)
    await reading(runner)
    assert runner.shard.events[-4:] == ["marker 9 True", "loaded", "decide 7", "apply 7"]
    assert runner.shard.events.count("marker 9 True") == 1


async def test_a_shard_that_is_unloaded_while_it_is_read_stays_so(world: World) -> None:
    runner = world.runner
    for _ in range(5 * TURN_MS):
        await runner.submit(lambda token, now_ms: runner.shard.add(token, 1))
    runner.tell(broken)
    await asyncio.sleep(0)
    runner.unload()
    runner.tell(lambda now_ms: runner.shard.add(0, 7))
    for _ in range(10):
        await asyncio.sleep(0)
    assert runner.state is ShardState.UNLOADED
    assert "loaded" not in runner.shard.events
    assert "decide 7" not in runner.shard.events


async def test_what_came_while_a_shard_was_read_is_heard_in_order_and_in_slices(world: World) -> None:
    """It was all heard in one turn, behind the load. What comes while it is heard is the last, and not left out."""
    runner = world.runner
    runner.tell(broken)

    def last(now_ms: int) -> Decision:
        return runner.shard.add(0, 1_000)

    def first(now_ms: int) -> Decision:
        runner.tell(last)
        return runner.shard.add(0, 0)

    runner.tell(first)
    many = range(1, 5 * TURN_MS)
    for number in many:
        runner.tell(lambda now_ms, number=number: runner.shard.add(0, number))  # type: ignore[misc]
    applied = await reading(runner)
    assert runner.state is ShardState.ACTIVE
    decided = [int(event.split()[1]) for event in runner.shard.events if event.startswith("decide")]
    assert decided == [0, *many, 1_000]
    assert sum(applied) == len(decided)
    assert max(applied) <= TURN_MS


async def test_a_fault_in_what_came_while_a_shard_was_read_has_it_read_again_once(world: World) -> None:
    """What is behind the fault is not heard: the log, read again, says what follows, as with a fault later on."""
    runner = world.runner
    for _ in range(5 * TURN_MS):
        await runner.submit(lambda token, now_ms: runner.shard.add(token, 1))
    runner.tell(broken)
    first = runner.shard
    runner.tell(lambda now_ms: runner.shard.add(0, 7))
    runner.tell(broken)
    runner.tell(lambda now_ms: runner.shard.add(0, 9))
    await reading(runner)
    assert runner.state is ShardState.ACTIVE
    assert runner.shard is not first
    assert first.events[-3:] == ["loaded", "decide 7", "apply 7"]
    assert runner.shard.events == [*["apply 1"] * (5 * TURN_MS), "apply 7", "loaded"]
    assert await runner.submit(lambda token, now_ms: runner.shard.add(token, 1)) == 5 * TURN_MS + 8


async def test_a_shard_that_is_unloaded_while_it_hears_what_came_stays_so(world: World) -> None:
    runner = world.runner
    runner.tell(broken)
    for _ in range(5 * TURN_MS):
        runner.tell(lambda now_ms: runner.shard.add(0, 7))
    await some_turns_until(lambda: applied(runner) > 0)
    heard = applied(runner)
    assert heard < 5 * TURN_MS
    runner.unload()
    for _ in range(10):
        await asyncio.sleep(0)
    assert (runner.state, applied(runner)) == (ShardState.UNLOADED, heard)
