"""Numbers that are given as text."""

from __future__ import annotations

import pytest

from ottla.base.digits import INT32_MAX, INT64_MAX, natural


@pytest.mark.parametrize(
    ("text", "number"),
    [("0", 0), ("00", 0), ("7", 7), ("007", 7), ("0" * 5_000 + "7", 7), (str(INT64_MAX), INT64_MAX)],
)
def test_digits_are_a_number(text: str, number: int) -> None:
    assert natural(text) == number


@pytest.mark.parametrize(
    "text", ["", "-1", "+1", "1_0", " 1", "1.0", "x", "\u00b2", "\u0665", "9" * 5_000, str(INT64_MAX + 1)]
)
def test_all_else_is_none(text: str) -> None:
    assert natural(text) is None
    assert natural(str(INT64_MAX + 1)) is None


def test_a_limit_counts() -> None:
    assert natural(str(INT32_MAX), INT32_MAX) == INT32_MAX
    assert natural(str(INT32_MAX + 1), INT32_MAX) is None
