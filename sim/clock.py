"""The clocks of a simulated machine."""

from sim.loop import SimLoop


class MachineClock:
    """The clocks of a machine: its wall clock may be set, its other clock goes on whatever happens."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop
        self.ahead_ms = 0

    def now_ms(self) -> int:
        return self._loop.now_ms() + self.ahead_ms

    def monotonic_ms(self) -> int:
        return self._loop.monotonic_ms()
