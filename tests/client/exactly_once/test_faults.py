"""Which errors `exactly_once` gets over by itself (SPEC T11), and what it says about those that end it."""

import pytest

from ottla.client.errors import (
    AbortableTransactionError,
    ClientError,
    CommitFailedError,
    DisconnectedError,
    FatalProducerError,
    IllegalStateError,
    KafkaError,
    ProducerFencedError,
    RecordTooLargeError,
    RequestTimeoutError,
    SerializationError,
)
from ottla.client.exactly_once.faults import explained, passes
from ottla.wire.errors import ErrorCode


def _because(kind: type[ClientError], cause: Exception) -> ClientError:
    error = kind(f"it failed: {cause}")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("cause", "does"),
    [
        (CommitFailedError("the group has rebalanced"), True),
        (RequestTimeoutError("delivery.timeout.ms"), True),
        (DisconnectedError("gone"), True),
        (KafkaError.of(ErrorCode.NOT_LEADER_OR_FOLLOWER), True),
        (KafkaError.of(ErrorCode.TRANSACTION_ABORTABLE), True),
        (KafkaError.of(ErrorCode.INVALID_PRODUCER_EPOCH), True),
        (KafkaError.of(ErrorCode.INVALID_PRODUCER_ID_MAPPING), True),
        (KafkaError.of(ErrorCode.ILLEGAL_GENERATION), True),
        (RecordTooLargeError(ErrorCode.MESSAGE_TOO_LARGE), False),
        (KafkaError.of(ErrorCode.TOPIC_AUTHORIZATION_FAILED), False),
        (KafkaError.of(ErrorCode.INVALID_RECORD), False),
        (IllegalStateError("no"), False),
        (ZeroDivisionError(), False),
    ],
)
def test_t11_what_passes(cause: Exception, *, does: bool) -> None:
    assert passes(cause) == passes(_because(AbortableTransactionError, cause)) == does
    assert not passes(_because(FatalProducerError, cause))
    assert not passes(None)


def test_t11_one_that_was_fenced_is_told_by_whom() -> None:
    fenced = ProducerFencedError(ErrorCode.PRODUCER_FENCED)
    for error in (fenced, _because(FatalProducerError, fenced)):
        other = explained(error, "tx-1", 1.0, 60_000)
        assert isinstance(other, ProducerFencedError)
        assert "another process has taken over transactional.id tx-1" in str(other)
        slow = explained(error, "tx-1", 75.0, 60_000)
        assert isinstance(slow, ProducerFencedError)
        assert "its transaction was open for 75.0 s, and transaction.timeout.ms=60000 allows less" in str(slow)


def test_t11_other_errors_keep_their_kind() -> None:
    fatal = explained(FatalProducerError("its outcome is unknown"), "tx-1", 1.0, 60_000)
    assert isinstance(fatal, FatalProducerError)
    assert "Output and offsets are committed together or not at all: start again" in str(fatal)
    for error in (SerializationError("t-0 at 5"), CommitFailedError("moved")):
        assert explained(error, "tx-1", 1.0, 60_000) is error
