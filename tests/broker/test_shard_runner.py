"""Decide, append, apply, reply: the order, one input at a time, and what a failed append leaves behind."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from ottla.base.limits import HERD_ANSWERS_AT_ONCE, MAX_FRESH_STARTS
from ottla.base.require import InvariantError
from ottla.base.types import TopicPartition
from ottla.broker.config import BrokerConfig
from ottla.broker.metadata.image import PartitionImage, TopicImage
from ottla.broker.runtime.partitions import Partitions
from ottla.broker.runtime.shard import ShardRunner, ShardRuntime, ShardState, ShardUnloadedError, log_records
from ottla.broker.runtime.slices import TURN_MS, Slices
from ottla.broker.runtime.timers import Timers
from ottla.broker.storage import DirectoryDisk
from ottla.coordinator.decision import (
    NOTHING,
    CancelTimer,
    Decision,
    Effect,
    LogRecord,
    Reply,
    SetTimer,
    TransactionalWrite,
    WriteMarkers,
)
from ottla.log.replay import ReplayedBatch, replay
from ottla.wire.errors import ErrorCode
from tests.broker.ticking import TickingClock, some_turns_until

_TP = TopicPartition("log", 0)


class _Counter:
    """A shard that counts its records and writes down what happens to it."""

    def __init__(self) -> None:
        self.is_busy = False
        self.total = 0
        self.events: list[str] = []

    def add(self, token: int, amount: int) -> Decision:
        self.events.append(f"decide {amount}")
        return Decision((LogRecord(b"k", b"%d" % amount),), (Reply(token, self.total + amount),))

    def timer(self, key: tuple[str, ...], now_ms: int) -> Decision:
        self.events.append(f"timer {key[0]}")
        return Decision((LogRecord(b"k", b"100"),))

    def append_failed(self, decision: Decision, error: ErrorCode) -> Decision:
        return Decision(replies=tuple(Reply(reply.token, error) for reply in decision.replies))

    def loaded(self, now_ms: int) -> Iterator[Decision]:
        self.events.append("loaded")
        yield Decision(timers=(SetTimer(("tick",), 1_000),))


def _apply(shard: _Counter, batch: ReplayedBatch, now_ms: int) -> Decision:
    if batch.commit is not None:
        shard.events.append(f"marker {batch.producer_id} {batch.commit}")
    for record in log_records(batch):
        shard.total += int(record.value or b"0")
        shard.events.append(f"apply {int(record.value or b'0')}")
    return NOTHING


class _Handle:
    def cancel(self) -> None:
        """Nothing runs by itself here."""


class _NoLoop:
    def call_later(self, delay: float, callback: Callable[[], object], /) -> _Handle:
        return _Handle()


class _World:
    """Partitions in a directory, timers on a clock held by the test, and a runner over them."""

    def __init__(self, data_dir: Path) -> None:
        self.clock = TickingClock()
        self.partitions = Partitions(BrokerConfig(), self.clock, DirectoryDisk(data_dir), Random(1))
        self.partitions.open_topic(TopicImage("log", b"i" * 16, [PartitionImage(1, 0, (1,))]), {})
        self.runtime = ShardRuntime(self.partitions, Timers(self.clock, _NoLoop()), self.clock, Slices(self.clock))
        self.effects: list[Effect] = []
        self.runner = self.new_runner()

    def new_runner(self) -> ShardRunner[_Counter]:
        runner = ShardRunner(
            _TP, lambda tp: _Counter(), _apply, self.runtime, lambda _, effect: self.effects.append(effect)
        )
        for _ in runner.load():
            pass
        return runner

    def lose_partition(self) -> None:
        list(self.partitions.take_out(TopicImage("log", b"i" * 16, [PartitionImage(1, 0, (1,))])))


async def _reading(runner: ShardRunner[_Counter]) -> list[int]:
    """Let the runner read its log; how many records it applies in each turn of the loop."""
    applied = []
    for _ in range(10_000):
        if runner.state is not ShardState.LOADING:
            break
        before = _applied(runner)
        await asyncio.sleep(0)
        applied.append(_applied(runner) - before)
    return applied


def _applied(runner: ShardRunner[_Counter]) -> int:
    return sum(event.startswith("apply") for event in runner.shard.events)


def _broken(now_ms: int) -> Decision:
    raise InvariantError("broken")


@pytest.fixture
def world(tmp_path: Path) -> _World:
    return _World(tmp_path)


async def test_replies_come_after_the_append(world: _World) -> None:
    runner = world.runner
    answer = runner.submit(lambda token, now_ms: runner.shard.add(token, 5))
    assert answer.done()
    assert await answer == 5
    assert runner.shard.events == ["loaded", "decide 5", "apply 5"]
    partition = world.partitions.find(*_TP)
    assert partition is not None
    assert [record.value for each in replay(partition.log) for record in each.records] == [b"5"]


async def test_many_are_answered_some_in_a_turn_of_the_loop(world: _World) -> None:
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


async def test_what_was_appended_is_there_after_a_restart(world: _World) -> None:
    for amount in (1, 2, 3):
        await world.runner.submit(lambda token, now_ms, amount=amount: world.runner.shard.add(token, amount))  # type: ignore[misc]
    again = world.new_runner()
    assert again.shard.total == 6
    assert again.shard.events == ["apply 1", "apply 2", "apply 3", "loaded"]


async def test_a_failed_append_changes_nothing_and_is_told(world: _World) -> None:
    world.lose_partition()
    answer = world.runner.submit(lambda token, now_ms: world.runner.shard.add(token, 5))
    assert await answer is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert world.runner.shard.total == 0


async def test_inputs_that_come_meanwhile_wait_for_their_turn(world: _World) -> None:
    runner = world.runner

    def outer(token: int, now_ms: int) -> Decision:
        runner.tell(lambda now_ms: runner.shard.add(0, 2))
        runner.shard.events.append("outer goes on")
        return runner.shard.add(token, 1)

    await runner.submit(outer)
    assert runner.shard.events[1:] == ["outer goes on", "decide 1", "apply 1", "decide 2", "apply 2"]


def _long(shard: _Counter, token: int, amounts: list[int]) -> Decision:
    """A decision for each amount, of which the last one answers."""
    decision = shard.add(token, amounts[0])
    if len(amounts) == 1:
        return decision
    return decision._replace(replies=(), rest=lambda: _long(shard, token, amounts[1:]))


async def test_the_rest_of_a_decision_comes_in_slices_and_before_all_other_inputs(world: _World) -> None:
    runner, parts = world.runner, 4 * TURN_MS
    answer = runner.submit(lambda token, now_ms: _long(runner.shard, token, [1] * parts))
    others = [runner.submit(lambda token, now_ms: runner.shard.add(token, 100)) for _ in range(2)]
    runner.marker_written(9, commit=True)
    written = [runner.shard.total]
    while not answer.done():
        await asyncio.sleep(0)
        if not answer.done():
            written.append(runner.shard.total)
    assert len(written) >= parts // TURN_MS
    assert max(written) < parts
    assert runner.shard.total == parts + 100 * sum(other.done() for other in others)
    assert await asyncio.gather(answer, *others) == [parts, parts + 100, parts + 200]
    assert await runner.submit(lambda token, now_ms: runner.shard.add(token, 1)) == parts + 201
    behind = ["decide 100", "apply 100"] * 2 + ["decide 1", "apply 1"]
    assert runner.shard.events[-7:] == ["marker 9 True", *behind], "it is in the log, and they are not"


async def test_a_fault_in_the_rest_of_a_decision_has_the_log_read_again(world: _World) -> None:
    runner = world.runner
    waiting = runner.submit(lambda token, now_ms: runner.shard.add(0, 7)._replace(rest=lambda: _broken(now_ms)))
    behind = runner.submit(lambda token, now_ms: runner.shard.add(token, 100))
    for lost in (waiting, behind):
        with pytest.raises(ShardUnloadedError):
            await lost
    await _reading(runner)
    assert runner.shard.total == 7
    assert await runner.submit(lambda token, now_ms: runner.shard.add(token, 1)) == 8


@pytest.mark.parametrize("token", [None, 1])
async def test_a_shard_whose_decisions_fail_half_way_again_and_again_is_not_available(
    world: _World, token: int | None
) -> None:
    """Passed over, the rest of an input would leave the shard half changed for good."""
    runner = world.runner
    for _ in range(MAX_FRESH_STARTS + 1):
        assert runner.state is ShardState.ACTIVE
        runner._take(lambda now_ms: Decision(rest=lambda: _broken(now_ms)), token)
        await some_turns_until(lambda: runner.state is not ShardState.ACTIVE)
        await _reading(runner)
    assert runner.state is ShardState.UNLOADED


async def test_a_request_that_fails_before_anything_is_decided_fails_alone(world: _World) -> None:
    """A heartbeat of very many names is looked at in steps: a fault in one had the whole shard read again."""
    runner, shard = world.runner, world.runner.shard
    for _ in range(2 * MAX_FRESH_STARTS):
        waiting = runner.submit(lambda token, now_ms: _looks(2, lambda: _broken(now_ms)))
        with pytest.raises(InvariantError):
            await waiting
    assert runner.shard is shard
    assert runner.state is ShardState.ACTIVE
    assert await runner.submit(lambda token, now_ms: _looks(3, lambda: runner.shard.add(token, 7))) == 7


def _looks(times: int, decide: Callable[[], Decision]) -> Decision:
    """So many steps decide nothing, before one does."""
    return Decision(rest=lambda: _looks(times - 1, decide), is_undecided=True) if times else decide()


async def test_a_shard_that_is_unloaded_carries_out_no_rest(world: _World) -> None:
    runner = world.runner
    waiting = runner.submit(lambda token, now_ms: _long(runner.shard, token, [1, 2]))
    runner.unload()
    with pytest.raises(ShardUnloadedError):
        await waiting
    await some_turns_until(lambda: not world.runtime.slices._tasks)
    assert runner.shard.total == 1


async def test_what_is_heard_while_a_shard_loads_is_carried_out_to_its_end(world: _World) -> None:
    runner = ShardRunner(_TP, lambda tp: _Counter(), _apply, world.runtime, lambda _, effect: None)
    runner.tell(lambda now_ms: _long(runner.shard, 0, [1, 2, 4]))
    runner.tell(lambda now_ms: runner.shard.add(0, 8))
    for _ in runner.load():
        pass
    assert [each for each in runner.shard.events if "decide" in each] == [f"decide {n}" for n in (1, 2, 4, 8)]
    assert runner.shard.total == 15


async def test_timers_are_set_replaced_and_forgotten(world: _World) -> None:
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


async def test_effects_are_carried_out_last(world: _World) -> None:
    effect = WriteMarkers("id", 1, 0, True, (), 0)
    world.runner.tell(lambda now_ms: Decision((LogRecord(b"k", b"1"),), effects=(effect,)))
    assert world.effects == [effect]
    assert world.runner.shard.total == 1


async def test_a_transactional_decision_is_a_transactional_batch(world: _World) -> None:
    partition = world.partitions.find(*_TP)
    assert partition is not None
    begun = partition.log.begin_verification(9, -1, 2, supports_epoch_bump=True, now_ms=world.clock.now_ms())
    partition.log.confirm_verification(9, begun.guard)
    decision = Decision((LogRecord(b"k", b"1"),), transactional=TransactionalWrite(9, 2))
    world.runner.tell(lambda now_ms: decision)
    assert partition.log.has_ongoing_transaction(9, 2)
    (batch,) = replay(partition.log)
    assert batch.producer_id == 9
    world.runner.marker_written(9, commit=True)
    assert world.runner.shard.events[-1] == "marker 9 True"


async def test_a_fault_fails_its_own_request_only(world: _World) -> None:
    def broken(token: int, now_ms: int) -> Decision:
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        await world.runner.submit(broken)
    assert await world.runner.submit(lambda token, now_ms: world.runner.shard.add(token, 1)) == 1


async def test_a_broken_invariant_of_a_request_that_is_not_decided_fails_that_request_only(world: _World) -> None:
    """However often it comes: reading the log again would keep the partition from all others."""
    shard = world.runner.shard
    for number in range(1, 3 * MAX_FRESH_STARTS):
        with pytest.raises(InvariantError, match="broken"):
            await world.runner.submit(lambda token, now_ms: _broken(now_ms))
        assert await world.runner.submit(lambda token, now_ms: shard.add(token, 1)) == number
    assert (world.runner.shard, world.runner.state) == (shard, ShardState.ACTIVE)


@pytest.mark.parametrize("fault", [InvariantError("broken"), RuntimeError("broken")])
async def test_a_request_that_fails_with_its_decision_half_made_has_the_log_read_again(
    world: _World, fault: Exception
) -> None:
    runner = world.runner
    await runner.submit(lambda token, now_ms: runner.shard.add(token, 5))

    def half(token: int, now_ms: int) -> Decision:
        runner.shard.is_busy = True
        raise fault

    with pytest.raises(ShardUnloadedError):
        await runner.submit(half)
    await _reading(runner)
    assert (runner.shard.is_busy, runner.shard.total) == (False, 5)


async def test_an_input_of_nobody_that_fails_each_time_is_passed_over(world: _World) -> None:
    """A timer that comes back each time the log is read."""
    runner = world.runner
    for _ in range(2 * MAX_FRESH_STARTS):
        runner.tell(_broken)
        await _reading(runner)
    assert runner.state is ShardState.ACTIVE
    assert await runner.submit(lambda token, now_ms: runner.shard.add(token, 1)) == 1


async def test_a_shard_that_broke_is_read_again_from_its_log(world: _World) -> None:
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
    await _reading(runner)
    assert runner.state is ShardState.UNLOADED, "a log that cannot be read is not available"


@pytest.mark.parametrize("fault", [InvariantError("broken"), RuntimeError("broken")])
async def test_an_input_of_nobody_that_fails_starts_the_shard_over(world: _World, fault: Exception) -> None:
    """Without its timers a group would stay as it is until a restart."""
    runner = world.runner
    await runner.submit(lambda token, now_ms: runner.shard.add(token, 5))
    runner.shard.total = 99

    def fails(now_ms: int) -> Decision:
        raise fault

    runner.tell(fails)
    await _reading(runner)
    assert runner.shard.total == 5
    assert await runner.submit(lambda token, now_ms: runner.shard.add(token, 1)) == 6


class _Hopeless(_Counter):
    """Fails on what it has read, each time."""

    def loaded(self, now_ms: int) -> Iterator[Decision]:
        raise InvariantError("cannot be")


async def test_a_shard_that_fails_on_its_own_log_is_given_up(world: _World) -> None:
    made: list[_Counter] = []

    def make(tp: TopicPartition) -> _Counter:
        made.append(_Hopeless())
        return made[-1]

    runner = ShardRunner(_TP, make, _apply, world.runtime, lambda _, effect: None)
    for _ in runner.load():
        pass
    await _reading(runner)
    assert runner.state is ShardState.UNLOADED
    assert len(made) == 1 + MAX_FRESH_STARTS


async def test_a_shard_whose_requests_go_well_is_read_again_as_often_as_it_must_be(world: _World) -> None:
    runner = world.runner
    for number in range(1, 2 * MAX_FRESH_STARTS):
        runner.tell(_broken)
        await _reading(runner)
        assert await runner.submit(lambda token, now_ms: runner.shard.add(token, 1)) == number


async def test_a_shard_is_read_again_in_slices(world: _World) -> None:
    runner = world.runner
    for _ in range(5 * TURN_MS):
        await runner.submit(lambda token, now_ms: runner.shard.add(token, 1))
    runner.tell(_broken)
    assert runner.shard.total == 0, "nothing is read in the turn that fails"
    applied = await _reading(runner)
    assert runner.state is ShardState.ACTIVE
    assert runner.shard.total == sum(applied) == 5 * TURN_MS
    assert max(applied) <= TURN_MS


async def test_what_comes_while_a_shard_is_read_again_waits_or_is_sent_away(world: _World) -> None:
    runner = world.runner
    for _ in range(5 * TURN_MS):
        await runner.submit(lambda token, now_ms: runner.shard.add(token, 1))
    runner.tell(_broken)
    await asyncio.sleep(0)
    assert 0 < runner.shard.total < 5 * TURN_MS
    with pytest.raises(ShardUnloadedError):
        await runner.submit(lambda token, now_ms: runner.shard.add(token, 1))
    runner.tell(lambda now_ms: runner.shard.add(0, 7))
    world.partitions.append_marker(
        _TP, producer_id=9, producer_epoch=0, commit=True, coordinator_epoch=0, transaction_version=0
    )
    runner.marker_written(9, commit=True)
    await _reading(runner)
    assert runner.shard.events[-4:] == ["marker 9 True", "loaded", "decide 7", "apply 7"]
    assert runner.shard.events.count("marker 9 True") == 1


async def test_a_shard_that_is_unloaded_while_it_is_read_stays_so(world: _World) -> None:
    runner = world.runner
    for _ in range(5 * TURN_MS):
        await runner.submit(lambda token, now_ms: runner.shard.add(token, 1))
    runner.tell(_broken)
    await asyncio.sleep(0)
    runner.unload()
    runner.tell(lambda now_ms: runner.shard.add(0, 7))
    for _ in range(10):
        await asyncio.sleep(0)
    assert runner.state is ShardState.UNLOADED
    assert "loaded" not in runner.shard.events
    assert "decide 7" not in runner.shard.events


async def test_what_came_while_a_shard_was_read_is_heard_in_order_and_in_slices(world: _World) -> None:
    """It was all heard in one turn, behind the load. What comes while it is heard is the last, and not left out."""
    runner = world.runner
    runner.tell(_broken)

    def last(now_ms: int) -> Decision:
        return runner.shard.add(0, 1_000)

    def first(now_ms: int) -> Decision:
        runner.tell(last)
        return runner.shard.add(0, 0)

    runner.tell(first)
    many = range(1, 5 * TURN_MS)
    for number in many:
        runner.tell(lambda now_ms, number=number: runner.shard.add(0, number))  # type: ignore[misc]
    applied = await _reading(runner)
    assert runner.state is ShardState.ACTIVE
    decided = [int(event.split()[1]) for event in runner.shard.events if event.startswith("decide")]
    assert decided == [0, *many, 1_000]
    assert sum(applied) == len(decided)
    assert max(applied) <= TURN_MS


async def test_a_fault_in_what_came_while_a_shard_was_read_has_it_read_again_once(world: _World) -> None:
    """What is behind the fault is not heard: the log, read again, says what follows, as with a fault later on."""
    runner = world.runner
    for _ in range(5 * TURN_MS):
        await runner.submit(lambda token, now_ms: runner.shard.add(token, 1))
    runner.tell(_broken)
    first = runner.shard
    runner.tell(lambda now_ms: runner.shard.add(0, 7))
    runner.tell(_broken)
    runner.tell(lambda now_ms: runner.shard.add(0, 9))
    await _reading(runner)
    assert runner.state is ShardState.ACTIVE
    assert runner.shard is not first
    assert first.events[-3:] == ["loaded", "decide 7", "apply 7"]
    assert runner.shard.events == [*["apply 1"] * (5 * TURN_MS), "apply 7", "loaded"]
    assert await runner.submit(lambda token, now_ms: runner.shard.add(token, 1)) == 5 * TURN_MS + 8


async def test_a_shard_that_is_unloaded_while_it_hears_what_came_stays_so(world: _World) -> None:
    runner = world.runner
    runner.tell(_broken)
    for _ in range(5 * TURN_MS):
        runner.tell(lambda now_ms: runner.shard.add(0, 7))
    await some_turns_until(lambda: _applied(runner) > 0)
    heard = _applied(runner)
    assert heard < 5 * TURN_MS
    runner.unload()
    for _ in range(10):
        await asyncio.sleep(0)
    assert (runner.state, _applied(runner)) == (ShardState.UNLOADED, heard)
