"""What somebody has passed by a seek forward, and so was not given."""

from dataclasses import dataclass


@dataclass(slots=True)
class Reached:
    """How far a consumer, or a group, has come in a partition. Each step tells the offsets that a seek has passed."""

    #: The highest offset that was given or passed.
    highest: int = -1
    #: Whether it has sought an offset that nobody knows, and was given nothing since.
    is_unknown: bool = False

    def sought(self, offset: int) -> range:
        """The next record is the one at this offset; -1 is an offset that nobody knows."""
        self.is_unknown = offset < 0
        passed = range(self.highest + 1, offset)
        self.highest = max(self.highest, offset - 1)
        return passed

    def given(self, offset: int) -> range:
        """The record at this offset was given."""
        passed = self.committed(offset)
        self.is_unknown = False
        self.highest = max(self.highest, offset)
        return passed

    def committed(self, offset: int) -> range:
        """The position that was committed. It tells something only if nobody knows where the last seek went."""
        return range(self.highest + 1, offset if self.is_unknown else 0)
