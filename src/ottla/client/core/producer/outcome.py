"""The fate of one batch, as those who wait for it see it.

The thread that settles it and the threads that wait need no lock: whoever waits leaves a function and then looks
whether the fate is known; whoever settles makes it known and then calls the functions that were left. Either of the two
takes a function out of the list, and only one of them can.
"""

from collections.abc import Callable

from ottla.base.types import TopicPartition

#: Offset of a record whose broker was not asked (acks=0), or that had it already and did not say where.
UNKNOWN_OFFSET = -1
NO_TIMESTAMP = -1
#: Place of a Delivery that is for all records of its batch.
WHOLE_BATCH = -1


class Outcome:
    """What became of one batch: its first offset, or an error."""

    __slots__ = ("_halves", "_waiters", "base_offset", "done", "error", "log_append_time_ms", "tp")

    def __init__(self, tp: TopicPartition) -> None:
        self.tp = tp
        self.done = False
        self.error: Exception | None = None
        self.base_offset = UNKNOWN_OFFSET
        self.log_append_time_ms = NO_TIMESTAMP
        self._waiters: list[Callable[[], object]] = []
        #: After a split: how many records the first half has, and both halves.
        self._halves: tuple[int, Outcome, Outcome] | None = None

    def split(self, first_count: int, first: "Outcome", second: "Outcome") -> None:
        """The batch goes on as two; its fate is known when both are settled, and an error when one of them is."""
        self._halves = (first_count, first, second)

        def settled() -> None:
            if first.done and second.done:
                self.settle(first.base_offset, first.log_append_time_ms, first.error or second.error)

        first.when_done(settled)
        second.when_done(settled)

    def of(self, index: int) -> tuple["Outcome", int]:
        """The outcome that decides about the record at `index`, and the record's place in it."""
        outcome = self
        while index > WHOLE_BATCH and outcome._halves is not None:
            first_count, first, second = outcome._halves
            outcome, index = (first, index) if index < first_count else (second, index - first_count)
        return outcome, max(index, 0)

    def settle(self, base_offset: int, log_append_time_ms: int, error: Exception | None) -> None:
        """Fix the fate and wake who waits. A fate that is fixed stays as it is."""
        if self.done:
            return
        self.base_offset = base_offset
        self.log_append_time_ms = log_append_time_ms
        self.error = error
        self.done = True
        self._wake()

    def when_done(self, waiter: Callable[[], object]) -> None:
        """Call `waiter` once: at once if the fate is known, else in the thread that settles it."""
        self._waiters.append(waiter)
        if self.done:
            self._wake()

    def _wake(self) -> None:
        while self._waiters:
            try:
                waiter = self._waiters.pop(0)
            except IndexError:  # the other thread took the last one
                return
            waiter()
