"""At most one line in a while about one thing: whoever does it thousands of times must not fill the log."""

from typing import Final

from ottla.base.clock import Clock

#: The shortest time between two lines about one thing.
QUIET_MS: Final = 10_000
#: About so many things there are lines in that time.
MOST_THINGS: Final = 1_000


class Quiet:
    """When each thing was told last, and how often it was not told since."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        #: The one told longest ago comes first.
        self._told: dict[str, tuple[int, int]] = {}

    def turn(self, what: str) -> str | None:
        """What ends a line about `what`: nothing, or how many were left out. None: it is too soon for a line."""
        now_ms = self._clock.monotonic_ms()
        told_ms, untold = self._told.get(what, (now_ms - QUIET_MS, 0))
        if now_ms - told_ms < QUIET_MS:
            self._told[what] = told_ms, untold + 1
            return None
        if what not in self._told and len(self._told) >= MOST_THINGS:
            oldest = next(iter(self._told))
            if now_ms - self._told[oldest][0] < QUIET_MS:
                return None
            del self._told[oldest]
        self._told.pop(what, None)
        self._told[what] = now_ms, 0
        return f" ({untold} more since the last such line)" if untold else ""
