"""What poll raises when the coordinator refuses a heartbeat of the consumer protocol for good: what to do about it."""

from ottla.client.core.consumer.group.advice import COMMON
from ottla.client.core.consumer.shared import Shared
from ottla.client.errors import ClientError, KafkaError, UnsupportedVersionError
from ottla.wire.errors import ErrorCode

_E = ErrorCode
_CLASSIC = "set group.protocol=classic, or use brokers of Kafka 4.0 or newer"
#: What the user can do.
_ADVICE = {
    **COMMON,
    _E.UNRELEASED_INSTANCE_ID: "another member uses this group.instance.id: close it, or wait until its session is "
    "over; each poll() tries again",
    _E.UNSUPPORTED_ASSIGNOR: "the brokers do not have the assignor {assignor!r}: set group.remote.assignor to one of "
    "their group.consumer.assignors (uniform and range, unless they were set), or leave it out",
    _E.GROUP_MAX_SIZE_REACHED: "the group is full: stop a member, or raise group.consumer.max.size of the brokers",
    _E.TOPIC_AUTHORIZATION_FAILED: "this client may not see a topic that it subscribes to: ask for DESCRIBE on it; "
    "the consumer stays in the group",
    _E.INVALID_REGULAR_EXPRESSION: "the broker cannot compile the SubscriptionPattern {pattern!r}: its syntax is RE2's",
    _E.UNSUPPORTED_VERSION: f"the brokers do not offer the consumer protocol: {_CLASSIC}",
    _E.GROUP_ID_NOT_FOUND: "the group speaks another protocol and cannot change now. If its members are consumers, "
    "stop them first, or set group.consumer.migration.policy of the brokers to upgrade or bidirectional; if they are "
    "not, choose another group.id",
    _E.INVALID_REQUEST: "the coordinator does not accept this member's heartbeat",
}


def refusal(code: ErrorCode, message: str | None, shared: Shared) -> ClientError:
    """The error for an answer: what the broker has said, and what to do."""
    parts = [f"group {shared.group_id}"]
    if message:
        parts.append(message.rstrip("."))
    advice = _ADVICE.get(code)
    if advice is not None:
        pattern = shared.subscription.broker_pattern
        parts.append(advice.format(assignor=shared.config.group_remote_assignor, pattern=pattern))
    said = ": ".join(parts)
    return UnsupportedVersionError(said) if code is _E.UNSUPPORTED_VERSION else KafkaError.of(code, said)


def explained(error: ClientError) -> ClientError:
    """The error for a heartbeat that could not be sent."""
    if not isinstance(error, UnsupportedVersionError):
        return error
    more = UnsupportedVersionError(f"{error}; for group.protocol=consumer {_CLASSIC}")
    more.__cause__ = error
    return more
