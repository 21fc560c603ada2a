"""Checks a client's batch record by record, and names each record that is at fault (KIP-467).

A batch is opened only where its header cannot tell: a compacted topic wants a key in every record, and a header whose
timestamps are out of range does not say which records are. The texts are Apache Kafka's: clients show them.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ottla.base.limits import MAX_OPENED_RECORDS, MAX_RECORD_ERRORS
from ottla.base.types import TopicPartition
from ottla.log.config import LogConfig, TimestampType
from ottla.log.producers import Refusal
from ottla.log.results import RecordError
from ottla.log.storage import Buffer
from ottla.wire.batch import BatchHeader
from ottla.wire.batch_errors import CorruptBatchError
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.wire.records import Record

_NO_TIMESTAMP = -1


def check_records(
    records: Buffer, header: BatchHeader, config: LogConfig, tp: TopicPartition, now_ms: int
) -> Refusal | None:
    """Why the batch is refused because of its records, or None."""
    from ottla.wire.records import decode_batch  # imported here: few batches are opened

    if header.record_count > MAX_OPENED_RECORDS:
        return Refusal(
            ErrorCode.MESSAGE_TOO_LARGE,  # so that a client splits the batch
            f"the batch has {header.record_count} records, at most {MAX_OPENED_RECORDS} are looked at one by one",
        )
    try:
        opened = decode_batch(records)
    except CorruptBatchError as fault:
        return Refusal(ErrorCode(fault.error_code), str(fault))
    errors: list[RecordError] = []
    by_key = by_time = 0
    for index, record in enumerate(opened):
        if config.compacts and record.key is None:
            by_key += 1
            message = f"Compacted topic cannot accept message without key in topic partition {tp}"
        elif not _is_in_range(record.timestamp_ms, config, now_ms):
            by_time += 1
            message = _out_of_range(record, config, now_ms)
        else:
            continue
        if len(errors) < MAX_RECORD_ERRORS:
            errors.append(RecordError(index, message))
    return _refusal(errors, by_key, by_time)


def stamped_by_producer(records: Buffer, header: BatchHeader) -> Refusal:
    """A batch says LogAppendTime, which is the broker's to say: all its records are at fault."""
    from ottla.wire.records import decode_batch  # imported here: few batches are opened

    try:
        opened = decode_batch(records) if header.record_count <= MAX_OPENED_RECORDS else []
    except CorruptBatchError as fault:
        return Refusal(ErrorCode(fault.error_code), str(fault))
    return _by_time(
        RecordError(
            index,
            f"Invalid timestamp type in message DefaultRecord(offset={record.offset}, timestamp={record.timestamp_ms}, "
            f"key={_size(record.key)} bytes, value={_size(record.value)} bytes). "
            "Producer should not set timestamp type to LogAppendTime.",
        )
        for index, record in enumerate(opened[:MAX_RECORD_ERRORS])
    )


def _is_in_range(timestamp_ms: int, config: LogConfig, now_ms: int) -> bool:
    if config.message_timestamp_type is not TimestampType.CREATE_TIME or timestamp_ms == _NO_TIMESTAMP:
        return True
    return (
        now_ms - timestamp_ms <= config.message_timestamp_before_max_ms
        and timestamp_ms - now_ms <= config.message_timestamp_after_max_ms
    )


def _out_of_range(record: "Record", config: LogConfig, now_ms: int) -> str:
    low, high = now_ms - config.message_timestamp_before_max_ms, now_ms + config.message_timestamp_after_max_ms
    return (
        f"Timestamp {record.timestamp_ms} of message with offset {record.offset} is out of range. "
        f"The timestamp should be within [{low}, {high}]"
    )


def _refusal(errors: list[RecordError], by_key: int, by_time: int) -> Refusal | None:
    if by_time:
        return _by_time(errors)
    if not by_key:
        return None
    return Refusal(
        ErrorCode.INVALID_RECORD,
        f"One or more records have been rejected due to {by_key} record errors in total, and only showing the first "
        f"three errors at most: [{', '.join(map(str, errors[:3]))}]",
        tuple(errors),
    )


def _by_time(errors: Iterable[RecordError]) -> Refusal:
    return Refusal(
        ErrorCode.INVALID_TIMESTAMP,
        "One or more records have been rejected due to invalid timestamp",
        tuple(errors),
    )


def _size(field: bytes | None) -> int:
    return -1 if field is None else len(field)
