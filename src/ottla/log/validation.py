"""Checks a client's batch before it is appended: all checks of Kafka's LogValidator that need only the batch's header.

The batch is opened only for a compacted topic, because each record must have a key there, and where the header's
timestamps are out of range (`record_checks`). A lower bound on timestamps is compared with the batch's first record
otherwise. A refused batch is the client's fault, and nothing has changed.
"""

from typing import Final

from ottla.base.limits import MAX_RECORD_ERRORS
from ottla.base.types import TopicPartition
from ottla.log.config import LogConfig, TimestampType
from ottla.log.producers import Refusal
from ottla.log.record_checks import Looked, check_records, stamped_by_producer
from ottla.log.storage import Buffer
from ottla.wire.batch import (
    CONTROL_FLAG,
    TIMESTAMP_TYPE_FLAG,
    BatchHeader,
    check_integrity,
    parse_header,
    validate,
)
from ottla.wire.batch_errors import BatchTooLargeError, CorruptBatchError
from ottla.wire.errors import ErrorCode

_NOT_FOR_PRODUCERS: Final = CONTROL_FLAG | TIMESTAMP_TYPE_FLAG


def look_at(
    records: Buffer, config: LogConfig, tp: TopicPartition, now_ms: int, max_named: int = MAX_RECORD_ERRORS
) -> Looked | None:
    """Look at a client's batch record by record, before it is appended and perhaps in another thread.

    None when the header says all, or that the batch is refused; what is wrong with it then, `check_client_batch` says.
    """
    try:
        header = parse_header(records)
    except CorruptBatchError:
        return None
    if not _is_whole(records, header, config):
        return None
    if not needs_look(header, config, now_ms):
        return None
    if header.attributes & TIMESTAMP_TYPE_FLAG:
        return Looked(config, stamped_by_producer(records, header, config, max_named))
    return Looked(config, check_records(records, header, config, tp, now_ms, max_named))


def needs_look(header: BatchHeader, config: LogConfig, now_ms: int) -> bool:
    """Whether the header cannot tell if, or why, the batch is refused."""
    if header.attributes & _NOT_FOR_PRODUCERS:
        return not header.is_control
    return config.compacts or not _has_timestamps_in_range(header, config, now_ms)


def _is_whole(records: Buffer, header: BatchHeader, config: LogConfig) -> bool:
    """Whether this is one undamaged batch of a size that the topic takes."""
    try:
        validate(records, 0, header, config.max_message_bytes)
    except CorruptBatchError:
        return False
    return len(records) == header.size_bytes


def check_client_batch(
    records: Buffer,
    header: BatchHeader,
    config: LogConfig,
    tp: TopicPartition,
    now_ms: int,
    looked: Looked | None = None,
    max_named: int = MAX_RECORD_ERRORS,
) -> Refusal | None:
    """Why a produced batch is refused, or None. `looked` is what `look_at` has found, perhaps with other settings."""
    if looked is not None and looked.config is not config:
        looked = None
    try:
        validate(records, 0, header, config.max_message_bytes)
    except CorruptBatchError as fault:
        return Refusal(ErrorCode(fault.error_code), str(fault))
    size_bytes = header.size_bytes
    if size_bytes > config.segment_bytes:
        return _too_large_for_segment(header, config)
    if len(records) != size_bytes:
        return Refusal(ErrorCode.INVALID_RECORD, "a produce request holds exactly one record batch per partition")
    if header.base_offset != 0:
        return Refusal(ErrorCode.INVALID_RECORD, f"the base offset of a produced batch is 0, not {header.base_offset}")
    if header.attributes & _NOT_FOR_PRODUCERS:
        if header.is_control:
            return Refusal(ErrorCode.INVALID_RECORD, "clients are not allowed to write control records")
        stamped = None if looked is None else looked.refusal
        return stamped or stamped_by_producer(records, header, config, max_named)
    refusal = None
    if looked is not None:
        refusal = looked.refusal
    elif needs_look(header, config, now_ms):
        refusal = check_records(records, header, config, tp, now_ms, max_named)
    is_late = header.max_timestamp_ms - now_ms > config.message_timestamp_after_max_ms
    if refusal is None and is_late and not _has_timestamps_in_range(header, config, now_ms):
        # No record is at fault: the header lies. Retention and the time index would believe it.
        return Refusal(ErrorCode.INVALID_TIMESTAMP, f"the batch's newest timestamp {header.max_timestamp_ms} is none")
    return refusal


def _has_timestamps_in_range(header: BatchHeader, config: LogConfig, now_ms: int) -> bool:
    """Whether the header shows that no record is too young, nor the first one too old."""
    if config.message_timestamp_type is not TimestampType.CREATE_TIME or header.max_timestamp_ms == -1:
        return True
    return (
        header.max_timestamp_ms - now_ms <= config.message_timestamp_after_max_ms
        and now_ms - header.base_timestamp_ms <= config.message_timestamp_before_max_ms
    )


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


def _too_large_for_segment(header: BatchHeader, config: LogConfig) -> Refusal:
    return Refusal(
        ErrorCode.RECORD_LIST_TOO_LARGE,
        f"the batch takes {header.size_bytes} bytes, a segment at most {config.segment_bytes}",
    )
