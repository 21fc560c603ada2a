"""Time that a test moves on: the broker's clock goes as the machine's does, and can be moved forward."""

from collections.abc import Callable
from typing import Final

from ottla.base.clock import SystemClock
from ottla.testing.arguments import whole

#: What a broker's process says when its clock was moved, or its disk made slower.
DONE: Final = "done"
#: A hundred years: what is skipped at once. Further away, dates and timers cannot be reckoned.
_MOST_MS: Final = 3_155_760_000_000


class SkippingClock:
    """The machine's clock, plus what was skipped. It starts with `skipped_ms` skipped."""

    def __init__(self, skipped_ms: int = 0) -> None:
        self._machine = SystemClock()
        self.skipped_ms = skipped_ms

    def now_ms(self) -> int:
        """See `Clock`."""
        return self._machine.now_ms() + self.skipped_ms

    def monotonic_ms(self) -> int:
        """See `Clock`."""
        return self._machine.monotonic_ms() + self.skipped_ms

    def advance(self, delta_ms: int) -> None:
        """Skip `delta_ms` milliseconds."""
        self.skipped_ms += checked_ms(delta_ms)


class BrokerClock:
    """A broker's clock in a test's hands: `broker.clock.advance(60_000)`."""

    def __init__(self, move: Callable[[int], object]) -> None:
        self._move = move

    def advance(self, delta_ms: int) -> None:
        """Let `delta_ms` milliseconds pass for the broker alone. What was due by then has happened on return.

        But what the broker does beside other work (retention, cleaning, offsets that are too old) has only begun.
        Transactions and sessions expire, also the sessions of members that live: they were silent for so long. Clients
        hear of it in their own time. TypeError for what is no int; ValueError for a negative number, or more than a
        hundred years; BrokerError when the broker does not run.
        """
        self._move(checked_ms(delta_ms))


def checked_ms(delta_ms: int) -> int:
    """The number. TypeError for what is no int, ValueError for one that cannot be."""
    if isinstance(delta_ms, int) and delta_ms < 0:
        raise ValueError(f"time does not run backwards: {delta_ms} ms")
    whole("the time to skip, in milliseconds,", delta_ms, 0)
    if delta_ms > _MOST_MS:
        raise ValueError(f"a broker's clock skips up to a hundred years ({_MOST_MS} ms) at once, not {delta_ms} ms")
    return delta_ms
