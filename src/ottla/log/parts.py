"""A large batch is written in parts: the kernel copies a megabyte into new pages of its cache in two milliseconds."""

from collections.abc import Generator, Iterator, Sequence
from contextlib import suppress

from ottla.base.errors import StorageError
from ottla.base.limits import WRITTEN_AT_ONCE_BYTES
from ottla.log.segments import Segments
from ottla.log.storage import Buffer


def write_in_parts(segments: Segments, buffers: Sequence[Buffer], size_bytes: int) -> Generator[None, None, int]:
    """As `Segment.write` to the active segment, one part in a step. Nothing else is written to it meanwhile.

    The segment has the batch when all of it is there. What a refusal, or who gives up, leaves of it in the file is cut
    off: at once, or before the next batch comes (`Segment.write`) or the segment ends.
    """
    segment = segments.to_append()
    position, log = segment.size_bytes, segment.log
    log.truncate(position)  # what is left of one before
    segments.is_held = True
    try:
        for part in _parts(buffers):
            log.append(part)
            yield
    except (StorageError, GeneratorExit):
        with suppress(StorageError):
            log.truncate(position)
        raise
    finally:
        segments.is_held = False
    segment.size_bytes = position + size_bytes
    return position


def _parts(buffers: Sequence[Buffer]) -> Iterator[Sequence[Buffer]]:
    for buffer in buffers:
        for begin in range(0, len(buffer), WRITTEN_AT_ONCE_BYTES):
            yield (memoryview(buffer)[begin : begin + WRITTEN_AT_ONCE_BYTES],)
