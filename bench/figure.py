"""What a figure is."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

#: Measured values of one run by name, such as {"in 100 B": 1.2e6}.
Values = dict[str, float]
#: Takes a bootstrap address and a scale from 0 to 1 that shortens the run.
Measure = Callable[[str, float], Values]


class Unit(NamedTuple):
    """How a value is shown, and which direction is better."""

    name: str
    higher_is_better: bool


RATE = Unit("records/s", True)
TRANSACTIONS = Unit("transactions/s", True)
GROUPS = Unit("groups/s", True)
IDS = Unit("ids/s", True)
MICROSECONDS = Unit("µs", False)
SECONDS = Unit("s", False)
MILLISECONDS = Unit("ms", False)
MEGABYTES = Unit("MB", False)
MEGABYTES_A_SECOND = Unit("MB/s", True)
#: Of the broker's process, for a million records.
CPU = Unit("s/million", False)


def percentile(values: list[float], share: float) -> float:
    """The value below which `share` of `values` lie."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]
