"""Finds a batch in a segment, past damage that lies in front of it.

The way to a batch leads over the headers between it and the index entry before. A changed length there would hide all
batches up to the next entry, though their CRCs are right. So they are looked for, not far. And a batch whose last
offset was changed to a lower one would be passed over, and a reader led over its records in silence.
"""

from typing import Final

from ottla.base.errors import CorruptDataError
from ottla.log.segment import Segment
from ottla.wire.batch import find_whole_batch, parse_header

#: How far behind an index entry a whole batch is looked for. It takes milliseconds of the event loop.
_MOST_BYTES: Final = 65_536
#: A batch begins with its base offset. No more of the header is read: this is on the way of every fetch from the files.
_BASE_OFFSET_BYTES: Final = 8


def locate(segment: Segment, offset: int) -> int | None:
    """Position of the first batch that ends at `offset` or later; None when all end before `offset`.

    CorruptDataError when bytes on the way are no batch, and no whole batch with `offset` is close behind them; and when
    the batch that is damaged may have had `offset`.
    """
    try:
        position = segment.locate(offset)
        if position is not None and int.from_bytes(segment.log.read(position, _BASE_OFFSET_BYTES)) > offset:
            _must_not_be_passed(segment, position, offset)
        return position
    except CorruptDataError:
        found = _whole_batch_with(segment, offset)
        if found is None:
            raise
        return found


def _must_not_be_passed(segment: Segment, position: int, offset: int) -> None:
    """No batch begins with `offset`, perhaps because of a compaction; then the one before the gap is whole."""
    before = None
    for at, header in segment.walk(segment.position_to(offset)):
        if at >= position:
            break
        before = at, header
    if before is not None and not segment.is_whole(*before):
        raise CorruptDataError(
            f"segment {segment.base_offset}: the batch at {before[0]} is damaged, it may hold {offset}"
        )


def _whole_batch_with(segment: Segment, offset: int) -> int | None:
    start = segment.position_to(offset)
    view = memoryview(segment.log.read(start, min(_MOST_BYTES, segment.size_bytes - start)))
    position, next_offset = 0, segment.base_offset
    while (found := find_whole_batch(view, position, next_offset, offset + 1)) is not None:
        header = parse_header(view, found[0])
        if header.last_offset >= offset:
            return start + found[0]
        position, next_offset = found[0] + header.size_bytes, header.last_offset + 1
    return None
