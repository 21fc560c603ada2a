"""The questions to a partition's log, and its answers."""

from enum import Enum, IntEnum
from typing import Final, NamedTuple

from ottla.log.storage import Slice
from ottla.wire.errors import ErrorCode

#: The verification guard of an append that needs none, or has none (KIP-890).
NO_GUARD: Final = 0


class Origin(Enum):
    """Who appends. That decides how much is checked."""

    #: A produce request: exactly one batch, sequences checked, no control batches.
    CLIENT = "client"
    #: The broker itself (group and transaction records, metadata): epochs and verification are checked, sequences not.
    COORDINATOR = "coordinator"
    #: The leader of the metadata log's quorum, who begins its epoch with a control batch (KIP-595).
    RAFT_LEADER = "raft leader"


class Isolation(IntEnum):
    """Fetch and ListOffsets isolation, with the numbers of the wire."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class RecordError(NamedTuple):
    """Why one record of a refused batch is refused (KIP-467)."""

    #: The record's place in the batch, counted from 0.
    batch_index: int
    message: str

    def __str__(self) -> str:
        """As Apache Kafka shows it in the batch's own message."""
        return f"RecordError(batchIndex={self.batch_index}, message='{self.message}')"


class Appended(NamedTuple):
    """An append's answer: what a Produce response says about one partition."""

    #: -1 if the batch is not in the log. With an error, it is there, and the device has not taken it yet.
    base_offset: int
    last_offset: int
    #: -1 unless the topic stamps records itself (`message.timestamp.type=LogAppendTime`).
    log_append_time_ms: int
    log_start_offset: int
    #: The batch was already in the log (P3): the offsets are those of its first copy and nothing was written.
    duplicate: bool = False
    error: ErrorCode = ErrorCode.NONE
    message: str = ""
    #: The records that are at fault, where the batch is refused because of them.
    record_errors: tuple[RecordError, ...] = ()


class VerificationGuard(NamedTuple):
    """The guard of a verification (KIP-890). If `needed`, ask the coordinator first; then append with the guard."""

    guard: int
    error: ErrorCode = ErrorCode.NONE
    message: str = ""

    @property
    def needed(self) -> bool:
        """Whether the coordinator must confirm that the transaction is open and this partition in it."""
        return self.guard != NO_GUARD


class AbortedTransaction(NamedTuple):
    """An entry of a fetch response's aborted list."""

    producer_id: int
    first_offset: int


class Read(NamedTuple):
    """A read's answer: what a Fetch response says about one partition, the records as file slices."""

    error: ErrorCode
    slices: tuple[Slice, ...]
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    #: None for READ_UNCOMMITTED.
    aborted: tuple[AbortedTransaction, ...] | None = None
    #: There are more records in a later segment: a read ends where its segment does.
    has_more: bool = False

    @property
    def size_bytes(self) -> int:
        """Bytes in all slices; most reads have one."""
        slices = self.slices
        if len(slices) == 1:
            return slices[0].length_bytes
        return sum(piece.length_bytes for piece in slices) if slices else 0


class TimestampOffset(NamedTuple):
    """Where a timestamp was found; the leader epoch is -1 when it is not known."""

    timestamp_ms: int
    offset: int
    leader_epoch: int = -1


class Deleted(NamedTuple):
    """DeleteRecords' answer: the log start offset afterwards (`low_watermark`)."""

    error: ErrorCode
    low_watermark: int


class EpochEndOffset(NamedTuple):
    """OffsetForLeaderEpoch's answer; (-1, -1) when the epoch is not known."""

    leader_epoch: int
    end_offset: int


class ActiveProducer(NamedTuple):
    """One producer as DescribeProducers shows it; -1 where there is nothing."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    transaction_start_offset: int
