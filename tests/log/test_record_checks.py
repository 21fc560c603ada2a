"""A batch that is looked at record by record: what it may cost, and headers that do not say what the records say.

What is answered for which record is in `tests/broker/refused_records.py`.
"""

from ottla.base.limits import MAX_OPENED_RECORDS, MAX_RECORD_ERRORS
from ottla.log.config import LogConfig, TimestampType
from ottla.wire.batch import pack_header, parse_header, seal
from ottla.wire.compression import Compression
from ottla.wire.errors import ErrorCode
from ottla.wire.records import Record, encode_batch
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


def test_a_batch_of_more_records_than_are_looked_at_is_sent_back_to_be_split() -> None:
    records = _keyless(MAX_OPENED_RECORDS + 1)
    assert append(open_log(config=_COMPACTED), records).error is ErrorCode.MESSAGE_TOO_LARGE
    assert append(open_log(), records).error is ErrorCode.NONE


def test_a_batch_whose_first_record_has_no_time_is_not_taken_for_an_old_one() -> None:
    assert append(open_log(config=_BOUND), batch(timestamps_ms=[-1, NOW_MS])).error is ErrorCode.NONE
    refused = append(open_log(config=_BOUND), batch(timestamps_ms=[-1, NOW_MS, NOW_MS - 1_001]))
    assert [each.batch_index for each in refused.record_errors] == [2]


def test_a_header_that_claims_a_time_that_no_record_has_is_refused() -> None:
    records = bytearray(batch())
    header = parse_header(records)._replace(max_timestamp_ms=NOW_MS + 2 * 3_600_000)
    records[: len(pack_header(header))] = pack_header(header)
    seal(records)
    refused = append(open_log(), bytes(records))
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
