"""Which answers say that their request was bad, so that the log tells of it: its sender may look at no answer.

Errors that good clients meet now and then (a topic that is there already, or not yet) are not among them. Produce, and
JoinGroup where it has limits of ours, tell of theirs themselves.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from ottla.base.types import topic_id_text
from ottla.base.words import shown
from ottla.broker.ports.refusals import told
from ottla.wire.apis import API, ApiKey
from ottla.wire.errors import ErrorCode

_BAD: Final = frozenset(
    {
        ErrorCode.ILLEGAL_SASL_STATE,
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        ErrorCode.INVALID_CONFIG,
        ErrorCode.INVALID_GROUP_ID,
        ErrorCode.INVALID_PARTITIONS,
        ErrorCode.INVALID_REGULAR_EXPRESSION,
        ErrorCode.INVALID_REPLICATION_FACTOR,
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_SESSION_TIMEOUT,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.INVALID_TRANSACTION_TIMEOUT,
        ErrorCode.POLICY_VIOLATION,
        ErrorCode.UNSUPPORTED_ASSIGNOR,
    }
)

#: Where an answer tells what became of each thing, and what the name of such a thing is called. All others tell of the
#: whole request.
_EACH: Final[dict[int, tuple[str, str]]] = {
    ApiKey.ALTER_CLIENT_QUOTAS: ("entries", ""),
    ApiKey.ALTER_CONFIGS: ("responses", "resource_name"),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: ("results", "user"),
    ApiKey.CREATE_ACLS: ("results", ""),
    ApiKey.CREATE_PARTITIONS: ("results", "name"),
    ApiKey.CREATE_TOPICS: ("topics", "name"),
    ApiKey.DELETE_ACLS: ("filter_results", ""),
    ApiKey.DELETE_TOPICS: ("responses", "name"),
    ApiKey.DESCRIBE_CONFIGS: ("results", "resource_name"),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: ("responses", "resource_name"),
    ApiKey.METADATA: ("topics", "name"),
}


def bad_input(api_key: int, message: Any) -> str | None:
    """What a line says of the request that has this answer; None where it was not bad."""
    at = _EACH.get(api_key)
    if at is not None:
        return _of_each(api_key, getattr(message, at[0]), at[1])
    error = getattr(message, "error_code", 0)
    if error not in _BAD or (api_key == ApiKey.JOIN_GROUP and error == ErrorCode.INVALID_REQUEST):
        return None
    return f"{API[api_key].name}: {told(error, getattr(message, 'error_message', None))}"


def _of_each(api_key: int, each: Sequence[Any], name: str) -> str | None:
    """The first that is bad, and how many more there are."""
    if _BAD.isdisjoint({one.error_code for one in each}):
        return None
    bad = [one for one in each if one.error_code in _BAD]
    whose = f" of {shown(getattr(bad[0], name) or '')}" if name else ""
    more = f" and {len(bad) - 1:,} more" if len(bad) > 1 else ""
    message = getattr(bad[0], "error_message", None)
    return f"{API[api_key].name}{whose}{more}: {told(bad[0].error_code, message)}"


def refused_of(response: Any) -> Iterator[str]:
    """What of a produce was refused, and why: for clients that wait for no answer."""
    for topic in response.responses:
        for each in topic.partition_responses:
            if each.error_code:
                name = topic.name or topic_id_text(topic.topic_id)
                yield f"partition {each.index} of {shown(name)}: {told(each.error_code, each.error_message)}"
