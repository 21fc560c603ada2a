"""An event loop whose clock stands still while its process is stopped, so that no time limit ends because of that.

A machine that is busy may stop a process for a second, or a turn of the loop may take ten times as long as usual. By
the clock of the machine a limit of 50 ms is over then, although nobody had a chance to keep it. By the clock of this
loop each look at the sockets counts for so much at most, so that within any limit there are many looks.

It is the clock of a client, and of a fake broker, that are in the test's loop. It never goes faster than the machine's.
"""

import asyncio
import selectors
from typing import Final

#: How long one look at the sockets waits at most. A longer wait is made of several.
_LOOK_S: Final = 0.002
#: What may pass between two looks; what is more is not counted.
_MOST_S: Final = 2 * _LOOK_S


class Looks(selectors.DefaultSelector):
    """Waits in looks, and has its loop count each."""

    loop: "SteadyLoop"

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        begun_s = self.loop.count()
        while True:
            left_s = _LOOK_S if timeout is None else min(_LOOK_S, timeout - (self.loop.count() - begun_s))
            events = super().select(max(0.0, left_s))
            if events or left_s < _LOOK_S:
                self.loop.count()
                return events


class SteadyLoop(asyncio.SelectorEventLoop):
    """asyncio's own loop with such a clock."""

    def __init__(self, looks: Looks | None = None) -> None:
        #: What was counted until the last look, and the machine's clock then.
        self._counted_s = self._looked_at_s = super().time()
        selector = looks or Looks()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        return self._counted_s + min(super().time() - self._looked_at_s, _MOST_S)

    def count(self) -> float:
        """Count what has passed since the last look; the time that was counted so far."""
        now_s = super().time()
        self._counted_s += min(now_s - self._looked_at_s, _MOST_S)
        self._looked_at_s = now_s
        return self._counted_s
