"""G23: who waited for whom in a rebalance of a consumer group."""

from __future__ import annotations

from ottla.base.limits import MAX_EVENT_ITEMS, MAX_EVENT_NAMES
from ottla.base.steps import result_of
from ottla.coordinator.group.waits import Wait, Waited, Waits

_T = b"t" * 16
_U = b"u" * 16


def _longest(waited: Waited) -> list[Wait]:
    return result_of(waited.longest())


def test_g23_a_member_waits_for_who_gives_up_what_it_lacks() -> None:
    waits = Waits()
    waits.lacks("c", {_T: {0, 1, 2}, _U: {0}}, {_T: {2: 5}}, 10)
    waits.gave("a", {_T: (0, 7)})
    waits.gave("b", {_T: (2,), _U: (3,)})  # what c has already, and what it does not want
    waits.gave("b", {_U: (0,)})
    waits.lacks_nothing("c", 45)
    waits.lacks_nothing("nobody", 46)
    assert _longest(waits.ended(100)) == [Wait("c", 35, ("a", "b"), 2)]


def test_g23_times_of_one_member_add_up_and_one_that_goes_on_waits_to_the_end() -> None:
    waits = Waits()
    waits.lacks("b", {_T: {0}}, {}, 10)
    waits.lacks("b", {_T: {0}}, {}, 15)
    waits.lacks_nothing("b", 20)
    waits.lacks("b", {_T: {1}}, {}, 40)
    waits.lacks("c", {_T: {5}}, {}, 50)
    waits.gave("b", {_T: (0,)})  # its own: nobody waits for itself
    waits.gave("a", {_T: (1,)})
    assert _longest(waits.ended(60)) == [Wait("b", 30, ("a",), 1), Wait("c", 10, (), 0)]


def test_g23_who_is_gone_does_not_wait_and_was_waited_for() -> None:
    waits = Waits()
    waits.lacks("b", {_T: {0}}, {}, 10)
    waits.lacks("a", {_U: {0}}, {}, 10)
    waits.gone("a")
    waits.gave("a", {_T: (0,)})
    waited = waits.ended(30)
    assert waited.weight == 2
    assert _longest(waited) == [Wait("b", 20, ("a",), 1)]
    assert _longest(Waits().ended(0)) == []


def test_g23_long_lists_are_cut_and_counted() -> None:
    waits = Waits()
    for number in range(MAX_EVENT_ITEMS + 3):
        waits.lacks(f"m{number}", {_T: set(range(MAX_EVENT_NAMES + 2))}, {}, number)
    for number in range(MAX_EVENT_NAMES + 2):
        waits.gave(f"g{number}", {_T: (number,)})
    waited = waits.ended(1_000)
    found = _longest(waited)
    assert (len(found), len(waited.members)) == (MAX_EVENT_ITEMS, MAX_EVENT_ITEMS + 3)
    assert found[0] == Wait("m0", 1_000, tuple(f"g{number}" for number in range(MAX_EVENT_NAMES)), MAX_EVENT_NAMES + 2)
