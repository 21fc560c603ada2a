"""A member of a classic group: its id and generation, and what each answer of the coordinator means (SPEC G3–G12).

Pure: the shell (`consumer.membership`) sends and waits. `MEANING` says for every request and error what comes next; an
error that is not in it is final and reaches the user.
"""

from collections.abc import Iterator, Mapping
from enum import Enum
from itertools import repeat

from ottla.client.core.offsets import ConsumerGroupMetadata
from ottla.wire.errors import ErrorCode

NO_GENERATION = -1
NO_MEMBER_ID = ""
_FIRST_HEARTBEAT_MS = 50


class MemberState(Enum):
    """Where a member stands."""

    #: Not in the group, or not since the last rebalance began.
    UNJOINED = "unjoined"
    #: JoinGroup was sent, or is about to be.
    JOINING = "joining"
    #: It has a generation and waits for its assignment.
    SYNCING = "syncing"
    STABLE = "stable"


class Call(Enum):
    """Which request was answered."""

    JOIN = "JoinGroup"
    SYNC = "SyncGroup"
    HEARTBEAT = "Heartbeat"
    COMMIT = "OffsetCommit"


class Next(Enum):
    """What to do."""

    #: The same again, after a pause.
    RETRY = "retry"
    #: The same again, of the coordinator's new place.
    FIND_COORDINATOR = "find coordinator"
    #: Join again, as the same member.
    REJOIN = "rejoin"
    #: The group has dropped this member: what it had is lost, and it joins as a new one.
    START_OVER = "start over"
    FAIL = "fail"


_E, _N = ErrorCode, Next
_MOVED = {
    _E.NOT_COORDINATOR: _N.FIND_COORDINATOR,
    _E.COORDINATOR_NOT_AVAILABLE: _N.FIND_COORDINATOR,
    _E.COORDINATOR_LOAD_IN_PROGRESS: _N.RETRY,
}
MEANING: Mapping[Call, Mapping[ErrorCode, Next]] = {
    Call.JOIN: _MOVED
    | {
        _E.MEMBER_ID_REQUIRED: _N.REJOIN,
        _E.REBALANCE_IN_PROGRESS: _N.RETRY,
        _E.UNKNOWN_MEMBER_ID: _N.START_OVER,
        _E.ILLEGAL_GENERATION: _N.START_OVER,
    },
    Call.SYNC: _MOVED
    | {
        _E.NOT_COORDINATOR: _N.REJOIN,
        _E.COORDINATOR_NOT_AVAILABLE: _N.REJOIN,
        _E.REBALANCE_IN_PROGRESS: _N.REJOIN,
        _E.UNKNOWN_MEMBER_ID: _N.START_OVER,
        _E.ILLEGAL_GENERATION: _N.START_OVER,
    },
    Call.HEARTBEAT: _MOVED
    | {
        _E.REBALANCE_IN_PROGRESS: _N.REJOIN,
        _E.UNKNOWN_MEMBER_ID: _N.START_OVER,
        _E.ILLEGAL_GENERATION: _N.START_OVER,
    },
    Call.COMMIT: _MOVED
    | {
        _E.REBALANCE_IN_PROGRESS: _N.REJOIN,
        _E.UNKNOWN_MEMBER_ID: _N.START_OVER,
        _E.ILLEGAL_GENERATION: _N.START_OVER,
        _E.UNSTABLE_OFFSET_COMMIT: _N.RETRY,
        _E.UNKNOWN_TOPIC_OR_PARTITION: _N.RETRY,
        _E.REQUEST_TIMED_OUT: _N.RETRY,
    },
}


def heartbeat_pauses_s(interval_ms: int) -> Iterator[float]:
    """Pauses before the heartbeats of a new generation: short at first, then `heartbeat.interval.ms`.

    A group that has just been formed is often joined by others at once; who hears of it early need not be waited for.
    """
    pause_ms = _FIRST_HEARTBEAT_MS
    while pause_ms < interval_ms:
        yield pause_ms / 1000
        pause_ms *= 2
    yield from repeat(interval_ms / 1000)


class GroupMember:
    """Who this consumer is in its group."""

    def __init__(self, group_id: str, group_instance_id: str | None) -> None:
        self.group_id = group_id
        self.group_instance_id = group_instance_id
        self.member_id = NO_MEMBER_ID
        self.generation_id = NO_GENERATION
        self.protocol: str | None = None
        self.is_leader = False
        self.state = MemberState.UNJOINED
        #: Why the next poll has to rejoin; None when it need not.
        self.rejoin_reason: str | None = "the consumer is new"

    @property
    def metadata(self) -> ConsumerGroupMetadata:
        """What commits carry."""
        return ConsumerGroupMetadata(self.group_id, self.generation_id, self.member_id, self.group_instance_id)

    @property
    def has_joined(self) -> bool:
        """Whether the coordinator counts on this member."""
        return self.state in (MemberState.SYNCING, MemberState.STABLE)

    def joining(self) -> None:
        """A rebalance begins."""
        self.state = MemberState.JOINING
        self.rejoin_reason = None

    def joined(self, member_id: str, generation_id: int, protocol: str, leader: str) -> None:
        """JoinGroup was answered."""
        self.member_id = member_id
        self.generation_id = generation_id
        self.protocol = protocol
        self.is_leader = member_id == leader
        self.state = MemberState.SYNCING

    def synced(self) -> None:
        """SyncGroup was answered."""
        self.state = MemberState.STABLE

    def answered(self, call: Call, code: ErrorCode, member_id: str = NO_MEMBER_ID) -> Next:
        """What an error of `call` means; changes the state accordingly."""
        meaning = MEANING[call].get(code, Next.FAIL)
        if code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = member_id
        elif meaning is Next.START_OVER:
            self.forgotten(
                f"{call.value} was answered {code.name}", keep_member_id=code == ErrorCode.ILLEGAL_GENERATION
            )
        elif meaning is Next.REJOIN and call is not Call.JOIN:
            self.rejoin(f"{call.value} was answered {code.name}")
        return meaning

    def rejoin(self, reason: str) -> None:
        """The next poll has to join again."""
        if self.rejoin_reason is None:
            self.rejoin_reason = reason

    def forgotten(self, reason: str, *, keep_member_id: bool = False) -> None:
        """The group goes on without this member."""
        self.generation_id = NO_GENERATION
        if not keep_member_id:
            self.member_id = NO_MEMBER_ID
        self.protocol = None
        self.is_leader = False
        self.state = MemberState.UNJOINED
        self.rejoin_reason = reason
