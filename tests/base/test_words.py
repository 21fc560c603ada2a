"""Numbers in sentences."""

from __future__ import annotations

from ottla.base.words import counted, listing


def test_a_number_and_its_noun_fit_together() -> None:
    assert [counted(number, "pause") for number in (0, 1, 2, 2_000)] == [
        "no pauses",
        "1 pause",
        "2 pauses",
        "2,000 pauses",
    ]
    assert [counted(number, "crash", "crashes") for number in (0, 1, 7)] == ["no crashes", "1 crash", "7 crashes"]


def test_of_many_names_the_first_are_told_and_how_many_there_are() -> None:
    assert listing([]) == ""
    assert listing(["a", "b"]) == "a, b"
    assert listing([str(number) for number in range(2_010)]) == "0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 2,000 more"
