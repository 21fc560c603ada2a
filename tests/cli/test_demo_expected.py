"""The demo's check can fail: a loss, a duplicate and a stranger are each seen, also when their numbers cancel out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.cli.demo.expected import Expectation, Found, places_of, words_of

PLACES = {0: {0: "a b a", 1: ""}, 1: {0: "a b a", 5: "c"}}
OUTPUT = [
    Found("a", 2, 0, 0),
    Found("b", 1, 0, 0),
    Found("a", 2, 1, 0),
    Found("b", 1, 1, 0),
    Found("c", 1, 1, 5),
]


def _tally(output: list[Found]) -> tuple[int, int, int, int, int]:
    expectation = Expectation(PLACES)
    for found in output:
        expectation.take(found)
    return expectation.tally()


def test_everything_once_is_exact() -> None:
    assert _tally(OUTPUT) == (5, 5, 0, 0, 0)


def test_a_loss_and_a_duplicate_do_not_cancel_out() -> None:
    assert _tally([*OUTPUT[1:], OUTPUT[1]]) == (5, 5, 1, 1, 0)


@pytest.mark.parametrize(
    "stranger",
    [Found("a", 1, 0, 0), Found("z", 1, 0, 0), Found("a", 2, 0, 1), Found("a", 2, 0, 9), Found("a", 2, 7, 0)],
)
def test_a_record_that_no_line_explains_is_foreign(stranger: Found) -> None:
    assert _tally([*OUTPUT, stranger]) == (5, 6, 0, 0, 1)


@given(st.lists(st.sampled_from(OUTPUT), max_size=20))
def test_lost_and_duplicated_are_counted_record_by_record(output: list[Found]) -> None:
    distinct = len(set(output))
    assert _tally(output) == (5, len(output), 5 - distinct, len(output) - distinct, 0)


def test_words_stand_between_ascii_blanks() -> None:
    assert words_of("  a\tb\u00a0c a\x0b") == {"a": 2, "b\u00a0c": 1}


def test_two_lines_at_one_place_are_refused() -> None:
    assert places_of(["x", "y"], [(0, 0), (1, 0)]) == {0: {0: "x"}, 1: {0: "y"}}
    with pytest.raises(ValueError, match="partition 0 offset 3 for two records"):
        places_of(["x", "x"], [(0, 3), (0, 3)])
