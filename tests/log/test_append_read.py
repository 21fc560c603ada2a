"""Append and read: offsets, refusals, slices, the index on the way."""

import struct
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.errors import StorageError
from ottla.base.limits import MAX_INDEX_INTERVAL_BYTES
from ottla.log.config import LogConfig, TimestampType
from ottla.log.memory import MemoryStorage
from ottla.log.results import Isolation, Origin
from ottla.wire.batch import TimestampType as BatchTimestampType
from ottla.wire.batch import check_integrity, parse_header
from ottla.wire.errors import ErrorCode
from ottla.wire.markers import control_batch
from tests.log.batches import NOW_MS, batch
from tests.log.logs import (
    SMALL,
    append,
    append_in_transaction,
    content,
    end,
    every_batch,
    headers,
    latest_epoch,
    open_log,
)


def test_offsets_and_leader_epoch_are_written_into_the_batch_and_the_rest_is_the_clients() -> None:
    log, sent = open_log(), batch(3)
    assert append(log, sent)[:4] == (0, 2, -1, 0)
    appended = log.append(sent, now_ms=NOW_MS, leader_epoch=5)
    assert (appended.base_offset, appended.last_offset) == (3, 5)
    second = every_batch(log)[1]
    header = parse_header(second)
    assert (header.base_offset, header.partition_leader_epoch) == (3, 5)
    check_integrity(second, 0, header)
    assert second[16:] == sent[16:]
    assert log.end_offset == 6


@pytest.mark.parametrize("kind", [bytes, bytearray, lambda data: memoryview(bytes(data))])
def test_any_buffer_is_appended_and_left_as_it_was(kind: type[bytes]) -> None:
    log, sent = open_log(), kind(batch(2))
    assert append(log, sent).error is ErrorCode.NONE
    assert bytes(sent) == batch(2)


def _damaged(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


@pytest.mark.parametrize(
    ("records", "error"),
    [
        (b"", ErrorCode.INVALID_RECORD),
        (batch()[:40], ErrorCode.CORRUPT_MESSAGE),
        (batch()[:-1], ErrorCode.CORRUPT_MESSAGE),
        (_damaged(batch(value=b"x" * 20), 70), ErrorCode.CORRUPT_MESSAGE),
        (batch() + batch(), ErrorCode.INVALID_RECORD),
        (batch(base_offset=4), ErrorCode.INVALID_RECORD),
        (batch(attributes=0x08), ErrorCode.INVALID_TIMESTAMP),
        (batch(timestamps_ms=[NOW_MS + 3_600_001]), ErrorCode.INVALID_TIMESTAMP),
        (batch(value=b"x" * 2_000_000), ErrorCode.MESSAGE_TOO_LARGE),
        (batch(producer_id=5, producer_epoch=0), ErrorCode.INVALID_RECORD),
        (
            control_batch(commit=True, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp_ms=NOW_MS),
            ErrorCode.INVALID_RECORD,
        ),
    ],
)
def test_a_bad_batch_is_refused_and_nothing_changes(records: bytes, error: ErrorCode) -> None:
    log = open_log()
    append(log, batch())
    appended = append(log, records)
    assert (appended.error, appended.base_offset) == (error, -1)
    assert appended.message
    assert (log.end_offset, log.size_bytes) == (1, len(batch()))


def test_a_batch_larger_than_a_segment_is_refused() -> None:
    assert append(open_log(config=SMALL), batch(value=b"x" * 3_000)).error is ErrorCode.RECORD_LIST_TOO_LARGE


def test_a_compacted_topic_refuses_records_without_a_key() -> None:
    log = open_log(config=LogConfig(cleanup_policy=frozenset({"compact"})))
    assert append(log, batch(key=None)).error is ErrorCode.INVALID_RECORD
    assert append(log, batch()).error is ErrorCode.NONE


def test_a_lower_bound_on_timestamps_is_held() -> None:
    log = open_log(config=LogConfig(message_timestamp_before_max_ms=1_000))
    assert append(log, batch(timestamps_ms=[NOW_MS - 1_001])).error is ErrorCode.INVALID_TIMESTAMP
    assert append(log, batch(timestamps_ms=[NOW_MS - 1_000])).error is ErrorCode.NONE
    assert append(log, batch(timestamps_ms=[-1])).error is ErrorCode.NONE


def test_log_append_time_stamps_the_batch() -> None:
    log = open_log(config=LogConfig(message_timestamp_type=TimestampType.LOG_APPEND_TIME))
    appended = append(log, batch(2, timestamps_ms=[5, 6]), now_ms=NOW_MS + 9)
    assert appended.log_append_time_ms == NOW_MS + 9
    stored = every_batch(log)[0]
    header = parse_header(stored)
    check_integrity(stored, 0, header)
    assert header.timestamp_type is BatchTimestampType.LOG_APPEND_TIME
    assert header.max_timestamp_ms == NOW_MS + 9


def test_the_brokers_own_batches_have_no_sequences() -> None:
    log = open_log()
    records = batch(producer_id=9, producer_epoch=1)
    assert log.append(records, now_ms=NOW_MS, origin=Origin.COORDINATOR).error is ErrorCode.NONE
    older = log.append(batch(producer_id=9, producer_epoch=0), now_ms=NOW_MS, origin=Origin.COORDINATOR)
    assert older.error is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_failed_write_leaves_the_log_as_it_was() -> None:
    storage = MemoryStorage()
    log = open_log(storage)
    append(log, batch())
    storage.limit_bytes = storage.size_bytes + 10
    with pytest.raises(StorageError, match="no space left"):
        append(log, batch())
    assert log.end_offset == 1
    storage.limit_bytes = None
    assert append(log, batch()).base_offset == 1
    assert open_log(storage.after_kill()).end_offset == 2


def test_reads_outside_the_log_are_out_of_range() -> None:
    log = open_log()
    append(log, batch(4))
    assert log.read(5, 100).error is ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.read(-1, 100).error is ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.read(4, 100) == (ErrorCode.NONE, (), 4, 4, 0, None, False)
    log.delete_records_before(2)
    assert log.read(1, 100).error is ErrorCode.OFFSET_OUT_OF_RANGE
    assert headers(log.read(2, 1_000))[0].base_offset == 0


def test_the_first_batch_comes_whole_or_not_at_all() -> None:
    log = open_log()
    for _ in range(3):
        append(log, batch(value=b"x" * 200))
    one = len(batch(value=b"x" * 200))
    assert len(content(log.read(1, 10))) == one
    assert content(log.read(1, 10, min_one_batch=False)) == b""
    assert len(content(log.read(1, one + 7))) == one + 7
    assert len(content(log.read(0, 10_000))) == 3 * one


def test_a_read_that_gives_no_records_names_no_aborted_transactions() -> None:
    """29,000 of them, each of no byte, had named 494 MB of transactions."""
    log = open_log()
    append_in_transaction(log, 0)
    end(log, commit=False)
    none = log.read(0, 1, isolation=Isolation.READ_COMMITTED, min_one_batch=False)
    assert (none.slices, none.aborted) == ((), ())
    assert log.read(0, 1, isolation=Isolation.READ_COMMITTED).aborted == ((7, 0),)


def test_read_committed_of_a_log_without_transactions_reads_to_its_end() -> None:
    log = open_log()
    append(log, batch(2))
    read = log.read(0, 1_000, isolation=Isolation.READ_COMMITTED)
    assert (read.last_stable_offset, read.aborted) == (2, ())
    assert len(headers(read)) == 1


@given(
    counts=st.lists(st.integers(1, 40), min_size=1, max_size=60),
    interval=st.sampled_from([0, 300, 4_096]),
    segment_bytes=st.sampled_from([1_500, 4_000, 1_000_000]),
)
def test_a_read_at_any_offset_returns_the_batch_that_contains_it(
    counts: list[int], interval: int, segment_bytes: int
) -> None:
    storage = MemoryStorage()
    config = LogConfig(segment_bytes=segment_bytes, index_interval_bytes=interval)
    log = open_log(storage, config)
    for count in counts:
        assert append(log, batch(count)).error is ErrorCode.NONE
    log.close()
    for each in (log, open_log(storage, config, clean=True), open_log(storage.after_kill(), config)):
        for offset in range(each.end_offset):
            first = headers(each.read(offset, 1))[0]
            assert first.base_offset <= offset <= first.last_offset
        assert [parse_header(one).record_count for one in every_batch(each)] == counts


def test_the_way_from_an_index_entry_is_short_whatever_the_setting_says() -> None:
    """A fetch of many partitions goes from header to header in each of them."""
    storage = MemoryStorage()
    log = open_log(storage, LogConfig(index_interval_bytes=2_000_000_000))
    written = batch()
    for _ in range(10 * MAX_INDEX_INTERVAL_BYTES // len(written)):
        append(log, written)
    log.close()
    (index,) = (name for name in storage.names() if name.endswith(".index"))
    entries = storage.read(index) or b""
    positions = [0, *(position for _, position in struct.iter_unpack(">ii", entries) if position)]
    assert max(after - before for before, after in pairwise(positions)) <= MAX_INDEX_INTERVAL_BYTES + 2 * len(written)
    assert len(positions) >= 9


def test_a_log_whose_first_append_found_no_room_goes_on_once_there_is() -> None:
    storage = MemoryStorage()
    log = open_log(storage)
    storage.limit_bytes = storage.size_bytes
    with pytest.raises(StorageError):
        append(log, batch())
    storage.limit_bytes = None
    append(log, batch())
    log.close()
    assert latest_epoch(open_log(storage, clean=True)) == 0
