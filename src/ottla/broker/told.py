"""What a start says of the files that it finds: one sentence for each thing, and where to look.

A rule that decides what a damaged byte means is written once, in recovery. It hands its sentence to a `Tell`. A broker
that starts logs it; `ottla storage check` runs the same recovery on an overlay and prints it.
"""

import logging
from collections.abc import Callable
from enum import Enum
from typing import Final, NamedTuple, TypeAlias

_log = logging.getLogger(__name__)


class Kind(Enum):
    """What kind of thing was found."""

    #: Nothing is wrong, but somebody who looks at the directory should know it.
    NOTE = "note"
    #: A file was damaged or gone, and is made again from others. Nothing is lost.
    MADE_AGAIN = "made again"
    #: The end of a log file, or a whole one, that is cut: what came before was not whole.
    CUT = "cut"
    #: Records are gone of which nothing says that they were on the device. The log goes on without them.
    LOSS = "loss"
    #: Something is set aside, or left alone: it belongs to nothing that is known.
    STRAY = "stray"
    #: There are no records at some offsets, and nothing says why.
    GAP = "gap"
    #: Records that were on the device are gone. Reading them is refused.
    HOLE = "hole"
    #: Bytes that nobody can read, or that contradict each other. A start does not see them; a reader does.
    DAMAGE = "damage"
    #: A folder has the name of a file. It has to be moved away by hand.
    IN_THE_WAY = "in the way"
    #: The broker does not start.
    REFUSED = "refused"

    @property
    def is_fault(self) -> bool:
        """Whether a directory in which this is found is not sound."""
        return self is not Kind.NOTE

    @property
    def is_mended(self) -> bool:
        """Whether a start, or `ottla storage repair`, does what can be done, and the next start is silent about it."""
        return self in _MENDED


_MENDED: Final = frozenset({Kind.MADE_AGAIN, Kind.CUT, Kind.LOSS, Kind.STRAY})


class Told(NamedTuple):
    """One thing that was found."""

    kind: Kind
    #: The file, or the partition's folder, below the data directory; "" for the directory as a whole.
    place: str
    #: The whole sentence. It names the place, too.
    text: str
    #: The position in the file, in bytes.
    position: int | None = None
    #: The offsets that it concerns, from the first up to the end, which is not included.
    first_offset: int | None = None
    end_offset: int | None = None

    @property
    def goes_on_without_records(self) -> bool:
        """Whether what a start does about it leaves whole records behind, which a copy of the file might still have."""
        return self.kind is Kind.LOSS or (self.kind is Kind.CUT and (self.first_offset or 0) < (self.end_offset or 0))


Tell: TypeAlias = Callable[[Told], None]


def log_told(told: Told) -> None:
    """Write it to the broker's log."""
    _log.log(logging.ERROR if told.kind is Kind.HOLE else logging.WARNING, "%s", told.text)
