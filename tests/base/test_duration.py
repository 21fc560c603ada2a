"""ISO 8601 durations."""

from __future__ import annotations

import pytest

from ottla.base.duration import duration_ms


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("PT30M", 1_800_000),
        ("P7D", 604_800_000),
        ("P1DT2H3M4.5S", 93_784_500),
        ("PT0S", 0),
        ("PT0.001S", 1),
    ],
)
def test_days_to_milliseconds_are_read(text: str, milliseconds: int) -> None:
    assert duration_ms(text) == milliseconds


@pytest.mark.parametrize("text", ["", "P", "PT", "30M", "PT30", "pt30m", "-PT1H", "P1W", "PT30M\n", "PT١S"])
def test_what_is_no_duration_is_none(text: str) -> None:
    assert duration_ms(text) is None
