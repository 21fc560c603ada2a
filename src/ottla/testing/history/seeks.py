"""What somebody has passed by a seek forward, and so was not given."""

from dataclasses import dataclass, field
from typing import Final, NamedTuple


class _Position(NamedTuple):
    """Where the next record is read from."""

    offset: int
    #: Whether an offset that nobody knows was sought from there, and nothing was given since.
    is_left: bool


_BEGINNING: Final = _Position(0, is_left=False)


@dataclass(slots=True)
class Reached:
    """How far the readers of a group have come in a partition. Each step tells the offsets that a seek has passed.

    A reader of whom nothing is known yet goes on where another one of its group was last.
    """

    last: _Position = _BEGINNING
    positions: dict[str, _Position] = field(default_factory=dict)

    def sought(self, who: str, offset: int) -> range:
        """The next record is the one at this offset; -1 is an offset that nobody knows."""
        before = self.positions.get(who, self.last)
        if offset < 0:
            return self._goes_on(who, _Position(before.offset, is_left=True), range(0))
        return self._goes_on(who, _Position(offset, is_left=False), range(before.offset, offset))

    def given(self, who: str, offset: int) -> range:
        """The record at this offset was given."""
        passed = _passed(self.positions.get(who, self.last), offset)
        return self._goes_on(who, _Position(offset + 1, is_left=False), passed)

    def committed(self, offset: int) -> range:
        """The position that was committed. It tells something only if nobody knows where the last seek went."""
        return _passed(self.last, offset)

    def changed(self, who: str) -> None:
        """The partition was given to a reader, or taken from it: it begins where its group is."""
        self.positions.pop(who, None)

    def _goes_on(self, who: str, position: _Position, passed: range) -> range:
        self.last = self.positions[who] = position
        return passed


def _passed(before: _Position, offset: int) -> range:
    return range(before.offset, offset if before.is_left else 0)
