"""What opening a partition's log has found, in sentences."""

from collections.abc import Iterator
from typing import Final

from ottla.base.types import TopicPartition
from ottla.broker.told import Kind, Told
from ottla.log.findings import Findings
from ottla.log.names import OFFSET_INDEX, file_name

#: How many files a sentence names.
_MOST_NAMES: Final = 10


def told_of(tp: TopicPartition, findings: Findings) -> Iterator[Told]:
    """A sentence for each thing that was found."""
    for loss in findings.losses:
        text = (
            f"{tp}: {loss}. Records are gone, or a loss of power came before they were on the device. The log goes on "
            "without them; if you have the files, stop the broker and put them back"
        )
        yield Told(Kind.LOSS, str(tp), text)
    for sentence in findings.mended:
        yield Told(Kind.MADE_AGAIN, str(tp), f"{tp}: {sentence}")
    for cut in findings.cuts:
        yield Told(Kind.CUT, f"{tp}/{cut.name}", f"{tp}/{cut}", cut.position, cut.first_offset, cut.end_offset)
    if findings.rebuilt:
        names = [file_name(base, OFFSET_INDEX) for base in findings.rebuilt]
        more = ", …" if len(names) > _MOST_NAMES else ""
        text = (
            f"{tp}: the indexes of {len(names)} segment(s) were damaged and are made again: "
            f"{', '.join(names[:_MOST_NAMES])}{more}"
        )
        yield Told(Kind.MADE_AGAIN, f"{tp}/{names[0]}" if len(names) == 1 else str(tp), text)
    for gap in findings.unexplained:
        text = f"{tp}: there are no records at offsets {gap}; readers go on behind them"
        yield Told(Kind.GAP, str(tp), text, None, gap.first_offset, gap.end_offset)
    for hole, name in zip(findings.damaged, findings.files, strict=True):
        text = (
            f"{tp}: the records at offsets {hole} were written to disk and are gone; reading there is refused "
            f"(CORRUPT_MESSAGE). Stop the broker and put {name or f'the log files of {tp} that held them'} back, or "
            f"delete the records before offset {hole.end_offset}"
        )
        yield Told(Kind.HOLE, f"{tp}/{name}" if name else str(tp), text, None, hole.first_offset, hole.end_offset)
