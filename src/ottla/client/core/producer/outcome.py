"""The outcome of one batch, for the callers who wait for it.

The thread that settles the batch and the threads that wait need no lock. A waiting thread adds a function to a list,
and then looks whether the outcome is known. The settling thread makes the outcome known, and then calls the functions
in the list. Both may find the same function, but `list.pop` gives it to only one of them.
"""

from collections.abc import Callable

from ottla.base.types import TopicPartition

#: Offset of a record if the broker did not answer (acks=0), or had the record already and did not say where.
UNKNOWN_OFFSET = -1
NO_TIMESTAMP = -1
#: Place of a Delivery that stands for all records of its batch.
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
        #: After a split: how many records the first half has, and the outcomes of both halves.
        self._halves: tuple[int, Outcome, Outcome] | None = None

    def split(self, first_count: int, first: "Outcome", second: "Outcome") -> None:
        """The batch was split into two. It is settled when both are, with an error if one of them has an error."""
        self._halves = (first_count, first, second)

        def settled() -> None:
            if first.done and second.done:
                self.settle(first.base_offset, first.log_append_time_ms, first.error or second.error)

        first.when_done(settled)
        second.when_done(settled)

    def of(self, index: int) -> tuple["Outcome", int]:
        """The outcome of the (half of the) batch that has the record at `index`, and the record's place in it."""
        outcome = self
        while index > WHOLE_BATCH and outcome._halves is not None:
            first_count, first, second = outcome._halves
            outcome, index = (first, index) if index < first_count else (second, index - first_count)
        return outcome, max(index, 0)

    def settle(self, base_offset: int, log_append_time_ms: int, error: Exception | None) -> None:
        """Set the outcome and call the waiters. Only the first call counts."""
        if self.done:
            return
        self.base_offset = base_offset
        self.log_append_time_ms = log_append_time_ms
        self.error = error
        self.done = True
        self._wake()

    def when_done(self, waiter: Callable[[], object]) -> None:
        """Call `waiter` once: now if the outcome is known, else later, in the thread that settles the batch."""
        self._waiters.append(waiter)
        if self.done:
            self._wake()

    def _wake(self) -> None:
        while self._waiters:
            try:
                waiter = self._waiters.pop(0)
            except IndexError:  # another thread has taken the last one
                return
            waiter()
