"""Which errors are got over by aborting a batch and doing it again, and what is said about those that are not. Pure."""

from ottla.client.errors import (
    AbortableTransactionError,
    ClientError,
    CommitFailedError,
    DisconnectedError,
    FatalProducerError,
    KafkaError,
    ProducerFencedError,
    RequestTimeoutError,
)
from ottla.wire.errors import ErrorCode

#: Not retriable by themselves, but over with the transaction: its end gives the producer a new epoch, or says why not.
_OVER_WITH_THE_TRANSACTION = frozenset(
    {
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
    }
)


def passes(error: BaseException | None) -> bool:
    """Whether the same batch may well succeed once its transaction was aborted and its records are read again."""
    if isinstance(error, AbortableTransactionError):
        return passes(error.__cause__)
    if isinstance(error, KafkaError):
        return error.retriable or error.code in _OVER_WITH_THE_TRANSACTION
    return isinstance(error, CommitFailedError | RequestTimeoutError | DisconnectedError)


def has_lost_its_epoch(error: BaseException) -> bool:
    """Whether the transaction was ended by somebody else: mostly by its time-out."""
    cause = error.__cause__ if isinstance(error, AbortableTransactionError) else error
    return isinstance(cause, KafkaError) and cause.code == ErrorCode.INVALID_PRODUCER_EPOCH


def too_long(open_s: float, timeout_ms: int) -> str:
    """What is said of a transaction that was open for longer than its time-out."""
    return (
        f"its transaction was open for {open_s:.1f} s, and transaction.timeout.ms={timeout_ms} allows less, so "
        "the coordinator has aborted it: make batches smaller (max.poll.records), or allow more time"
    )


def explained(error: ClientError, transactional_id: str, open_s: float, timeout_ms: int) -> ClientError:
    """`error`; for one that has ended the producer, an error that says what to do. The batch was open for `open_s`."""
    if isinstance(error, ProducerFencedError) or isinstance(error.__cause__, ProducerFencedError):
        if open_s * 1_000 >= timeout_ms:
            why = too_long(open_s, timeout_ms)
        else:
            why = (
                f"another process has taken over transactional.id {transactional_id}, or somebody has aborted its "
                "transaction by hand: give each process a transactional_id of its own"
            )
        return ProducerFencedError(
            ErrorCode.PRODUCER_FENCED, f"this process was fenced: {why}. Nothing of its last batch was committed"
        )
    if isinstance(error, FatalProducerError):
        return FatalProducerError(
            f"{error}. Output and offsets are committed together or not at all: start again, and it goes on from there"
        )
    return error
