"""What each answer means: `MEANING` is the one table, call and error code to what comes next (SPEC G3–G12, C5).

An error that is not in it is retriable as Kafka says it is for the calls that look for positions, and final for all
others. Final means: poll raises it.
"""

from collections.abc import Mapping
from enum import Enum

from ottla.client.core.consumer.era import Call
from ottla.wire.errors import ErrorCode


class Next(Enum):
    """What to do."""

    #: The same again, after a pause.
    RETRY = "retry"
    #: The same again, of the coordinator's new place.
    FIND_COORDINATOR = "find the coordinator"
    #: The same again, when metadata says who leads the partition.
    FIND_LEADER = "find the leader"
    #: JoinGroup again, with the member id that was given.
    TAKE_ID = "take the member id"
    #: Join again, as the same member.
    REJOIN = "rejoin"
    #: The group has dropped this member: what it had is lost, and it joins as a new one.
    START_OVER = "start over"
    #: The position is not in the log: `auto.offset.reset` says where to go on.
    RESET = "reset the position"
    #: The fetch session is gone: begin another one, at once.
    NEW_SESSION = "begin a new session"
    FAIL = "fail"


_E, _N = ErrorCode, Next
_MOVED = {
    _E.NOT_COORDINATOR: _N.FIND_COORDINATOR,
    _E.COORDINATOR_NOT_AVAILABLE: _N.FIND_COORDINATOR,
    _E.COORDINATOR_LOAD_IN_PROGRESS: _N.RETRY,
}
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
    Call.JOIN: _MOVED | _DROPPED | {_E.MEMBER_ID_REQUIRED: _N.TAKE_ID, _E.REBALANCE_IN_PROGRESS: _N.RETRY},
    # whatever it is, what follows is another JoinGroup: the group may have gone on meanwhile
    Call.SYNC: _MOVED | _DROPPED | {_E.REBALANCE_IN_PROGRESS: _N.REJOIN},
    Call.HEARTBEAT: _MOVED | _DROPPED | {_E.REBALANCE_IN_PROGRESS: _N.REJOIN},
    Call.COMMIT: _MOVED
    | _DROPPED
    | {
        _E.REBALANCE_IN_PROGRESS: _N.REJOIN,
        _E.UNSTABLE_OFFSET_COMMIT: _N.RETRY,
        _E.UNKNOWN_TOPIC_OR_PARTITION: _N.RETRY,
        _E.REQUEST_TIMED_OUT: _N.RETRY,
    },
    Call.COMMITTED: _MOVED | {_E.UNSTABLE_OFFSET_COMMIT: _N.RETRY},
    Call.LIST: _LED_ELSEWHERE,
    Call.EPOCH_END: _LED_ELSEWHERE,
    Call.FETCH: _LED_ELSEWHERE
    | {
        _E.OFFSET_OUT_OF_RANGE: _N.RESET,
        _E.FETCH_SESSION_ID_NOT_FOUND: _N.NEW_SESSION,
        _E.INVALID_FETCH_SESSION_EPOCH: _N.NEW_SESSION,
    },
}
INTRODUCTION = (
    "The table is `MEANING` in `client/core/consumer/answers.py`; codes that it does not name mean *retry* where Kafka "
    "calls them retriable and the call is one of OffsetCommit, OffsetFetch, ListOffsets and OffsetForLeaderEpoch, and "
    "*fail* everywhere else. An answer to a request of another era means nothing (`client/core/consumer/era.py`)."
)
#: Calls for which Kafka's own judgement counts where the table says nothing.
_RETRIED = frozenset({Call.COMMIT, Call.COMMITTED, Call.LIST, Call.EPOCH_END})


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
