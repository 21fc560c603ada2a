"""Checks a client's batch before it is appended: all checks of Kafka's LogValidator that need only the batch's header.

Only for a compacted topic the batch is opened, because each record must have a key there. A lower bound on timestamps
is compared with the batch's first record. A refused batch is the client's fault, and nothing has changed.
"""

from typing import Final

from ottla.log.config import LogConfig, TimestampType
from ottla.log.producers import Refusal
from ottla.log.storage import Buffer
from ottla.wire.batch import BatchHeader, check_integrity, validate
from ottla.wire.batch_errors import BatchTooLargeError, CorruptBatchError
from ottla.wire.errors import ErrorCode

_LOG_APPEND_TIME: Final = 0x08
_CONTROL: Final = 0x20


def check_client_batch(records: Buffer, header: BatchHeader, config: LogConfig, now_ms: int) -> Refusal | None:
    """Why a produced batch is refused, or None."""
    try:
        validate(records, 0, header, config.max_message_bytes)
    except CorruptBatchError as fault:
        return Refusal(ErrorCode(fault.error_code), str(fault))
    if header.size_bytes > config.segment_bytes:
        return _too_large_for_segment(header, config)
    if len(records) != header.size_bytes:
        return Refusal(ErrorCode.INVALID_RECORD, "a produce request holds exactly one record batch per partition")
    if header.base_offset != 0:
        return Refusal(ErrorCode.INVALID_RECORD, f"the base offset of a produced batch is 0, not {header.base_offset}")
    if header.attributes & (_CONTROL | _LOG_APPEND_TIME):
        if header.attributes & _CONTROL:
            return Refusal(ErrorCode.INVALID_RECORD, "clients are not allowed to write control records")
        return Refusal(ErrorCode.INVALID_TIMESTAMP, "a producer must not set the timestamp type to LogAppendTime")
    if config.message_timestamp_type is TimestampType.CREATE_TIME and header.max_timestamp_ms != -1:
        if header.max_timestamp_ms - now_ms > config.message_timestamp_after_max_ms:
            return _out_of_range(header.max_timestamp_ms, config, now_ms)
        if now_ms - header.base_timestamp_ms > config.message_timestamp_before_max_ms:
            return _out_of_range(header.base_timestamp_ms, config, now_ms)
    return _check_keys(records) if config.compacts else None


def check_own_batch(records: Buffer, header: BatchHeader, config: LogConfig) -> Refusal | None:
    """Why a batch that the broker wrote itself is refused, or None. It may be a marker and has no sequences."""
    try:
        if header.size_bytes > config.max_message_bytes:
            raise BatchTooLargeError(
                f"the batch takes {header.size_bytes} bytes, {config.max_message_bytes} are allowed"
            )
        check_integrity(records, 0, header)
    except CorruptBatchError as fault:
        return Refusal(ErrorCode(fault.error_code), str(fault))
    if header.size_bytes > config.segment_bytes:
        return _too_large_for_segment(header, config)
    if len(records) != header.size_bytes or header.record_count != header.last_offset_delta + 1:
        return Refusal(ErrorCode.INVALID_RECORD, "exactly one record batch without gaps is appended at a time")
    return None


def _check_keys(records: Buffer) -> Refusal | None:
    from ottla.wire.records import decode_batch  # imported here: only compacted topics need it

    try:
        missing = [record.offset for record in decode_batch(records) if record.key is None]
    except CorruptBatchError as fault:
        return Refusal(ErrorCode(fault.error_code), str(fault))
    if missing:
        return Refusal(
            ErrorCode.INVALID_RECORD, f"Compacted topic cannot accept message without key: records {missing[:3]}"
        )
    return None


def _too_large_for_segment(header: BatchHeader, config: LogConfig) -> Refusal:
    return Refusal(
        ErrorCode.RECORD_LIST_TOO_LARGE,
        f"the batch takes {header.size_bytes} bytes, a segment at most {config.segment_bytes}",
    )


def _out_of_range(timestamp_ms: int, config: LogConfig, now_ms: int) -> Refusal:
    low = now_ms - config.message_timestamp_before_max_ms
    high = now_ms + config.message_timestamp_after_max_ms
    return Refusal(ErrorCode.INVALID_TIMESTAMP, f"Timestamp {timestamp_ms} is out of range: [{low}, {high}]")
