"""What poll raises when the coordinator of a classic group refuses this member for good: what to do about it.

JoinGroup and SyncGroup are answered with a code and without a word, so the causes are named here.
"""

from collections.abc import Mapping
from typing import Final

from ottla.client.core.consumer.group.advice import COMMON
from ottla.client.core.consumer.shared import Shared
from ottla.client.errors import KafkaError
from ottla.wire.errors import ErrorCode

_E = ErrorCode
#: What the user can do.
_ADVICE: Final[Mapping[ErrorCode, str]] = {
    **COMMON,
    _E.INCONSISTENT_GROUP_PROTOCOL: "its members are not consumers, or have none of this consumer's assignors "
    "({assignors}): set partition.assignment.strategy to one that all of them have, or choose another group.id; "
    "`ottla groups describe {group}` shows who they are",
    _E.INVALID_SESSION_TIMEOUT: "session.timeout.ms is {session} and has to lie between "
    "group.min.session.timeout.ms and group.max.session.timeout.ms of the brokers: set another one",
    _E.UNKNOWN_SERVER_ERROR: "the coordinator could not carry it out, and its log says why. One cause is an assignment "
    "of the whole group that is larger than its message.max.bytes: have fewer members and partitions, or less user "
    "data of the assignor",
    _E.GROUP_MAX_SIZE_REACHED: "the group is full: stop a member, or raise group.max.size of the brokers",
}


def refusal(code: ErrorCode, shared: Shared) -> KafkaError:
    """The error for an answer, and what to do."""
    advice = _ADVICE.get(code)
    said = f"group {shared.group_id}"
    if advice is not None:
        assignors = ", ".join(assignor.name for assignor in shared.assignors)
        session = shared.config.session_timeout_ms
        said = f"{said}: {advice.format(assignors=assignors, group=shared.group_id, session=session)}"
    return KafkaError.of(code, said)
