"""SPEC S2 on the model: whatever is killed, repeated, delayed or left behind as a zombie."""

import re
from collections import Counter
from itertools import cycle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.spark.errors import InDoubtError
from ottla.spark.ledger import BatchKey, Handle, QueryPast, SlotMarker
from ottla.spark.protocol import (
    Claim,
    EndTransactions,
    InitProducer,
    SlotReport,
    SlotTask,
    commit_batch,
    driver_id,
    slot_id,
    slot_pattern,
    slot_task,
)
from tests.spark.kafka_model import Produce
from tests.spark.spark_model import GROUP, SLOTS, World, rows_of

BATCHES = 3
CHOICES = st.lists(st.integers(0, 9_999), min_size=60, max_size=260)


def expected(variant: int = 0) -> Counter[str]:
    return Counter(row for b in range(BATCHES) for s in range(SLOTS) for row in rows_of(b, s, variant))


def run(world: World, choices: list[int]) -> None:
    for choice in choices:
        world.act(choice)


@settings(max_examples=400, deadline=None)
@given(choices=CHOICES, second_protocol=st.booleans())
def test_s2_the_committed_image_is_exact_after_any_kill_retry_speculation_or_zombie(
    choices: list[int], second_protocol: bool
) -> None:
    world = World(BATCHES, second_protocol=second_protocol, variants=cycle([0]))
    run(world, choices)
    world.calm_down()
    assert all(driver.failed is None for driver in world.drivers[-1:]), world.drivers[-1].failed
    assert world.commits == set(range(BATCHES))
    finished = Counter(world.kafka.output)
    assert finished == expected()
    assert world.kafka.group == {(GROUP, "in", 0): BATCHES * 10}
    # requests of the dead that arrive after everything is over change nothing
    while world.on_the_wire:
        world.deliver(world.on_the_wire[0])
        for name in world.kafka.prepared():
            world.kafka.write_markers(name)
    assert Counter(world.kafka.output) == finished


@settings(max_examples=400, deadline=None)
@given(choices=CHOICES, variants=st.lists(st.integers(0, 1), min_size=1, max_size=12), second_protocol=st.booleans())
def test_s2_a_query_that_gives_other_rows_when_run_again_is_exact_or_stops_in_doubt(
    choices: list[int], variants: list[int], second_protocol: bool
) -> None:
    world = World(BATCHES, second_protocol=second_protocol, variants=cycle(variants))
    run(world, choices)
    driver = world.calm_down()
    if driver.failed is not None:
        assert isinstance(driver.failed, InDoubtError)
        assert f"batch {driver.failed.batch} of query" in str(driver.failed)
        return
    # both variants have the same rows, in other slots: a torn batch would lose or repeat the row that moves
    assert Counter(world.kafka.output) == expected()


def test_s2_without_faults_every_batch_is_one_decision() -> None:
    world = World(BATCHES, second_protocol=True, variants=cycle([0]))
    world.calm_down()
    assert Counter(world.kafka.output) == expected()


@pytest.mark.parametrize("second_protocol", [True, False])
def test_s2_a_driver_killed_at_each_of_its_steps_is_recovered_by_the_next(second_protocol: bool) -> None:
    for steps in range(60):
        world = World(BATCHES, second_protocol=second_protocol, variants=cycle([0]))
        for _ in range(steps):
            for name in world.kafka.prepared():
                world.kafka.write_markers(name)
            for process in [p for p in world.drivers + world.tasks if p.alive]:
                world.step(process)
        world.calm_down()
        assert Counter(world.kafka.output) == expected(), steps


def reports_of(driver: Handle, past: dict[str, QueryPast], tasks: list[tuple[int, SlotTask]]) -> list[SlotReport]:
    claim = Claim("s", driver, past)
    return [SlotReport(claim, KEY, slot, task, 1, "d", None) for slot, task in tasks]


KEY = BatchKey("q", 4)
DRIVER = Handle("s-driver", 9, 2)


def test_s2_a_committed_slot_that_the_replay_does_not_have_is_in_doubt() -> None:
    past = {"q": QueryPast(complete=3, latest=4, committed=(SlotMarker(KEY, 2, 1, "d"),))}
    steps = commit_batch(reports_of(DRIVER, past, [(0, SlotTask.WRITE), (1, SlotTask.WRITE)]), {})
    with pytest.raises(InDoubtError, match=r"batch 4 of query q is in doubt: slots \[2\] are committed"):
        next(steps)


@pytest.mark.parametrize(("batch", "why"), [(2, "rolled back"), (3, "rolled back"), (5, "Spark went on without it")])
def test_s2_a_checkpoint_that_disagrees_with_the_ledger_is_in_doubt(batch: int, why: str) -> None:
    past = {"q": QueryPast(complete=3 if batch > 4 else 1, latest=4, committed=(SlotMarker(KEY, 0, 1, "d"),))}
    with pytest.raises(InDoubtError, match=why):
        slot_task(Claim("s", DRIVER, past), BatchKey("q", batch), 0)


def test_s2_a_batch_without_rows_and_offsets_asks_nothing_of_kafka() -> None:
    assert list(commit_batch(reports_of(DRIVER, {}, [(0, SlotTask.WRITE)]), {})) == []


def test_s2_recovery_commits_a_decided_batch_instead_of_writing_it_again() -> None:
    world = World(1, second_protocol=True, variants=cycle([0]))
    driver = world.drivers[0]
    while not isinstance(driver.request, EndTransactions) or driver.request.handles[0].transactional_id == "s-driver":
        for name in world.kafka.prepared():
            world.kafka.write_markers(name)
        for process in [p for p in world.drivers + world.tasks if p.alive]:
            world.step(process)
    driver.alive = False
    tasks_before = len(world.tasks)
    world.calm_down()
    assert Counter(world.kafka.output) == Counter(rows_of(0, 0, 0) + rows_of(0, 1, 0) + rows_of(0, 2, 0))
    assert not any(isinstance(task.request, InitProducer | Produce) for task in world.tasks[tasks_before:])


@pytest.mark.parametrize("sink", ["s", "a.b_c-1"])
def test_slot_pattern_matches_the_slots_of_one_sink_only(sink: str) -> None:
    pattern = re.compile(slot_pattern(sink))
    assert pattern.match(slot_id(sink, 0)) and pattern.match(slot_id(sink, 12))
    for other in (
        driver_id(sink),
        slot_id(sink + "-1", 0),
        slot_id("x" + sink, 0),
        slot_id(sink.replace(".", "x") + "y", 0),
    ):
        assert not pattern.match(other)
