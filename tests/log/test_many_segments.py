"""A log of very many segments: no read of it, and no search, goes through all of them at once."""

import tracemalloc

import pytest

from ottla.log.config import LogConfig
from ottla.log.memory import MemoryStorage
from ottla.log.partition import PartitionLog
from ottla.log.results import Isolation
from ottla.log.witnesses import Outside
from ottla.wire.special_timestamp import SpecialTimestamp
from tests.counted_calls import calls
from tests.log.batches import NOW_MS, batch
from tests.log.logs import TP, append, append_in_transaction, end, open_log

_MANY = 200
#: Calls of Python and C that more segments may cost: the depth of a search by halves.
_MORE = 60


def _log_of(segments: int) -> PartitionLog:
    log = open_log(MemoryStorage(), LogConfig(segment_ms=10))
    for number in range(segments):
        append(log, batch(timestamps_ms=[NOW_MS + 100 * number]))
    return log


@pytest.mark.parametrize("has_aborted", [False, True])
def test_a_committed_read_does_not_look_at_the_aborts_of_each_segment(has_aborted: bool) -> None:
    def reading(segments: int) -> int:
        log = _log_of(segments)
        if has_aborted:
            append_in_transaction(log, 0)
            end(log, commit=False)
        log.read(1, 100, isolation=Isolation.READ_COMMITTED)
        return calls(lambda: log.read(1, 100, isolation=Isolation.READ_COMMITTED))

    assert reading(_MANY) <= reading(4) + _MORE


def test_aborts_are_found_in_whichever_segments_they_are() -> None:
    log, aborted = _log_of(3), []
    for number in range(1, 9):
        if number % 3 == 0:
            aborted.append(append_in_transaction(log, number).base_offset)
            end(log, commit=False)
        log.roll(NOW_MS)
        append(log, batch(timestamps_ms=[NOW_MS + 1_000 + 100 * number]))
    for segment in log._segments:
        read = log.read(segment.base_offset, 1, isolation=Isolation.READ_COMMITTED)
        told = [each.first_offset for each in read.aborted or ()]
        following = log._segments.following_base(segment) or log.end_offset
        assert told == [each for each in aborted if segment.base_offset <= each < following]
    assert sorted(log.aborts) == [each.base_offset for each in log._segments if each.txn_index.entries]


def test_a_search_for_the_newest_record_does_not_look_into_deleted_segments() -> None:
    def searching(segments: int) -> int:
        log = _log_of(segments)
        log.delete_records_before(segments - 1)
        made = calls(lambda: log.offset_for_timestamp(SpecialTimestamp.MAX_TIMESTAMP))
        found = log.offset_for_timestamp(SpecialTimestamp.MAX_TIMESTAMP)
        assert found is not None
        assert found.offset == segments - 1
        return made

    # Its time is older than that of all segments before it.
    assert searching(_MANY) <= searching(4) + _MORE


def test_a_search_by_time_passes_over_some_older_segments_in_a_step() -> None:
    log = _log_of(3 * _MANY)
    steps = list(log.search_timestamp(NOW_MS + 100 * 3 * _MANY - 100))
    assert len(steps) > 4


@pytest.mark.parametrize("is_new", [False, True])
def test_a_checkpoint_does_not_go_through_what_was_aborted_before(is_new: bool) -> None:
    def checkpointing(aborted: int) -> int:
        storage = MemoryStorage()
        log = open_log(storage)
        for number in range(aborted):
            append_in_transaction(log, number)
            end(log, commit=False)
        if is_new:
            log.close()
            log = PartitionLog.open(TP, storage, LogConfig(), NOW_MS, clean=True, outside=Outside(aborts=log.aborts))
        made = calls(lambda: log.aborts)
        assert log.aborts[0].entries == aborted
        return made

    assert checkpointing(_MANY) == checkpointing(2)


def test_the_entries_of_an_index_are_looked_at_without_an_object_for_each() -> None:
    """A gigabyte of small batches has 262,144, and each read of an old segment begins with a look at them."""
    log = open_log(MemoryStorage(), LogConfig(index_interval_bytes=0))
    for number in range(2_000):
        append(log, batch(timestamps_ms=[NOW_MS + number]))
    index, times = log._segments.active.offset_index, log._segments.active.time_index
    assert min(index.entries, times.entries) > 1_900
    tracemalloc.start()
    try:
        for each in (index, times):
            each.check_order()
        assert tracemalloc.get_traced_memory()[1] < 10_000
    finally:
        tracemalloc.stop()
