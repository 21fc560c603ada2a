"""What an answer to the consumer means: `MEANING` is the one table, by call and error code (SPEC G3–G12, C5).

`meaning_of` also says what a code means that the table does not name. For calls that fetch records, commit
offsets or look them up, it is retriable if Kafka says so. For all other calls it is final: poll raises it.
"""

from collections.abc import Mapping
from enum import Enum

from ottla.client.core.consumer.era import Call
from ottla.client.core.intents import COORDINATOR_MOVED
from ottla.wire.errors import ErrorCode


class Next(Enum):
    """What to do next."""

    #: Send the same request again, after a pause.
    RETRY = "retry"
    #: Find the coordinator again, then send the same request to it.
    FIND_COORDINATOR = "find the coordinator"
    #: Ask for metadata to find the partition's leader, then send the same request to it.
    FIND_LEADER = "find the leader"
    #: Send JoinGroup again, with the member id from the answer (KIP-394).
    TAKE_ID = "take the member id"
    #: Join again, as the same member of the group.
    REJOIN = "rejoin"
    #: The member's epoch is out of date: learn the new one by a heartbeat, then send the same request with it.
    LEARN_EPOCH = "learn the epoch"
    #: The group goes on without this member. Its partitions are lost, and it joins again.
    START_OVER = "start over"
    #: The position is not in the log. `auto.offset.reset` says where to go on.
    RESET = "reset the position"
    #: The broker does not know the fetch session: begin a new one, at once.
    NEW_SESSION = "begin a new session"
    #: poll raises the error. The member stays in the group, and sends the same request again after a pause.
    COMPLAIN = "complain"
    #: The error is final.
    FAIL = "fail"


_E, _N = ErrorCode, Next
#: What any request to a coordinator may be answered.
_OF_COORDINATORS = dict.fromkeys(COORDINATOR_MOVED, _N.FIND_COORDINATOR) | {_E.COORDINATOR_LOAD_IN_PROGRESS: _N.RETRY}
_DROPPED = {_E.UNKNOWN_MEMBER_ID: _N.START_OVER, _E.ILLEGAL_GENERATION: _N.START_OVER}
_LED_ELSEWHERE = dict.fromkeys(
    (
        _E.NOT_LEADER_OR_FOLLOWER,
        _E.REPLICA_NOT_AVAILABLE,
        _E.KAFKA_STORAGE_ERROR,
        _E.FENCED_LEADER_EPOCH,
        _E.UNKNOWN_LEADER_EPOCH,
        _E.OFFSET_NOT_AVAILABLE,
        _E.UNKNOWN_TOPIC_OR_PARTITION,
        _E.UNKNOWN_TOPIC_ID,
        _E.INCONSISTENT_TOPIC_ID,
        _E.LEADER_NOT_AVAILABLE,
    ),
    _N.FIND_LEADER,
)
MEANING: Mapping[Call, Mapping[ErrorCode, Next]] = {
    Call.JOIN: _OF_COORDINATORS | _DROPPED | {_E.MEMBER_ID_REQUIRED: _N.TAKE_ID, _E.REBALANCE_IN_PROGRESS: _N.RETRY},
    # also after *retry* JoinGroup follows, not SyncGroup: the group may have gone on meanwhile
    Call.SYNC: _OF_COORDINATORS | _DROPPED | {_E.REBALANCE_IN_PROGRESS: _N.REJOIN},
    Call.HEARTBEAT: _OF_COORDINATORS | _DROPPED | {_E.REBALANCE_IN_PROGRESS: _N.REJOIN},
    Call.CONSUMER_HEARTBEAT: _OF_COORDINATORS
    | {
        _E.UNKNOWN_MEMBER_ID: _N.START_OVER,
        _E.FENCED_MEMBER_EPOCH: _N.START_OVER,
        # somebody may allow it later; Apache Kafka's clients stay, too
        _E.TOPIC_AUTHORIZATION_FAILED: _N.COMPLAIN,
    },
    Call.COMMIT: _OF_COORDINATORS
    | _DROPPED
    | {
        _E.REBALANCE_IN_PROGRESS: _N.REJOIN,
        _E.STALE_MEMBER_EPOCH: _N.LEARN_EPOCH,
        _E.UNSTABLE_OFFSET_COMMIT: _N.RETRY,
        _E.UNKNOWN_TOPIC_OR_PARTITION: _N.RETRY,
        _E.REQUEST_TIMED_OUT: _N.RETRY,
    },
    Call.COMMITTED: _OF_COORDINATORS
    | {
        _E.UNSTABLE_OFFSET_COMMIT: _N.RETRY,
        # only in the consumer protocol: the next heartbeat brings the new epoch, or says that the partitions are lost
        _E.STALE_MEMBER_EPOCH: _N.RETRY,
        _E.UNKNOWN_MEMBER_ID: _N.RETRY,
    },
    Call.LIST: _LED_ELSEWHERE,
    Call.EPOCH_END: _LED_ELSEWHERE,
    Call.FETCH: _LED_ELSEWHERE
    | {
        _E.OFFSET_OUT_OF_RANGE: _N.RESET,
        _E.FETCH_SESSION_ID_NOT_FOUND: _N.NEW_SESSION,
        _E.INVALID_FETCH_SESSION_EPOCH: _N.NEW_SESSION,
        # Kafka calls it retriable, but what is damaged stays damaged
        _E.CORRUPT_MESSAGE: _N.FAIL,
    },
}
INTRODUCTION = (
    "The consumer's table (`MEANING` in `client/core/consumer/answers.py`, which also explains the words in its "
    "cells). A row is an error code. A column is the request that was answered so. A cell is what the consumer does "
    "then; *fail* means that poll raises the error, or the call that commits. An error code without a row means "
    "*retry* if Kafka calls it retriable and the request is OffsetCommit, OffsetFetch, ListOffsets, "
    "OffsetForLeaderEpoch or Fetch; otherwise it means *fail*. An answer to a request of an older era changes "
    "nothing (`client/core/consumer/era.py`)."
)
#: For a code that the table does not name, these calls follow what Kafka says: retriable, or not.
_RETRIED = frozenset({Call.COMMIT, Call.COMMITTED, Call.LIST, Call.EPOCH_END, Call.FETCH})


def meaning_of(call: Call, code: ErrorCode) -> Next:
    """What `code` means as the answer to `call`."""
    known = MEANING[call].get(code)
    if known is not None:
        return known
    return Next.RETRY if call in _RETRIED and code.retriable else Next.FAIL


def table() -> str:
    """The table as Markdown, for docs/automata.md."""
    calls = list(MEANING)
    codes = [code for code in ErrorCode if any(code in MEANING[call] for call in calls)]
    rows = [f"| | {' | '.join(call.value for call in calls)} |", "|---" * (len(calls) + 1) + "|"]
    rows += [f"| {code.name} | {' | '.join(meaning_of(call, code).value for call in calls)} |" for code in codes]
    return "\n".join(rows)
