"""Whether a batch is appended: decided before anything is written, and without a change of anything."""

from typing import Protocol

from ottla.base.require import require
from ottla.base.types import TopicPartition
from ottla.log.config import LogConfig
from ottla.log.producers import ProducerState, Refusal
from ottla.log.record_checks import Looked
from ottla.log.results import Appended, Origin
from ottla.log.storage import Buffer
from ottla.log.validation import check_client_batch, check_own_batch
from ottla.wire.batch import BatchHeader, parse_header
from ottla.wire.batch_errors import CorruptBatchError
from ottla.wire.errors import ErrorCode


class _Log(Protocol):
    """What is known of the log here."""

    tp: TopicPartition
    config: LogConfig
    producers: ProducerState
    log_start_offset: int


def decide(
    log: _Log,
    records: Buffer,
    now_ms: int,
    origin: Origin,
    verification_guard: int,
    looked: Looked | None,
    max_named: int,
) -> BatchHeader | Appended:
    """The header of a batch that may be appended; or what is answered where it is refused, or there already.

    See `PartitionLog.append` for what it takes.
    """
    start_offset = log.log_start_offset
    if not records:
        return refused(start_offset, Refusal(ErrorCode.INVALID_RECORD, "there is no record batch"))
    try:
        header = parse_header(records)
    except CorruptBatchError as fault:
        return refused(start_offset, Refusal(ErrorCode(fault.error_code), str(fault)))
    config = log.config
    refusal: Refusal | None
    if origin is Origin.CLIENT:
        refusal = check_client_batch(records, header, config, log.tp, now_ms, looked, max_named)
    else:
        require(not header.is_control or origin is Origin.RAFT_LEADER, "append_control writes markers")
        refusal = check_own_batch(records, header, config)
    if refusal is not None:
        return refused(start_offset, refusal)
    if header.producer_id >= 0:
        if origin is Origin.CLIENT:
            known = log.producers.find_duplicate(header)
            if known is not None:
                appended_ms = known.timestamp_ms if config.stamps else -1
                return Appended(known.first_offset, known.last_offset, appended_ms, start_offset, True)
        refusal = log.producers.check_batch(header, origin, verification_guard, verify=config.transaction_verification)
        if refusal is not None:
            return refused(start_offset, refusal)
    return header


def refused(log_start_offset: int, refusal: Refusal) -> Appended:
    """The answer to a batch or marker that is not appended."""
    return Appended(-1, -1, -1, log_start_offset, False, *refusal)
