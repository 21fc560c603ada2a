"""What a start has found that was not as it should be."""

from dataclasses import dataclass

from ottla.log.damage import Cut, OffsetRange


@dataclass(frozen=True, slots=True)
class Findings:
    """What was not as it should be."""

    #: Ends of log files, and whole ones, that were cut because what came before was not whole.
    cuts: tuple[Cut, ...] = ()
    #: Base offsets of the segments whose indexes were made again.
    rebuilt: tuple[int, ...] = ()
    #: Flushed offsets that are gone.
    damaged: tuple[OffsetRange, ...] = ()
    #: For each of these ranges, the log file that held its first record; "" where nothing is left that has its name.
    files: tuple[str, ...] = ()
    #: Offsets missing between two sound segments: compacted once, or left out by another broker's recovery.
    unexplained: tuple[OffsetRange, ...] = ()
    #: Sentences on records that are gone although nothing says that they were on the device.
    losses: tuple[str, ...] = ()
    #: Sentences on files that are made again from others, without a loss.
    mended: tuple[str, ...] = ()

    @property
    def truncated_bytes(self) -> int:
        """How many bytes were cut."""
        return sum(cut.size_bytes for cut in self.cuts)
