"""Which part of a log can be cleaned, how dirty the log is, and which of its segments become one."""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple, Protocol

from ottla.log.config import LogConfig
from ottla.log.retention import newest_ms

#: Relative offsets in an index have 31 bits.
_RELATIVE_MAX: Final = 2**31 - 1


class Sized(Protocol):
    """What is asked of a segment here."""

    base_offset: int
    size_bytes: int
    max_timestamp_ms: int
    modified_ms: int


class Cleanable(NamedTuple):
    """What of a log can be cleaned: all before `end_offset`, where a segment begins."""

    #: What comes before was cleaned already: no key has two records there.
    first_dirty_offset: int
    end_offset: int
    clean_bytes: int
    dirty_bytes: int
    #: `max.compaction.lag.ms` is over for a dirty record.
    is_due: bool

    @property
    def ratio(self) -> float:
        """How much of it is dirty, from 0 to 1."""
        return self.dirty_bytes / max(self.clean_bytes + self.dirty_bytes, 1)

    def is_wanted(self, config: LogConfig) -> bool:
        """Whether it is dirty enough to be cleaned now."""
        return self.dirty_bytes > 0 and (self.is_due or self.ratio > config.min_cleanable_dirty_ratio)


def cleanable(
    segments: Sequence[Sized],
    config: LogConfig,
    first_batch_ms: Callable[[int], int],
    *,
    cleaned_offset: int | None,
    log_start_offset: int,
    end_offset: int,
    stable_offset: int,
    now_ms: int,
) -> Cleanable:
    """Of a log with these segments, of which the last is active.

    `first_batch_ms` gives the newest timestamp of a segment's first batch, by the segment's number; -1 for none. It may
    read a file, and is only asked where `max.compaction.lag.ms` may be over. `cleaned_offset` is where an earlier pass
    ended; one that cannot be right counts as none. `stable_offset` is the last stable offset.
    """
    first_dirty = log_start_offset
    if cleaned_offset is not None and log_start_offset <= cleaned_offset <= end_offset:
        first_dirty = cleaned_offset
    closed = segments[:-1]
    bounds = [stable_offset, segments[-1].base_offset]
    dirty_from = _holding(segments, first_dirty)
    if config.min_compaction_lag_ms > 0:
        young = (each for each in closed[dirty_from:] if newest_ms(each) > now_ms - config.min_compaction_lag_ms)
        bounds += [each.base_offset for each in young][:1]
    end_number = _holding(segments, max(first_dirty, min(bounds)))
    dirty = range(dirty_from, end_number)
    return Cleanable(
        first_dirty,
        segments[end_number].base_offset,
        sum(each.size_bytes for each in closed if each.base_offset < first_dirty),
        sum(segments[number].size_bytes for number in dirty),
        _is_due(map(first_batch_ms, range(dirty_from, len(closed))), config, now_ms),
    )


def _is_due(first_batches_ms: Iterator[int], config: LogConfig, now_ms: int) -> bool:
    latest_ms = now_ms - config.max_compaction_lag_ms
    return latest_ms > 0 and any(0 < each < latest_ms for each in first_batches_ms)


def _holding(segments: Sequence[Sized], offset: int) -> int:
    """The number of the segment that holds `offset`, or would; the first one for an offset before the log."""
    return max(sum(each.base_offset <= offset for each in segments) - 1, 0)


class Source(NamedTuple):
    """A segment that is to be cleaned."""

    base_offset: int
    size_bytes: int
    modified_ms: int
    #: Of the offset index and of the time index.
    index_bytes: tuple[int, int] = (0, 0)


def grouped(sources: Sequence[Source], config: LogConfig, end_offset: int) -> list[list[Source]]:
    """Neighbours that become one segment: together they are not larger than a segment, or an index, may be.

    `end_offset` is where the last of them ends.
    """
    groups: list[list[Source]] = []
    room = (0, 0, 0)
    ends = [*(each.base_offset for each in sources[1:]), end_offset]
    for source, end in zip(sources, ends, strict=True):
        room = (room[0] - source.size_bytes, room[1] - source.index_bytes[0], room[2] - source.index_bytes[1])
        in_reach = bool(groups) and (not source.size_bytes or end - 1 - groups[-1][0].base_offset <= _RELATIVE_MAX)
        if in_reach and min(room) >= 0:
            groups[-1].append(source)
        else:
            groups.append([source])
            room = (
                config.segment_bytes - source.size_bytes,
                config.segment_index_bytes - source.index_bytes[0],
                config.segment_index_bytes - source.index_bytes[1],
            )
    return groups
