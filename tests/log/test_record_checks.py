"""A batch that is looked at record by record: what it may cost, and headers that do not say what the records say.

What is answered for which record is in `tests/broker/refused_records.py`.
"""

import tracemalloc

import pytest

from ottla.base.limits import MAX_OPENED_BYTES, MAX_RECORD_ERRORS
from ottla.log.config import LogConfig, TimestampType
from ottla.log.record_checks import Looked
from ottla.log.validation import look_at
from ottla.wire.batch import TimestampType as StampedBy
from ottla.wire.batch import pack_header, parse_header, seal
from ottla.wire.compression import Compression
from ottla.wire.errors import ErrorCode
from ottla.wire.record_codec import find_faults
from ottla.wire.records import Record, encode_batch, open_batch
from tests.log.batches import NOW_MS, batch
from tests.log.logs import append, open_log

_COMPACTED = LogConfig(cleanup_policy=frozenset({"compact"}))
_BOUND = LogConfig(message_timestamp_before_max_ms=1_000)


def _keyless(count: int) -> bytes:
    records = [Record(at, NOW_MS, None, b"", ()) for at in range(count)]
    return encode_batch(records, compression=Compression.GZIP)


def test_an_answer_names_no_more_records_than_it_may() -> None:
    appended = append(open_log(config=_COMPACTED), _keyless(MAX_RECORD_ERRORS + 1))
    assert appended.error is ErrorCode.INVALID_RECORD
    assert [each.batch_index for each in appended.record_errors] == list(range(MAX_RECORD_ERRORS))
    assert f"due to {MAX_RECORD_ERRORS + 1} record errors" in appended.message


def _bomb(size_bytes: int) -> bytes:
    """A batch of a few kilobytes with one record of this many."""
    return encode_batch([Record(0, NOW_MS, b"k", bytes(size_bytes), ())], compression=Compression.ZSTD)


def test_a_batch_that_holds_more_bytes_than_are_looked_at_is_sent_back_to_be_split() -> None:
    records = _bomb(MAX_OPENED_BYTES)
    assert len(records) < 10_000
    refused = append(open_log(config=_COMPACTED), records)
    assert refused.error is ErrorCode.MESSAGE_TOO_LARGE
    assert f"more than {MAX_OPENED_BYTES}" in refused.message
    assert append(open_log(), records).error is ErrorCode.NONE
    assert append(open_log(config=_COMPACTED), _bomb(MAX_OPENED_BYTES - 100)).error is ErrorCode.NONE


def test_a_topic_that_takes_larger_batches_looks_at_as_much() -> None:
    config = LogConfig(cleanup_policy=frozenset({"compact"}), max_message_bytes=2 * MAX_OPENED_BYTES)
    assert append(open_log(config=config), _bomb(MAX_OPENED_BYTES)).error is ErrorCode.NONE


def test_a_refused_batch_holds_no_more_memory_than_its_bound() -> None:
    stamped = encode_batch(
        [Record(0, NOW_MS, b"k", bytes(MAX_OPENED_BYTES), ())],
        compression=Compression.ZSTD,
        timestamp_type=StampedBy.LOG_APPEND_TIME,
    )
    for config, records in ((_COMPACTED, _bomb(10 * MAX_OPENED_BYTES)), (LogConfig(), stamped)):
        log = open_log(config=config)
        tracemalloc.start()
        assert append(log, records).error is ErrorCode.MESSAGE_TOO_LARGE
        _, peak_bytes = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak_bytes < 2 * MAX_OPENED_BYTES


def _with_offset_deltas(*deltas: int, compression: Compression) -> bytes:
    """A batch that says that it has no gaps."""
    records = [Record(delta, NOW_MS, b"k", b"v", ()) for delta in deltas]
    return _with_header(encode_batch(records, compression=compression), last_offset_delta=len(deltas) - 1)


def _with_header(records: bytes, **fields: int) -> bytes:
    changed = bytearray(records)
    header = parse_header(changed)._replace(**fields)
    changed[: len(pack_header(header))] = pack_header(header)
    seal(changed)
    return bytes(changed)


@pytest.mark.parametrize("deltas", [(1,), (0, 2), (0, 1, 3), (1, 2, 3)])
@pytest.mark.parametrize("compression", Compression)
def test_offsets_of_records_increase_by_one(compression: Compression, deltas: tuple[int, ...]) -> None:
    refused = append(open_log(config=_COMPACTED), _with_offset_deltas(*deltas, compression=compression))
    assert (refused.error, refused.record_errors) == (ErrorCode.INVALID_RECORD, ())
    assert "increase by one" in refused.message


@pytest.mark.parametrize("at_once", [1, 3, 7, 1_000])
def test_a_batch_is_looked_at_so_many_records_at_a_time(at_once: int) -> None:
    keys = [b"k", None, b"k", None, None, b"k", b"k"]
    records = encode_batch([Record(at, NOW_MS, key, b"", ()) for at, key in enumerate(keys)])
    cursor = open_batch(records, 0, parse_header(records))
    found: list[tuple[int, bool, int, int, int, int]] = []
    taken = []
    while cursor.taken < cursor.count:
        before = cursor.taken
        keyless, late = find_faults(cursor, at_once, True, 0, NOW_MS, False, found, 10)
        taken.append(cursor.taken - before)
        assert late == 0
        assert keyless == keys[before : cursor.taken].count(None)
    assert taken == [min(at_once, 7 - at) for at in range(0, 7, at_once)]
    assert [index for index, *_ in found] == [1, 3, 4]


def test_what_was_found_before_counts_only_with_the_same_settings() -> None:
    log = open_log(config=_COMPACTED)
    keyless = _keyless(1)
    wrong = Looked(log.config, None)
    assert append(log, keyless, looked=wrong).error is ErrorCode.NONE  # it is not looked at once more
    assert append(log, keyless, looked=Looked(LogConfig(), None)).error is ErrorCode.INVALID_RECORD
    found = look_at(keyless, log.config, log.tp, NOW_MS)
    assert found is not None
    assert found.refusal is not None
    assert append(log, keyless, looked=found).error is ErrorCode.INVALID_RECORD


def test_a_batch_whose_first_record_has_no_time_is_not_taken_for_an_old_one() -> None:
    assert append(open_log(config=_BOUND), batch(timestamps_ms=[-1, NOW_MS])).error is ErrorCode.NONE
    refused = append(open_log(config=_BOUND), batch(timestamps_ms=[-1, NOW_MS, NOW_MS - 1_001]))
    assert [each.batch_index for each in refused.record_errors] == [2]


def test_a_header_that_claims_a_time_that_no_record_has_is_refused() -> None:
    refused = append(open_log(), _with_header(batch(), max_timestamp_ms=NOW_MS + 2 * 3_600_000))
    assert (refused.error, refused.record_errors) == (ErrorCode.INVALID_TIMESTAMP, ())


def test_a_topic_that_stamps_records_itself_looks_at_no_timestamp() -> None:
    config = LogConfig(
        cleanup_policy=frozenset({"compact"}),
        message_timestamp_type=TimestampType.LOG_APPEND_TIME,
        message_timestamp_before_max_ms=1_000,
    )
    assert append(open_log(config=config), batch(timestamps_ms=[5, NOW_MS * 2])).error is ErrorCode.NONE


def test_records_that_do_not_parse_are_not_looked_at() -> None:
    records = bytearray(batch(2))
    records[-10] = 0xFF
    seal(records)
    assert append(open_log(config=_COMPACTED), bytes(records)).error is ErrorCode.CORRUPT_MESSAGE
