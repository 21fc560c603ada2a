"""What a consumer tells its user of a position that it has replaced."""

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
        """How many offsets are skipped; 0 if the position was beyond the end, because reading then goes back.

        Also 0 if there was no position (`before` is -1). With `auto.offset.reset` latest or by_duration records may
        lie before `after` that are never read. Nobody has counted them: that would take another request.
        """
        return max(0, self.after - self.before) if self.before >= 0 else 0

    def __str__(self) -> str:
        if self.before < 0:
            return f"{self.partition}: reading begins at offset {self.after}"
        # from before the start of the log reading can only go on, from beyond its end only go back, by any policy
        if self.after > self.before:
            return (
                f"{self.partition}: offset {self.before} is not in the log any more, reading goes on at {self.after}: "
                f"{self.skipped} offsets are skipped"
            )
        return (
            f"{self.partition}: offset {self.before} is beyond the end of the log (it was cut, the topic was "
            f"created again, or the offset was never there), reading goes on at {self.after}"
        )
