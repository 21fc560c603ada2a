"""A clock on which everything takes as long: tests count in turns of the loop what may not keep it."""

from ottla.base.clock import ManualClock


class TickingClock(ManualClock):
    """Each look at the monotonic reading takes a millisecond, so that a slice of `TURN_MS` has so many steps."""

    def monotonic_ms(self) -> int:
        now_ms = super().monotonic_ms()
        self.advance(1)
        return now_ms
