"""Checks a client's batch record by record, and names each record that is at fault (KIP-467).

A batch is opened only where its header cannot tell: a compacted topic wants a key in every record, and a header whose
timestamps are out of range does not say which records are. The texts are Apache Kafka's: clients show them.
"""

from typing import Final, NamedTuple

from ottla.base.limits import MAX_OPENED_BYTES, MAX_RECORD_ERRORS, RECORDS_AT_ONCE
from ottla.base.types import TopicPartition
from ottla.log.config import LogConfig, TimestampType
from ottla.log.producers import Refusal
from ottla.log.results import RecordError
from ottla.log.storage import Buffer
from ottla.wire.batch import BatchHeader
from ottla.wire.batch_errors import CorruptBatchError
from ottla.wire.errors import ErrorCode

_MIN_TIME_MS: Final = -(2**63)
_MAX_TIME_MS: Final = 2**63 - 1


class Looked(NamedTuple):
    """What a look at a batch's records has found before the batch is appended (`look_at`)."""

    #: The settings that it was held against.
    config: LogConfig
    refusal: Refusal | None


class _Fault(NamedTuple):
    """One record that is at fault, as `find_faults` tells it. A size of -1 is null."""

    at: int
    lacks_key: bool
    offset: int
    timestamp_ms: int
    key_bytes: int
    value_bytes: int


def check_records(
    records: Buffer,
    header: BatchHeader,
    config: LogConfig,
    tp: TopicPartition,
    now_ms: int,
    max_named: int = MAX_RECORD_ERRORS,
) -> Refusal | None:
    """Why the batch is refused because of its records, or None. At most `max_named` of them are named.

    MESSAGE_TOO_LARGE when they take more than MAX_OPENED_BYTES; INVALID_RECORD when their offsets do not increase by
    one (Kafka looks at those of compressed batches only). No more memory is taken, and no record is built.
    """
    low_ms, high_ms = _range(config, now_ms)
    try:
        faults, by_key, by_time = _find(records, header, config, low_ms, high_ms, max_named)
    except CorruptBatchError as fault:
        return Refusal(ErrorCode(fault.error_code), str(fault))
    no_key = f"Compacted topic cannot accept message without key in topic partition {tp}"
    errors = [
        RecordError(each.at, no_key if each.lacks_key else _out_of_range(each, low_ms, high_ms)) for each in faults
    ]
    return _refusal(errors, by_key, by_time)


def stamped_by_producer(
    records: Buffer, header: BatchHeader, config: LogConfig, max_named: int = MAX_RECORD_ERRORS
) -> Refusal:
    """A batch says LogAppendTime, which is the broker's to say: all its records are at fault."""
    try:
        faults, _, count = _find(records, header, config, _MIN_TIME_MS, _MAX_TIME_MS, max_named, every=True)
    except CorruptBatchError as fault:
        return Refusal(ErrorCode(fault.error_code), str(fault))
    errors = [
        RecordError(
            each.at,
            f"Invalid timestamp type in message DefaultRecord(offset={each.offset}, timestamp={each.timestamp_ms}, "
            f"key={each.key_bytes} bytes, value={each.value_bytes} bytes). "
            "Producer should not set timestamp type to LogAppendTime.",
        )
        for each in faults
    ]
    return _by_time(errors, count)


def _find(
    records: Buffer,
    header: BatchHeader,
    config: LogConfig,
    low_ms: int,
    high_ms: int,
    max_named: int,
    *,
    every: bool = False,
) -> tuple[list[_Fault], int, int]:
    """The first records that are at fault, `every` one or by key and time; how many lack a key, and a time."""
    from ottla.wire.record_codec import find_faults
    from ottla.wire.records import open_batch  # both imported here: few batches are opened

    max_bytes = max(MAX_OPENED_BYTES, config.max_message_bytes)
    cursor = open_batch(records, 0, header, check_crc=False, max_bytes=max_bytes)
    needs_key = config.compacts and not every
    found: list[tuple[int, bool, int, int, int, int]] = []
    by_key = by_time = 0
    while cursor.taken < cursor.count:
        keys, times = find_faults(cursor, RECORDS_AT_ONCE, needs_key, low_ms, high_ms, every, found, max_named)
        by_key, by_time = by_key + keys, by_time + times
    return [_Fault(*each) for each in found], by_key, by_time


def _range(config: LogConfig, now_ms: int) -> tuple[int, int]:
    """The first and the last timestamp that a record may have."""
    if config.message_timestamp_type is not TimestampType.CREATE_TIME:
        return _MIN_TIME_MS, _MAX_TIME_MS
    low_ms, high_ms = now_ms - config.message_timestamp_before_max_ms, now_ms + config.message_timestamp_after_max_ms
    return max(low_ms, _MIN_TIME_MS), min(high_ms, _MAX_TIME_MS)


def _out_of_range(fault: _Fault, low_ms: int, high_ms: int) -> str:
    return (
        f"Timestamp {fault.timestamp_ms} of message with offset {fault.offset} is out of range. "
        f"The timestamp should be within [{low_ms}, {high_ms}]"
    )


def _refusal(errors: list[RecordError], by_key: int, by_time: int) -> Refusal | None:
    if by_time:
        return _by_time(errors, by_key + by_time)
    if not by_key:
        return None
    return Refusal(
        ErrorCode.INVALID_RECORD,
        f"One or more records have been rejected due to {by_key} record errors in total, and only showing the first "
        f"three errors at most: [{', '.join(map(str, errors[:3]))}]{_unnamed(errors, by_key)}",
        tuple(errors),
    )


def _by_time(errors: list[RecordError], count: int) -> Refusal:
    return Refusal(
        ErrorCode.INVALID_TIMESTAMP,
        f"One or more records have been rejected due to invalid timestamp{_unnamed(errors, count)}",
        tuple(errors),
    )


def _unnamed(errors: list[RecordError], count: int) -> str:
    """What is said where not all `count` records that are refused are named."""
    return "" if len(errors) == count else f"; {len(errors)} of {count} refused records are named"
