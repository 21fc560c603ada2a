"""Durations as Kafka's settings and tools write them: ISO 8601, such as PT30M or P7D."""

from __future__ import annotations

import re

from ottla.base.digits import INT64_MAX, natural

_FORM = re.compile(
    r"P(?:(?P<days>\d+)D)?(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+)(?:\.(?P<part>\d+))?S)?)?",
    re.ASCII,
)
_UNITS_MS = {"days": 86_400_000, "hours": 3_600_000, "minutes": 60_000, "seconds": 1_000, "part": 1}


def duration_ms(text: str) -> int | None:
    """Milliseconds of a duration in days, hours, minutes and seconds.

    None if `text` is not one, or one of more milliseconds than a number of 64 bits holds.
    """
    found = _FORM.fullmatch(text)
    if found is None or not any(found.groups()):
        return None
    total_ms = 0
    for unit, digits in found.groupdict(default="0").items():
        number = natural(digits[:3].ljust(3, "0") if unit == "part" else digits)
        if number is None:
            return None
        total_ms += number * _UNITS_MS[unit]
    return total_ms if total_ms <= INT64_MAX else None
