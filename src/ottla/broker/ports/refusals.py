"""Lines about requests that are answered, but whose contents no good client sends."""

import logging
from typing import Final, Protocol

from ottla.base.clock import Clock
from ottla.base.words import one_line, shown
from ottla.broker.quiet import Quiet
from ottla.wire.errors import ErrorCode

_log = logging.getLogger(__name__)

#: Errors of what is in a batch, or of how it was sent.
BAD_BATCH: Final = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_REQUIRED_ACKS,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    }
)
#: What an error's name, and what is told of it, do not say: what to do.
_ADVICE: Final = {
    ErrorCode.CORRUPT_MESSAGE: "the client, or what lies in between, has damaged it",
    ErrorCode.MESSAGE_TOO_LARGE: "see max.message.bytes of the topic, and batch.size of the client",
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: "clients write magic 2 since Kafka 0.11",
    ErrorCode.INVALID_TIMESTAMP: "see message.timestamp.after.max.ms of the topic, and the client's clock",
}
#: And where nothing else is told of it.
_UNTOLD: Final = {
    ErrorCode.INVALID_GROUP_ID: "group.id of the client may not be empty",
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: "all members need one partition.assignment.strategy in common",
    ErrorCode.INVALID_SESSION_TIMEOUT: (
        "session.timeout.ms of the client has to lie between group.min.session.timeout.ms and "
        "group.max.session.timeout.ms of the broker"
    ),
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: (
        "transaction.timeout.ms of the client has to lie between 1 and transaction.max.timeout.ms of the broker"
    ),
    ErrorCode.INVALID_REGULAR_EXPRESSION: "patterns are RE2's, and may not cost too much",
    ErrorCode.INVALID_TOPIC_EXCEPTION: (
        "the name of a topic has at most 249 letters, digits, dots, underscores and hyphens"
    ),
    ErrorCode.ILLEGAL_SASL_STATE: "this listener does not ask who a client is (security.protocol of the client?)",
}


def told(error: int, message: str | None) -> str:
    """An error in a line: its name, what the client is told, and what to do."""
    code = ErrorCode(error)
    advice = _ADVICE.get(code) or (None if message else _UNTOLD.get(code))
    return code.name + (f", {message}" if message else "") + (f"; {advice}" if advice else "")


class Refusals:
    """Names who sent it; at most one line in a while for each address."""

    def __init__(self, clock: Clock) -> None:
        self._quiet = Quiet(clock)

    def tell(self, client_host: str, client_id: str, what: str) -> None:
        """`what` was refused."""
        more = self._quiet.turn(client_host)
        if more is not None:
            who = f"{client_host} (client id {shown(client_id)})"
            _log.warning("refusing a request of %s: %s%s", who, one_line(what), more)


class HasRefusals(Protocol):
    """Needs to say what was refused."""

    @property
    def refusals(self) -> Refusals: ...
