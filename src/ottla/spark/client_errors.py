"""What the client raises under a sink, as an error of this room: whom it concerns, and what to do."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from ottla.client.errors import (
    AbortableTransactionError,
    BufferExhaustedError,
    ClientError,
    FatalProducerError,
    KafkaError,
    RequestTimeoutError,
)
from ottla.spark.errors import PipelineError, RowError, SinkFencedError, UnknownOutcomeError
from ottla.spark.link import GONE
from ottla.spark.options import Semantics, SinkOptions
from ottla.wire.errors import ErrorCode

#: A row is to blame: what is wrong with it.
_OF_A_ROW: Final = {
    ErrorCode.MESSAGE_TOO_LARGE: "a row is too large: raise max.message.bytes of its topic, and "
    "kafka.max.request.size, or leave such rows out",
    ErrorCode.RECORD_LIST_TOO_LARGE: "rows are too large for their topic: set kafka.batch.size below its segment.bytes",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "the topic of a row cannot be written to: its name is not allowed, or it is one "
    "of the brokers' own",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "the topic or partition of a row is not there",
}


@contextmanager
def told(options: SinkOptions, slot: int | None = None) -> Iterator[None]:
    """Raise what the client raises as a PipelineError; `slot` is that of a task."""
    try:
        yield
    except ClientError as error:
        cause: BaseException = error
        while isinstance(cause, AbortableTransactionError | FatalProducerError) and cause.__cause__ is not None:
            cause = cause.__cause__  # what these advise is for who holds the producer
        raise _in_our_words(options, slot, cause) from cause


def row_error(error: BaseException, who: str) -> RowError | None:
    """What a broker's answer to a write says of the row; None if it says nothing of it."""
    code = error.code if isinstance(error, KafkaError) else ErrorCode.NONE
    return RowError(f"{who}: {_OF_A_ROW[code]} ({error})") if code in _OF_A_ROW else None


def _in_our_words(options: SinkOptions, slot: int | None, error: BaseException) -> PipelineError:
    sink = f"sink {options.sink_id}" if options.semantics is Semantics.EXACTLY_ONCE else "the at-least-once sink"
    who = sink if slot is None else f"slot {slot} of {sink}"
    if isinstance(error, KafkaError) and error.code in GONE:
        return SinkFencedError(
            f"{who} was taken over by another query or driver that writes through this sink, or by another attempt at "
            "the task; or it took longer than kafka.transaction.timeout.ms="
            f"{options.client.get('transaction.timeout.ms')}. See who runs, and give each query a sink.id of its own; "
            f"if nobody else does, make the batch smaller, or the time-out longer, and start the query again ({error})"
        )
    of_a_row = None if slot is None else row_error(error, who)
    if of_a_row is not None:
        return of_a_row
    if isinstance(error, RequestTimeoutError | BufferExhaustedError):
        return UnknownOutcomeError(f"{who}: {error}. Start the query again: it finds out what happened")
    return PipelineError(f"{who}: {error}")
