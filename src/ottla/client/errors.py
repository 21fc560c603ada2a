"""The exceptions of the clients.

    OttlaError
    └── ClientError
        ├── KafkaError(code)              an error in a broker's answer; `.code`, `.retriable`; with subclasses:
        │   ├── UnknownTopicOrPartitionError, TopicAlreadyExistsError, RecordTooLargeError, GroupAuthorizationError …
        │   ├── OffsetOutOfRangeError
        │   ├── CorruptRecordsError       records that cannot be read; names partition and offset
        │   ├── FencedInstanceIdError     another member took over this `group.instance.id`
        │   ├── UnreleasedInstanceIdError, UnsupportedAssignorError, GroupMaxSizeReachedError,
        │   │   InvalidRegularExpressionError   the coordinator refuses the member (`group.protocol=consumer`)
        │   └── ProducerFencedError       another producer took over this `transactional.id` (fatal)
        ├── AuthenticationError           broker and client could not prove to each other who they are; never retried
        │   ├── SslAuthenticationError    the TLS handshake failed: the certificate of one side, or a side without TLS
        │   └── SaslAuthenticationError   the broker refuses user, password, token or mechanism, or is not the right one
        ├── FatalProducerError            the producer cannot be used any more; `__cause__` says why
        ├── AbortableTransactionError     this transaction can only be aborted; `__cause__` says why
        ├── CommitFailedError             the group has rebalanced: another member may own the partitions now
        ├── AssignorError                 an assignor raised, or returned a wrong assignment; `__cause__` says what
        ├── MaxPollIntervalExceededError  poll() came too late, the consumer had left its group
        ├── NotHangingError               a transaction that was to be ended by hand does not hang
        ├── NoOffsetForPartitionError     no committed offset, and `auto.offset.reset` is none
        ├── LogTruncatedError             the log no longer holds records that were read before
        ├── SerializationError            a serializer or deserializer failed; names topic, partition and offset
        ├── RequestTimeoutError           no answer came in time (also a TimeoutError)
        ├── DisconnectedError             the connection broke, or no broker could be reached (also a ConnectionError)
        ├── IncompleteAnswerError         a broker's answer leaves out something that it was asked about
        ├── UnsupportedVersionError       broker and client have no version of a request in common
        ├── BufferExhaustedError          `buffer.memory` stayed full for `max.block.ms` (also a TimeoutError)
        ├── InternalError                 a fault in the client's own code has ended it; `__cause__` says which
        └── IllegalStateError             a call that the object's state does not allow; the message says what to do

`retriable` tells whether the same call may succeed later without any change.
"""

from typing import ClassVar

from ottla.base.errors import OttlaError
from ottla.base.types import TopicPartition
from ottla.wire.errors import ErrorCode


def code_of(code: int) -> ErrorCode:
    """The error code as an ErrorCode; UNKNOWN_SERVER_ERROR for a code that only newer brokers have."""
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


class ClientError(OttlaError):
    """Any error that a client raises."""

    retriable: bool = False


class KafkaError(ClientError):
    """An error in a broker's answer. `code` is Kafka's error code; `retriable` says what Kafka says about that code."""

    _by_code: ClassVar[dict[int, type["KafkaError"]]] = {}
    #: The codes for which this class is raised.
    codes: ClassVar[tuple[ErrorCode, ...]] = ()

    def __init__(self, code: int, message: str | None = None) -> None:
        self.code = code_of(code)
        self.retriable = self.code.retriable
        name = self.code.name if self.code == code else f"error code {code}"
        super().__init__(f"{name}: {message}" if message else name)

    def __init_subclass__(cls) -> None:
        for code in cls.codes:
            KafkaError._by_code[code] = cls

    @staticmethod
    def of(code: int, message: str | None = None) -> "KafkaError":
        """The most specific error of `code`."""
        return KafkaError._by_code.get(code, KafkaError)(code, message)


class UnknownTopicOrPartitionError(KafkaError):
    """The broker does not know the topic or partition, perhaps not yet."""

    codes = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


class TopicAlreadyExistsError(KafkaError):
    """A topic with this name exists already."""

    codes = (ErrorCode.TOPIC_ALREADY_EXISTS,)


class RecordTooLargeError(KafkaError):
    """A record is larger than producer, topic or broker allow."""

    codes = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)


class OffsetOutOfRangeError(KafkaError):
    """The position is not in the log, and `auto.offset.reset` is none."""

    codes = (ErrorCode.OFFSET_OUT_OF_RANGE,)


class CorruptRecordsError(KafkaError):
    """The broker or this client has found damaged records. The good records before them were returned.

    The position stays at `offset`, the first that cannot be read, and poll raises again until the user seeks.
    """

    def __init__(self, partition: TopicPartition, offset: int, reason: str) -> None:
        self.partition = partition
        self.offset = offset
        super().__init__(
            ErrorCode.CORRUPT_MESSAGE,
            f"{partition}: what follows from offset {offset} on is damaged ({reason}); seek() behind it to go on",
        )
        self.retriable = False


class FencedInstanceIdError(KafkaError):
    """Another consumer uses the same `group.instance.id`; this one has to stop."""

    codes = (ErrorCode.FENCED_INSTANCE_ID,)


class UnreleasedInstanceIdError(KafkaError):
    """Another member of the group uses this `group.instance.id`, and is still there (`group.protocol=consumer`)."""

    codes = (ErrorCode.UNRELEASED_INSTANCE_ID,)


class UnsupportedAssignorError(KafkaError):
    """The brokers do not have the assignor of `group.remote.assignor`."""

    codes = (ErrorCode.UNSUPPORTED_ASSIGNOR,)


class GroupMaxSizeReachedError(KafkaError):
    """The group has as many members as the brokers allow."""

    codes = (ErrorCode.GROUP_MAX_SIZE_REACHED,)


class InvalidRegularExpressionError(KafkaError):
    """The broker cannot compile a pattern, for example that of a `SubscriptionPattern`."""

    codes = (ErrorCode.INVALID_REGULAR_EXPRESSION,)


class ProducerFencedError(KafkaError):
    """A newer producer with the same `transactional.id` has taken over; this one can write nothing more."""

    codes = (ErrorCode.PRODUCER_FENCED,)


class RebalanceInProgressError(KafkaError):
    """The group is being rebalanced: poll() first, then commit what is still owned."""

    codes = (ErrorCode.REBALANCE_IN_PROGRESS,)


class InvalidTxnStateError(KafkaError):
    """The coordinator's transaction is in another state than this call needs."""

    codes = (ErrorCode.INVALID_TXN_STATE,)


class AuthorizationError(KafkaError):
    """The broker does not allow it."""

    codes = (
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    )


class AuthenticationError(ClientError):
    """Broker and client could not prove to each other who they are. The client does not try again by itself."""


class SslAuthenticationError(AuthenticationError):
    """The TLS handshake failed: a certificate that cannot be trusted, or one side that does not speak TLS."""


class SaslAuthenticationError(AuthenticationError):
    """The broker refuses user, password, token or mechanism; or it could not prove that it knows the password."""


class FatalProducerError(ClientError):
    """The producer cannot go on: close it and make a new one. `__cause__` is what happened."""


class AbortableTransactionError(ClientError):
    """The transaction cannot be committed: call abort_transaction(). `__cause__` is what happened."""


class CommitFailedError(ClientError):
    """The offsets were not committed, because the group has rebalanced and this member no longer belongs to it.

    Or it never did: it does not subscribe, and the group has members.
    """


class AssignorError(ClientError):
    """An assignor of `partition.assignment.strategy` raised, or returned what is no assignment.

    `__cause__` is what it raised, or an `ottla.assign.InvalidAssignmentError`, whose `wrong` and `partitions` say what
    is wrong with its answer.

    The consumer has left its group, so that the others go on without it; the next poll joins again.
    """


class MaxPollIntervalExceededError(ClientError):
    """poll() was not called within `max.poll.interval.ms`, so the consumer left its group; the next poll rejoins."""

    def __init__(self, took_ms: int, allowed_ms: int) -> None:
        self.took_ms = took_ms
        self.allowed_ms = allowed_ms
        super().__init__(
            f"{took_ms} ms passed between two calls of poll(), max.poll.interval.ms allows {allowed_ms}: the consumer "
            "has left its group. Process faster, lower max.poll.records, or raise max.poll.interval.ms"
        )


class NotHangingError(ClientError):
    """There is no such hanging transaction: it has ended, has another epoch, or its coordinator will end it."""


class NoOffsetForPartitionError(ClientError):
    """There is neither a committed offset nor a policy that says where to start."""


class LogTruncatedError(ClientError):
    """The leader's log ends before the position: records that were read have been lost."""


class SerializationError(ClientError):
    """A serializer or deserializer failed; the message names the topic, and the partition and offset of a record.

    For a record that was read, `partition` and `offset` say where it is. The consumer's position stays there;
    `seek(e.partition, e.offset + 1)` passes it. For a record to be sent they are None and -1.
    """

    def __init__(self, message: str, *, partition: TopicPartition | None = None, offset: int = -1) -> None:
        self.partition = partition
        self.offset = offset
        super().__init__(message)


class RequestTimeoutError(ClientError, TimeoutError):
    """No answer, or no success, within the time allowed."""

    retriable = True


class DisconnectedError(ClientError, ConnectionError):
    """The connection broke before the answer came, or no broker could be reached."""

    retriable = True


class IncompleteAnswerError(ClientError):
    """A broker's answer leaves out something that it was asked about."""

    retriable = True


class UnsupportedVersionError(ClientError):
    """Broker and client have no version of this request in common."""


class BufferExhaustedError(ClientError, TimeoutError):
    """`buffer.memory` was full of unsent records for `max.block.ms`."""

    retriable = True


class InternalError(ClientError):
    """A fault in the client's own code has ended it: close it and make a new one. `__cause__` is the fault."""


class IllegalStateError(ClientError):
    """The object's state does not allow this call."""


def raise_for(code: int, message: str | None = None) -> None:
    """Raise KafkaError.of(code) unless `code` is NONE."""
    if code != ErrorCode.NONE:
        raise KafkaError.of(code, message)
