"""Which part of a log is cleaned, how dirty it is, and which segments become one: Apache Kafka's rules."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from ottla.log.cleaner.choice import Cleanable, Source, cleanable, grouped
from ottla.log.config import LogConfig
from tests.log.cleaner.passes import COMPACT

_NOW = 100_000


def _look(config: LogConfig = COMPACT, *, cleaned: int | None = None, stable: int = 50, start: int = 0) -> Cleanable:
    """Five segments of ten records and 100 bytes, a second apart, the last one active."""
    segments = [
        SimpleNamespace(base_offset=base, size_bytes=100, max_timestamp_ms=_NOW - 5_000 + base * 100, modified_ms=0)
        for base in range(0, 50, 10)
    ]
    return cleanable(
        segments,
        config,
        lambda number: segments[number].max_timestamp_ms,
        cleaned_offset=cleaned,
        log_start_offset=start,
        end_offset=50,
        stable_offset=stable,
        now_ms=_NOW,
    )


def test_all_but_the_active_segment_can_be_cleaned() -> None:
    assert _look() == Cleanable(0, 40, 0, 400, is_due=False)
    assert _look(cleaned=20) == Cleanable(20, 40, 200, 200, is_due=False)
    assert _look(cleaned=40).dirty_bytes == 0


def test_the_segment_of_the_last_stable_offset_is_not_cleaned() -> None:
    assert _look(stable=29).end_offset == 20
    assert _look(stable=30).end_offset == 30
    assert _look(stable=5, cleaned=20) == Cleanable(20, 20, 200, 0, is_due=False)


@pytest.mark.parametrize("wrong", [51, 4])
def test_a_checkpoint_that_cannot_be_right_counts_as_none(wrong: int) -> None:
    assert _look(cleaned=wrong, start=5).first_dirty_offset == 5


def test_young_segments_wait_for_the_least_lag() -> None:
    assert _look(replace(COMPACT, min_compaction_lag_ms=3_500)).end_offset == 20
    assert _look(replace(COMPACT, min_compaction_lag_ms=60_000)).dirty_bytes == 0


def test_it_is_wanted_above_the_ratio_or_when_the_longest_lag_is_over() -> None:
    half = replace(COMPACT, min_cleanable_dirty_ratio=0.5)
    assert not _look(half, cleaned=20).is_wanted(half)  # a half is not more than a half
    assert _look(half, cleaned=10).is_wanted(half)
    due = replace(half, max_compaction_lag_ms=2_500)
    assert _look(due, cleaned=20).is_due
    assert _look(due, cleaned=20).is_wanted(due)
    assert not _look(due, cleaned=30).is_due
    assert not _look(replace(COMPACT, max_compaction_lag_ms=1), cleaned=40).is_wanted(COMPACT)


def test_neighbours_become_one_segment_while_they_fit() -> None:
    config = replace(COMPACT, segment_bytes=250, segment_index_bytes=100)
    sizes = [(100, (8, 12)), (100, (8, 12)), (100, (8, 96)), (100, (8, 12)), (0, (0, 0)), (300, (0, 0)), (10, (99, 0))]
    sources = [Source(base * 10, size, 0, index) for base, (size, index) in enumerate(sizes)]
    groups = grouped(sources, config, 70)
    assert [[each.base_offset for each in group] for group in groups] == [[0, 10], [20], [30, 40], [50], [60]]


def test_relative_offsets_of_a_segment_have_31_bits() -> None:
    sources = [Source(0, 1, 0), Source(2**31 - 1, 1, 0), Source(2**31, 1, 0), Source(2**31 + 5, 0, 0)]
    groups = grouped(sources, COMPACT, 2**31 + 9)
    assert [[each.base_offset for each in group] for group in groups] == [[0, 2**31 - 1], [2**31, 2**31 + 5]]
