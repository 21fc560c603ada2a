"""What a consumer says of a position that it replaced."""

from typing import NamedTuple

from ottla.base.types import TopicPartition


class OffsetReset(NamedTuple):
    """A position was replaced: it was before the start of the log, beyond its end, or there was none."""

    partition: TopicPartition
    #: The position that was out of range; -1 when there was none.
    before: int
    after: int

    @property
    def skipped(self) -> int:
        """How many offsets were jumped over; 0 when the position was beyond the end, and reading went back."""
        return max(0, self.after - self.before) if self.before >= 0 else 0

    def __str__(self) -> str:
        if self.before < 0:
            return f"{self.partition}: reading begins at offset {self.after}"
        # whatever the policy: only what is before the start moves on, and only what is beyond the end goes back
        if self.after > self.before:
            return (
                f"{self.partition}: offset {self.before} is not in the log any more, reading goes on at {self.after}: "
                f"{self.skipped} offsets are skipped"
            )
        return (
            f"{self.partition}: offset {self.before} is beyond the end of the log (it was cut, the topic was made "
            f"anew, or the offset was never there), reading goes on at {self.after}"
        )
