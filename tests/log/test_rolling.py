"""When a roll may come: before a batch that may bring it, the device has to know the first file's name."""

import pytest

from ottla.base.errors import StorageError
from ottla.log.config import LogConfig, TimestampType
from ottla.log.memory import MemoryStorage
from ottla.log.names import LOG
from ottla.log.partition import PartitionLog
from ottla.wire.markers import MARKER_BATCH_BYTES
from tests.log.batches import NOW_MS, batch, idempotent
from tests.log.logs import append, append_in_transaction, open_log

_BATCH = batch()
_TWICE = 2 * len(_BATCH)
#: As long before a marker may come as a flush does.
_FLUSHED_MS = 120_000


def _log(*, segment_bytes: int = 10**6, segment_ms: int = 10**9, stamps: bool = False) -> PartitionLog:
    how = TimestampType.LOG_APPEND_TIME if stamps else TimestampType.CREATE_TIME
    return open_log(None, LogConfig(segment_bytes=segment_bytes, segment_ms=segment_ms, message_timestamp_type=how))


def _transactional(timestamp_ms: int = NOW_MS) -> bytes:
    return batch(producer_id=7, producer_epoch=0, base_sequence=0, transactional=True, timestamps_ms=[timestamp_ms])


def _opened_again() -> tuple[MemoryStorage, PartitionLog]:
    """A log with a batch, of which nothing was looked at since the start."""
    storage = MemoryStorage()
    log = open_log(storage)
    append(log, _BATCH)
    log.close()
    return storage, open_log(storage, clean=True, recovery_point=log.recovery_point)


@pytest.mark.parametrize(("short", "rolls"), [(0, False), (1, True)])
def test_it_comes_with_a_batch_for_which_the_segment_has_no_room(short: int, rolls: bool) -> None:
    log = _log(segment_bytes=_TWICE - short)
    assert not log.rolling.may_come(_BATCH, NOW_MS)
    append(log, _BATCH)
    assert log.rolling.may_come(_BATCH, NOW_MS) is rolls
    append(log, _BATCH)
    assert len(log._segments) == 1 + rolls


@pytest.mark.parametrize("stamps", [True, False])
@pytest.mark.parametrize("late_ms", [0, 1])
def test_it_comes_with_a_batch_that_is_so_much_newer_by_the_clock_that_counts(stamps: bool, late_ms: int) -> None:
    log = _log(segment_ms=10, stamps=stamps)
    append(log, _BATCH)
    late = NOW_MS + 10 + late_ms
    newer, now_ms = (_BATCH, late) if stamps else (batch(timestamps_ms=[late]), NOW_MS)
    assert log.rolling.may_come(newer, now_ms) is bool(late_ms)
    append(log, newer, now_ms=now_ms)
    assert len(log._segments) == 1 + late_ms


def test_it_comes_with_a_batch_whose_offsets_have_no_room_in_the_index() -> None:
    log = _log()
    append(log, _BATCH)
    log.end_offset = 2**31
    assert log.rolling.may_come(_BATCH, NOW_MS)
    log.end_offset -= 1
    assert not log.rolling.may_come(_BATCH, NOW_MS)
    assert log.rolling.may_come(batch(2), NOW_MS)


@pytest.mark.parametrize("is_in", [True, False])
def test_it_comes_with_the_marker_for_which_a_transactions_segment_has_no_room(is_in: bool) -> None:
    begins = idempotent(0, transactional=True)
    room = 2 * len(begins) + MARKER_BATCH_BYTES
    rolls = []
    for segment_bytes in (room, room - 1):
        log = _log(segment_bytes=segment_bytes)
        append_in_transaction(log, 0)
        following = idempotent(1, transactional=is_in)
        assert len(following) == len(begins)
        rolls.append(log.rolling.may_come(following, NOW_MS))
    assert rolls == [False, is_in]


@pytest.mark.parametrize("stamps", [True, False])
@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("late_ms", [0, 1])
def test_or_with_a_marker_that_is_so_much_newer_before_a_flush_comes(
    stamps: bool, is_first: bool, late_ms: int
) -> None:
    log = _log(segment_ms=_FLUSHED_MS + 10, stamps=stamps)
    first_ms = NOW_MS - 10 - late_ms
    if not is_first:
        append(log, batch(timestamps_ms=[first_ms]), now_ms=first_ms)
    # Of an empty segment the batch itself is the first one: where the topic stamps it, it is as new as can be.
    counts = not (stamps and is_first)
    assert log.rolling.may_come(_transactional(first_ms if is_first else NOW_MS), NOW_MS) is (counts and bool(late_ms))
    assert not log.rolling.may_come(_BATCH, NOW_MS)


def test_of_a_segment_of_before_the_start_a_marker_may_bring_it_whenever_it_comes() -> None:
    storage, again = _opened_again()
    storage.files[f"{0:020}{LOG}"].content[16] = 9  # so that nobody finds when it began
    assert again.rolling.may_come(_transactional(), NOW_MS)


@pytest.mark.parametrize("size", [0, 60])
def test_what_is_no_batch_brings_none(size: int) -> None:
    assert not _log().rolling.may_come(_BATCH[:size], NOW_MS)


def test_who_appends_hears_that_the_segment_cannot_be_read_and_not_who_asks() -> None:
    storage, again = _opened_again()
    storage.refuses = lambda action, name: action == "read"
    assert not again.rolling.may_come(_BATCH, NOW_MS)
    with pytest.raises(StorageError):
        append(again, _BATCH)


def test_files_were_made_for_the_first_batch_of_each_segment() -> None:
    log = _log(segment_bytes=_TWICE)
    firsts = []
    for _ in range(5):
        append(log, _BATCH)
        firsts.append(log.rolling.is_first(len(_BATCH)))
    assert firsts == [True, False, True, False, True]


@pytest.mark.parametrize("refused", ["open", "append"])
def test_or_for_one_that_the_disk_has_refused_then(refused: str) -> None:
    storage = MemoryStorage()
    log = open_log(storage, LogConfig(segment_bytes=_TWICE))
    for _ in range(2):
        append(log, _BATCH)
    storage.refuses = lambda action, name: (action, name) == (refused, f"{2:020}{LOG}")
    with pytest.raises(StorageError):
        append(log, _BATCH)
    assert log.rolling.is_first(len(_BATCH))
