"""Numbers in sentences."""

from __future__ import annotations

from ottla.base.words import counted


def test_a_number_and_its_noun_fit_together() -> None:
    assert [counted(number, "pause") for number in (0, 1, 2, 2_000)] == [
        "no pauses",
        "1 pause",
        "2 pauses",
        "2,000 pauses",
    ]
    assert [counted(number, "crash", "crashes") for number in (0, 1, 7)] == ["no crashes", "1 crash", "7 crashes"]
