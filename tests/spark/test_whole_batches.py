"""`atomicity=batch` on the model: at every moment each batch is in the output whole or not at all."""

from collections import Counter
from collections.abc import Iterator
from itertools import cycle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.spark.ids import driver_id
from ottla.spark.requests import CopyStaged
from tests.spark.spark_model import GROUP, QUERY, SLOTS, World, rows_of

BATCHES = 3
CHOICES = st.lists(st.integers(0, 9_999), min_size=60, max_size=260)


def of_batch(batch: int, variant: int) -> Counter[str]:
    return Counter(row for slot in range(SLOTS) for row in rows_of(batch, slot, variant))


def batches_in(output: list[str]) -> Iterator[tuple[int, Counter[str]]]:
    for batch in range(BATCHES):
        yield batch, Counter(row for row in output if row.startswith(f"{QUERY}.{batch}."))


@settings(max_examples=300, deadline=None)
@given(
    choices=CHOICES,
    second_protocol=st.booleans(),
    speculation=st.booleans(),
    compacting=st.booleans(),
    variants=st.lists(st.integers(0, 1), min_size=1, max_size=5),
)
def test_s2_each_batch_is_there_once_and_whole_at_every_moment_whatever_the_plan_gives(
    choices: list[int], second_protocol: bool, speculation: bool, compacting: bool, variants: list[int]
) -> None:
    world = World(
        BATCHES,
        second_protocol=second_protocol,
        variants=cycle(variants),
        speculation=speculation,
        compacting=compacting,
        whole=True,
    )

    def check() -> None:
        for batch, rows in batches_in(world.kafka.output):
            assert not rows or rows in (of_batch(batch, 0), of_batch(batch, 1))

    for choice in choices:
        world.act(choice)
        check()
    assert world.calm_down().failed is None  # a plan that gives other rows each time is no reason to stop
    check()
    assert len(world.kafka.output) == sum(of_batch(batch, 0).total() for batch in range(BATCHES))
    assert world.kafka.group == {(GROUP, "in", 0): BATCHES * 10}
    assert {name for name, t in world.kafka.transactions.items() if t.epoch >= 0} == {driver_id("s")}


@settings(max_examples=200, deadline=None)
@given(before=CHOICES, choices=CHOICES, second_protocol=st.booleans(), whole=st.booleans())
def test_s2_a_sink_changes_its_atomicity_with_a_batch_half_committed(
    before: list[int], choices: list[int], second_protocol: bool, whole: bool
) -> None:
    world = World(BATCHES, second_protocol=second_protocol, variants=cycle([0]), whole=whole)
    for choice in before:
        world.act(choice)
    for process in world.drivers + world.tasks:
        process.alive = False
    world.whole = not whole
    for choice in choices:
        world.act(choice)
    assert world.calm_down().failed is None
    assert Counter(world.kafka.output) == sum((of_batch(batch, 0) for batch in range(BATCHES)), Counter())


@pytest.mark.parametrize("second_protocol", [True, False])
def test_s2_a_driver_that_dies_between_copy_and_decision_leaves_nothing_to_see(second_protocol: bool) -> None:
    world = World(1, second_protocol=second_protocol, variants=cycle([0]), whole=True)
    (driver,) = world.drivers
    while not isinstance(driver.request, CopyStaged):
        for process in [p for p in world.drivers + world.tasks if p.alive]:
            world.step(process)
    world.step(driver)
    assert driver_id("s") in world.kafka.ongoing()
    world.kill(driver)
    assert world.calm_down().failed is None
    assert Counter(world.kafka.output) == of_batch(0, 0)
