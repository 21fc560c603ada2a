"""A classic group: its states, its members, and what can be asked of it. Values only; nothing here changes anything.

    Empty ──join──▶ PreparingRebalance ──all joined, or time is up──▶ CompletingRebalance ──leader synced──▶ Stable
      ▲                    │   ▲                                              │                                │
      └─────nobody left────┘   └──────────member joins, leaves, or is expelled┴────────────────────────────────┘

A deleted group has no state: it does not exist.

A `Group` holds durable state (the last GroupMetadata record: generation, protocol, leader, members with subscription
and assignment) and state that is not durable: who waits for which answer, and which member ids were given out but have
not joined yet. It is immutable. The outcome of an input is a new Group, which takes the old one's place only when its
records are in the log.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Final, NamedTuple

from ottla.base.require import require
from ottla.coordinator.group.classic.members import Members
from ottla.coordinator.offsets.groups import Commit
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.join_group import JoinGroupRequestProtocol
from ottla.wire.offsets_records import OffsetCommitValue


class GroupState(Enum):
    """The states of a classic group, named as ListGroups and DescribeGroups say them."""

    #: No members; there may be offsets. A join starts a rebalance.
    EMPTY = "Empty"
    #: Members are asked to rejoin: heartbeats answer REBALANCE_IN_PROGRESS, joins wait.
    PREPARING_REBALANCE = "PreparingRebalance"
    #: The generation is decided; all members wait for the leader's assignment.
    COMPLETING_REBALANCE = "CompletingRebalance"
    #: All members have, or can fetch, an assignment of this generation.
    STABLE = "Stable"


#: The automaton: which state may follow which. `docs/automata.md` draws it from here; a test visits every pair.
TRANSITIONS: Final[Mapping[GroupState, frozenset[GroupState]]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.PREPARING_REBALANCE: frozenset({GroupState.COMPLETING_REBALANCE, GroupState.EMPTY}),
    GroupState.COMPLETING_REBALANCE: frozenset({GroupState.STABLE, GroupState.PREPARING_REBALANCE}),
    GroupState.STABLE: frozenset({GroupState.PREPARING_REBALANCE}),
}

#: The protocol type of consumers. The coordinator does not look into other types (Connect, old Streams).
CONSUMER_PROTOCOL_TYPE: Final = "consumer"


class InitialDelay(NamedTuple):
    """The wait of a group that was empty: `delay_ms` now, and up to `remaining_ms` more if members come.

    `for_arrivals`: it waits for clients that are on their way (see `arrivals`), and no longer than they are.
    """

    delay_ms: int
    remaining_ms: int
    member_added: bool = False
    for_arrivals: bool = False


class Group(NamedTuple):
    """A classic group. Nobody changes `members` in place but a `Draft`, which has a copy of its own.

    (Each request of a member makes a few of them, and a dataclass takes four times as long.)
    """

    group_id: str
    state: GroupState = GroupState.EMPTY
    generation: int = 0
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str | None = None
    #: When the group entered its state; None in records older than value version 2.
    state_timestamp_ms: int | None = None
    members: Members = Members()
    #: Member ids that were given out (MEMBER_ID_REQUIRED, KIP-394) and have not joined yet.
    pending_members: frozenset[str] = frozenset()
    #: Members of this generation that have not sent SyncGroup yet.
    pending_sync: frozenset[str] = frozenset()
    #: Set while the first rebalance after Empty is being prepared.
    initial_delay: InitialDelay | None = None
    #: Topics that consumers subscribe to; None when that cannot be known.
    subscribed_topics: frozenset[str] | None = None
    #: Why the last rebalance began, with the client's reason (KIP-800); "" before the first one and after loading.
    rebalance_reason: str = ""

    def __eq__(self, other: object) -> bool:
        """Why it has rebalanced is no part of what a group is."""
        return isinstance(other, Group) and self[:-1] == other[:-1]

    def __ne__(self, other: object) -> bool:
        return not self == other

    # -- questions

    @property
    def kind(self) -> str:
        """KIP-848's name for groups of this kind."""
        return "classic"

    def check_member(self, member_id: str, group_instance_id: str | None) -> ErrorCode:
        """NONE, or why a request from this member is refused (KIP-345 for the fencing)."""
        if group_instance_id is not None:
            current = self.members.static_member_id(group_instance_id)
            if current is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if current != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def knows(self, member_id: str, instance_id: str | None) -> bool:
        """Whether a member, or an id that was given out, has one of these ids."""
        if member_id in self.members or member_id in self.pending_members:
            return True
        return instance_id is not None and self.members.static_member_id(instance_id) is not None

    def all_joined(self) -> bool:
        """Whether every member has joined the rebalance that is being prepared."""
        return not self.pending_members and self.members.joins_waiting == len(self.members)

    def rebalance_timeout_ms(self) -> int:
        """The longest of the members' rebalance time-outs."""
        return max((m.rebalance_timeout_ms for m in self.members.values()), default=0)

    def supports(self, protocol_type: str, protocols: Iterable[JoinGroupRequestProtocol]) -> bool:
        """Whether a member with these protocols may join (G6)."""
        names = {p.name for p in protocols}
        if self.state is GroupState.EMPTY:
            return bool(protocol_type) and bool(names)
        if not self.members:  # all were expelled, and the rebalance waits for an id that was handed out
            return self.protocol_type == protocol_type and bool(names)
        return self.protocol_type == protocol_type and bool(names & self.members.candidates())

    def elected_protocol(self) -> str:
        """G6: each member votes for the first of its protocols that all support. Most votes win; in a tie the first."""
        candidates = self.members.candidates()
        if len(candidates) == 1:
            return next(iter(candidates))
        votes = Counter(m.vote(candidates) for m in self.members.values())
        return votes.most_common(1)[0][0]

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member may read `topic`. A consumer whose subscription is unreadable counts as one that does."""
        if self.subscribed_topics is None:
            return self.protocol_type == CONSUMER_PROTOCOL_TYPE
        return topic in self.subscribed_topics

    # -- what offsets ask

    @property
    def state_name(self) -> str:
        """The state, as ListGroups says it."""
        return self.state.value

    @property
    def listed_protocol_type(self) -> str:
        """The protocol type, as ListGroups says it."""
        return self.protocol_type or ""

    def check_commit(self, commit: Commit) -> ErrorCode:
        """NONE, or why this commit is refused (KIP-447 for those of transactions)."""
        if commit.epoch < 0 and self.state is GroupState.EMPTY:
            return ErrorCode.NONE
        if commit.is_anonymous:
            # The sender is no member, and the group has members: only they may commit, but for older producers.
            return ErrorCode.NONE if commit.transactional else ErrorCode.UNKNOWN_MEMBER_ID
        error = self.check_member(commit.member_id, commit.group_instance_id)
        if error is ErrorCode.NONE and commit.epoch != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        if error is ErrorCode.NONE and not commit.transactional and self.state is GroupState.COMPLETING_REBALANCE:
            # The member is in the new generation but has no assignment yet, so it cannot own these partitions.
            return ErrorCode.REBALANCE_IN_PROGRESS
        return error

    def check_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """NONE: offsets of a classic group may be read by everybody."""
        return ErrorCode.NONE

    def check_offset_delete(self) -> ErrorCode:
        """NONE, or why offsets of this group may not be deleted."""
        if self.state is not GroupState.EMPTY and self.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return ErrorCode.NON_EMPTY_GROUP
        return ErrorCode.NONE

    def retention_starts(self) -> Callable[[OffsetCommitValue], int] | None:
        """The time from which an offset is retained; None while the group's offsets do not expire.

        In a group with members only offsets of topics that no member subscribes to expire, counted from their commit.
        """
        if self.protocol_type is None:
            return lambda value: value.commit_timestamp_ms
        if self.state is GroupState.EMPTY:
            emptied_ms = self.state_timestamp_ms
            return lambda value: value.commit_timestamp_ms if emptied_ms is None else emptied_ms
        known = self.protocol_type == CONSUMER_PROTOCOL_TYPE and self.subscribed_topics is not None
        if known and self.state is GroupState.STABLE:
            return lambda value: value.commit_timestamp_ms
        return None

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members and may be deleted."""
        return self.state is GroupState.EMPTY

    @property
    def metadata_bytes(self) -> int:
        """What its members say of themselves, in all their protocols."""
        return self.members.metadata_bytes

    @property
    def is_forgotten(self) -> bool:
        """Whether nobody would miss the group when its offsets are gone."""
        return self.state is GroupState.EMPTY and not self.pending_members

    # -- the group after a change

    def with_state(self, state: GroupState, now_ms: int) -> Group:
        """The group in another state; a transition that the table lacks is a broken invariant."""
        require(state in TRANSITIONS[self.state], f"group {self.group_id}: {self.state.value} to {state.value}")
        return self._replace(state=state, state_timestamp_ms=now_ms)
