"""Transactional ids of sinks: none meets an application's, or another sink's, and recovery by pattern finds its own."""

import re
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from ottla.spark.ids import PREFIX, driver_id, former_driver_id, former_slot_pattern, slot_id, slot_pattern

#: What an option `sink.id` may be; few letters, so that one sink's id is often a part of another's.
SINKS = st.text("a1-._", min_size=1, max_size=6)
SMALL = st.integers(0, 12)
SLOTS = st.tuples(SMALL, SMALL)


@given(SINKS, SLOTS)
def test_every_id_begins_with_the_reserved_prefix_and_names_its_sink(sink: str, slot: tuple[int, int]) -> None:
    for name in (driver_id(sink), slot_id(sink, *slot)):
        assert name.startswith("__ottla/")
        assert name.removeprefix(PREFIX).split("/")[0] == sink


@given(SINKS, SLOTS, SLOTS)
def test_a_pattern_finds_all_slots_of_its_sink_and_not_its_driver(
    sink: str, one: tuple[int, int], two: tuple[int, int]
) -> None:
    assert re.match(slot_pattern(sink), slot_id(sink, *one))
    assert not re.match(slot_pattern(sink), driver_id(sink))
    assert (slot_id(sink, *one) == slot_id(sink, *two)) == (one == two)


@given(SINKS, SINKS, SLOTS, SLOTS)
def test_two_sinks_never_meet(sink: str, other: str, one: tuple[int, int], two: tuple[int, int]) -> None:
    if sink != other:
        assert not re.match(slot_pattern(sink), slot_id(other, *two))
        mine, theirs = (driver_id(sink), slot_id(sink, *one)), (driver_id(other), slot_id(other, *two))
        assert not set(mine) & set(theirs)


def test_a_sink_whose_name_ends_like_a_slot_of_another_is_another() -> None:
    assert slot_id("a-1", 2) == "__ottla/a-1/slot-2"
    assert slot_id("a", 1, 2) == "__ottla/a/slot-1/attempt-2"
    assert not re.match(slot_pattern("a"), slot_id("a-1", 2))
    assert not re.match(slot_pattern("a.b"), slot_id("axb", 2))


def test_the_former_ids_are_found_and_no_others() -> None:
    pattern = re.compile(former_slot_pattern("a.b"))
    assert all(pattern.match(name) for name in ("a.b-0", "a.b-12", "a.b-1.3"))
    others = ("axb-0", "a.b-1-0", "xa.b-0", "a.b-1.", "a.b-", former_driver_id("a.b"), slot_id("a.b", 0))
    assert not any(map(pattern.match, others))
    assert not any(re.match(former_slot_pattern(a), slot_id(b, 1)) for a, b in product(("a", "a-1"), repeat=2))
