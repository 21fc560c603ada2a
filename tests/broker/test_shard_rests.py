"""A decision with a rest is carried out in slices: before all other inputs, to its end, or not at all."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.base.limits import MAX_FRESH_STARTS
from ottla.base.require import InvariantError
from ottla.broker.runtime.shard import ShardRunner, ShardState, ShardUnloadedError
from ottla.broker.runtime.slices import TURN_MS
from ottla.coordinator.decision import Decision
from tests.broker.counting_shard import TP, CountingShard, World, apply, broken, reading
from tests.broker.ticking import some_turns_until


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def _long(shard: CountingShard, token: int, amounts: list[int]) -> Decision:
    """A decision for each amount, of which the last one answers."""
    decision = shard.add(token, amounts[0])
    if len(amounts) == 1:
        return decision
    return decision._replace(replies=(), rest=lambda: _long(shard, token, amounts[1:]))


async def test_the_rest_of_a_decision_comes_in_slices_and_before_all_other_inputs(world: World) -> None:
    runner, parts = world.runner, 4 * TURN_MS + 1
    answer = runner.submit(lambda token, now_ms: _long(runner.shard, token, [1] * parts))
    others = [runner.submit(lambda token, now_ms: runner.shard.add(token, 100)) for _ in range(2)]
    runner.marker_written(9, commit=True)
    written = [runner.shard.total]
    while not answer.done():
        await asyncio.sleep(0)
        if not answer.done():
            written.append(runner.shard.total)
    assert len(written) >= 4
    assert max(written) < parts
    assert runner.shard.total == parts + 100 * sum(other.done() for other in others)
    assert await asyncio.gather(answer, *others) == [parts, parts + 100, parts + 200]
    assert await runner.submit(lambda token, now_ms: runner.shard.add(token, 1)) == parts + 201
    behind = ["decide 100", "apply 100"] * 2 + ["decide 1", "apply 1"]
    assert runner.shard.events[-7:] == ["marker 9 True", *behind], "it is in the log, and they are not"


async def test_a_fault_in_the_rest_of_a_decision_has_the_log_read_again(world: World) -> None:
    runner = world.runner
    waiting = runner.submit(lambda token, now_ms: runner.shard.add(0, 7)._replace(rest=lambda: broken(now_ms)))
    behind = runner.submit(lambda token, now_ms: runner.shard.add(token, 100))
    for lost in (waiting, behind):
        with pytest.raises(ShardUnloadedError):
            await lost
    await reading(runner)
    assert runner.shard.total == 7
    assert await runner.submit(lambda token, now_ms: runner.shard.add(token, 1)) == 8


@pytest.mark.parametrize("token", [None, 1])
async def test_a_shard_whose_decisions_fail_half_way_again_and_again_is_not_available(
    world: World, token: int | None
) -> None:
    """Passed over, the rest of an input would leave the shard half changed for good."""
    runner = world.runner
    for _ in range(MAX_FRESH_STARTS + 1):
        assert runner.state is ShardState.ACTIVE
        runner._take(lambda now_ms: Decision(rest=lambda: broken(now_ms)), token)
        await some_turns_until(lambda: runner.state is not ShardState.ACTIVE)
        await reading(runner)
    assert runner.state is ShardState.UNLOADED


async def test_a_request_that_fails_before_anything_is_decided_fails_alone(world: World) -> None:
    """A heartbeat of very many names is looked at in steps: a fault in one had the whole shard read again."""
    runner, shard = world.runner, world.runner.shard
    for _ in range(2 * MAX_FRESH_STARTS):
        waiting = runner.submit(lambda token, now_ms: _looks(2, lambda: broken(now_ms)))
        with pytest.raises(InvariantError):
            await waiting
    assert runner.shard is shard
    assert runner.state is ShardState.ACTIVE
    assert await runner.submit(lambda token, now_ms: _looks(3, lambda: runner.shard.add(token, 7))) == 7


def _looks(times: int, decide: Callable[[], Decision]) -> Decision:
    """So many steps decide nothing, before one does."""
    return Decision(rest=lambda: _looks(times - 1, decide), is_undecided=True) if times else decide()


async def test_a_shard_that_is_unloaded_carries_out_no_rest(world: World) -> None:
    runner = world.runner
    waiting = runner.submit(lambda token, now_ms: _long(runner.shard, token, [1, 2]))
    runner.unload()
    with pytest.raises(ShardUnloadedError):
        await waiting
    await some_turns_until(lambda: not world.runtime.slices._tasks)
    assert runner.shard.total == 1


async def test_what_is_heard_while_a_shard_loads_is_carried_out_to_its_end(world: World) -> None:
    runner = ShardRunner(TP, lambda tp: CountingShard(), apply, world.runtime, lambda _, effect: None)
    runner.tell(lambda now_ms: _long(runner.shard, 0, [1, 2, 4]))
    runner.tell(lambda now_ms: runner.shard.add(0, 8))
    for _ in runner.load():
        pass
    assert [each for each in runner.shard.events if "decide" in each] == [f"decide {n}" for n in (1, 2, 4, 8)]
    assert runner.shard.total == 15
