"""ISO 8601 durations."""

from __future__ import annotations

import pytest

from ottla.base.digits import INT64_MAX
from ottla.base.duration import duration_ms


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("PT30M", 1_800_000),
        ("P7D", 604_800_000),
        ("P1DT2H3M4.5S", 93_784_500),
        ("PT0S", 0),
        ("PT0.001S", 1),
        ("PT0.0019999S", 1),
        (f"PT{2**53 + 1}.5S", (2**53 + 1) * 1000 + 500),
        ("P" + "0" * 5_000 + "1D", 86_400_000),
        ("PT0." + "9" * 5_000 + "S", 999),
        (f"PT{INT64_MAX // 1000}.{INT64_MAX % 1000}S", INT64_MAX),
    ],
)
def test_days_to_milliseconds_are_read(text: str, milliseconds: int) -> None:
    assert duration_ms(text) == milliseconds


@pytest.mark.parametrize("text", ["", "P", "PT", "30M", "PT30", "pt30m", "-PT1H", "P1W", "PT30M\n", "PT١S"])
def test_what_is_no_duration_is_none(text: str) -> None:
    assert duration_ms(text) is None


@pytest.mark.parametrize(
    "text",
    [
        f"P{'9' * 400}D",
        f"PT{'9' * 5_000}S",
        f"P{INT64_MAX // 86_400_000 + 1}D",
        f"PT{INT64_MAX // 1000}.{INT64_MAX % 1000 + 1}S",
    ],
)
def test_one_of_more_milliseconds_than_kafka_can_name_is_none(text: str) -> None:
    assert duration_ms(text) is None
