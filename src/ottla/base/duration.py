"""Durations as Kafka's settings and tools write them: ISO 8601, such as PT30M or P7D."""

from __future__ import annotations

import re

_FORM = re.compile(
    r"P(?:(?P<days>\d+)D)?(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?",
    re.ASCII,
)
_SECONDS = {"days": 86_400, "hours": 3_600, "minutes": 60, "seconds": 1}


def duration_ms(text: str) -> int | None:
    """Milliseconds of a duration in days, hours, minutes and seconds; None if `text` is not one."""
    found = _FORM.fullmatch(text)
    if found is None or not any(found.groups()):
        return None
    return int(sum(float(number or 0) * _SECONDS[unit] for unit, number in found.groupdict().items()) * 1000)
