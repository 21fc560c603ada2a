"""The plan of the demo's kills: repeatable, inside the job, one after the other."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla.cli.demo.kills import plan
from ottla.spark.faults import parse


@given(st.integers(0, 2**32), st.integers(10, 40), st.booleans(), st.booleans())
def test_kills_are_drawn_from_the_seed_and_spread_over_the_job(
    seed: int, batches: int, exactly_once: bool, with_broker: bool
) -> None:
    kills = plan(seed, batches, exactly_once=exactly_once, with_broker=with_broker, slots=4)
    assert kills == plan(seed, batches, exactly_once=exactly_once, with_broker=with_broker, slots=4)
    assert {kill.victim for kill in kills} == {"worker", "driver"} | ({"broker"} if with_broker else set())
    numbers = [kill.batch for kill in kills]
    assert numbers == sorted(set(numbers)), "two kills in one micro-batch would hide one another"
    assert 1 <= numbers[0] <= numbers[-1] <= batches - 2
    switches = parse(",".join(kill.switch for kill in kills))
    assert [fault.file_name for fault in switches] == [kill.file_name for kill in kills]


def test_one_slot_has_nothing_between_slots() -> None:
    plans = [plan(seed, 10, exactly_once=True, with_broker=True, slots=1) for seed in range(200)]
    points = {kill.point for kills in plans for kill in kills}
    assert "sink.after-decision" in points
    assert "sink.between-slots" not in points
