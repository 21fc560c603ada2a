"""Which of the oldest segments are deleted: by `retention.ms`, by `retention.bytes`, or after DeleteRecords."""

from collections.abc import Sequence
from typing import Protocol

from ottla.log.config import LogConfig
from ottla.log.segment import Segment


class Dated(Protocol):
    """What tells how old a segment is."""

    max_timestamp_ms: int
    modified_ms: int


def deletable_segments(segments: Sequence[Segment], config: LogConfig, *, log_start_offset: int, now_ms: int) -> int:
    """How many segments to delete, from the oldest on; all when even the active one's records are too old."""
    count = 0
    while count + 1 < len(segments) and segments[count + 1].base_offset <= log_start_offset:
        count += 1
    if not config.deletes:
        return count
    if config.retention_bytes >= 0:
        excess_bytes = sum(segment.size_bytes for segment in segments[count:]) - config.retention_bytes
        while count < len(segments) and _may_go(segments, count) and excess_bytes >= segments[count].size_bytes:
            excess_bytes -= segments[count].size_bytes
            count += 1
    if config.retention_ms >= 0:
        while count < len(segments) and _may_go(segments, count):
            if now_ms - newest_ms(segments[count]) <= config.retention_ms:
                break
            count += 1
    return count


def _may_go(segments: Sequence[Segment], number: int) -> bool:
    # An empty active segment has nothing to delete.
    return number + 1 < len(segments) or segments[number].size_bytes > 0


def newest_ms(segment: Dated) -> int:
    """The newest timestamp of a segment's records; when the file was last written if they have none."""
    return segment.max_timestamp_ms if segment.max_timestamp_ms >= 0 else segment.modified_ms
