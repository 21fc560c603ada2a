"""ListOffsets by time: the first record that is at least so young, exactly."""

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.log.config import LogConfig, TimestampType
from ottla.log.memory import MemoryStorage
from ottla.log.results import Isolation, TimestampOffset
from ottla.log.timestamps import HEADERS_AT_ONCE
from ottla.wire.special_timestamp import SpecialTimestamp
from tests.log.batches import NOW_MS, batch
from tests.log.logs import append, append_in_transaction, end, open_log, retain


def test_the_first_record_not_the_first_batch() -> None:
    log = open_log()
    log.append(batch(timestamps_ms=[10, 30, 20]), now_ms=NOW_MS, leader_epoch=2)
    log.append(batch(timestamps_ms=[15, 40]), now_ms=NOW_MS, leader_epoch=2)
    assert log.offset_for_timestamp(11) == TimestampOffset(30, 1, 2)
    assert log.offset_for_timestamp(31) == TimestampOffset(40, 4, 2)
    assert log.offset_for_timestamp(41) is None


def test_special_timestamps() -> None:
    log = open_log()
    assert log.offset_for_timestamp(SpecialTimestamp.LATEST) == TimestampOffset(-1, 0, -1)
    assert log.offset_for_timestamp(SpecialTimestamp.MAX_TIMESTAMP) is None
    append(log, batch(timestamps_ms=[10, 30, 20]))
    append(log, batch(timestamps_ms=[30, 5]))
    assert log.offset_for_timestamp(SpecialTimestamp.EARLIEST) == TimestampOffset(-1, 0, 0)
    assert log.offset_for_timestamp(SpecialTimestamp.LATEST) == TimestampOffset(-1, 5, 0)
    assert log.offset_for_timestamp(SpecialTimestamp.MAX_TIMESTAMP) == TimestampOffset(30, 1, 0)
    assert log.offset_for_timestamp(SpecialTimestamp.LATEST_TIERED) == TimestampOffset(-1, -1, -1)
    log.delete_records_before(4)
    assert log.offset_for_timestamp(SpecialTimestamp.EARLIEST_LOCAL) == TimestampOffset(-1, 4, 0)
    assert log.offset_for_timestamp(1) == TimestampOffset(5, 4, 0)


def test_with_log_append_time_the_batch_is_not_opened() -> None:
    log = open_log(config=LogConfig(message_timestamp_type=TimestampType.LOG_APPEND_TIME))
    append(log, batch(3), now_ms=NOW_MS)
    append(log, batch(3), now_ms=NOW_MS + 10)
    assert log.offset_for_timestamp(NOW_MS + 1) == TimestampOffset(NOW_MS + 10, 3, 0)


def test_read_committed_does_not_see_behind_the_lso() -> None:
    log = open_log()
    append(log, batch())
    append_in_transaction(log, 0)
    assert log.offset_for_timestamp(NOW_MS, Isolation.READ_COMMITTED) == TimestampOffset(NOW_MS, 0, 0)
    log.delete_records_before(1)
    assert log.offset_for_timestamp(NOW_MS, Isolation.READ_COMMITTED) is None
    end(log, commit=True)
    assert log.offset_for_timestamp(NOW_MS, Isolation.READ_COMMITTED) == TimestampOffset(NOW_MS, 1, 0)


def test_a_search_opens_one_batch_and_pauses_between_headers() -> None:
    log = open_log(config=LogConfig(index_interval_bytes=1_000_000))
    for number in range(3 * HEADERS_AT_ONCE):
        append(log, batch(timestamps_ms=[number]))
    steps = list(log.search_timestamp(2 * HEADERS_AT_ONCE + 50))
    assert [each is not None for each in steps] == [False, False, True]


def test_a_log_may_change_between_the_steps_of_a_search() -> None:
    """Segments are rolled and deleted; what was in the log, and still is, is found."""
    config = LogConfig(segment_bytes=2_000, retention_ms=-1)
    for wanted in (NOW_MS + 150, SpecialTimestamp.MAX_TIMESTAMP):
        log = open_log(config=config)
        for number in range(200):
            append(log, batch(timestamps_ms=[NOW_MS + number, NOW_MS]))
        log.delete_records_before(399)
        append(log, batch(timestamps_ms=[NOW_MS + 199, NOW_MS + 201]))
        log.delete_records_before(401)
        steps, found = log.search_timestamp(wanted), None
        try:
            while True:
                next(steps)
                for _ in range(50):
                    append(log, batch(timestamps_ms=[NOW_MS]))
                retain(log, NOW_MS)
        except StopIteration as done:
            found = done.value
        assert found == TimestampOffset(NOW_MS + 201, 401, 0)
        assert log.end_offset > 402


@settings(max_examples=150)
@given(
    batches=st.lists(st.lists(st.integers(0, 300), min_size=1, max_size=4), min_size=1, max_size=40),
    start=st.integers(0, 20),
    segment_bytes=st.sampled_from([400, 2_000, 1_000_000]),
    interval=st.sampled_from([0, 200, 4_096]),
)
def test_any_timestamp_finds_what_a_walk_over_all_records_finds(
    batches: list[list[int]], start: int, segment_bytes: int, interval: int
) -> None:
    storage = MemoryStorage()
    config = LogConfig(segment_bytes=segment_bytes, index_interval_bytes=interval)
    log = open_log(storage, config)
    for times in batches:
        append(log, batch(timestamps_ms=times))
    times = [each for one in batches for each in one]
    start = min(start, len(times))
    log.delete_records_before(start)
    killed = open_log(storage.after_kill(), config, log_start_offset=start)
    for timestamp_ms in range(0, 302, 7):
        expected = next((n for n, each in enumerate(times) if each >= timestamp_ms and n >= start), None)
        for each in (log, killed):
            found = each.offset_for_timestamp(timestamp_ms)
            assert (found.offset if found else None) == expected


@settings(max_examples=150)
@given(
    batches=st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=4), min_size=1, max_size=40),
    segment_bytes=st.sampled_from([400, 2_000, 1_000_000]),
    interval=st.sampled_from([0, 200, 4_096]),
    stamped=st.booleans(),
)
def test_the_newest_record_is_the_newest_of_those_that_are_left(
    batches: list[list[int]], segment_bytes: int, interval: int, stamped: bool
) -> None:
    kind = TimestampType.LOG_APPEND_TIME if stamped else TimestampType.CREATE_TIME
    config = LogConfig(segment_bytes=segment_bytes, index_interval_bytes=interval, message_timestamp_type=kind)
    log = open_log(MemoryStorage(), config)
    times: list[int] = []
    for each in batches:
        append(log, batch(timestamps_ms=each), now_ms=max(each))
        times += [max(each)] * len(each) if stamped else each
    for start in range(len(times)):
        log.delete_records_before(start)
        newest_ms = max(times[start:])
        found = log.offset_for_timestamp(SpecialTimestamp.MAX_TIMESTAMP)
        assert found == TimestampOffset(newest_ms, times.index(newest_ms, start), 0)
    log.delete_records_before(len(times))
    assert log.offset_for_timestamp(SpecialTimestamp.MAX_TIMESTAMP) is None
