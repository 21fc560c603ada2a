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
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final, NamedTuple

from ottla.base.require import require
from ottla.coordinator.group.classic.members import Members
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.join_group import JoinGroupRequestProtocol


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
    """The wait of a group that was empty: `delay_ms` now, and up to `remaining_ms` more if members come."""

    delay_ms: int
    remaining_ms: int
    member_added: bool = False


@dataclass(frozen=True, slots=True)
class Group:
    """A classic group. Nobody changes `members` in place but a `Draft`, which has a copy of its own."""

    group_id: str
    state: GroupState = GroupState.EMPTY
    generation: int = 0
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str | None = None
    #: When the group entered its state; None in records older than value version 2.
    state_timestamp_ms: int | None = None
    members: Members = field(default_factory=Members)
    #: Member ids that were given out (MEMBER_ID_REQUIRED, KIP-394) and have not joined yet.
    pending_members: frozenset[str] = frozenset()
    #: Members of this generation that have not sent SyncGroup yet.
    pending_sync: frozenset[str] = frozenset()
    #: Set while the first rebalance after Empty is being prepared.
    initial_delay: InitialDelay | None = None
    #: Why the last rebalance began, with the client's reason (KIP-800); "" before the first one and after loading.
    rebalance_reason: str = field(default="", compare=False)
    #: Topics that consumers subscribe to; None when that cannot be known.
    subscribed_topics: frozenset[str] | None = None

    # -- questions

    def check_member(self, member_id: str, group_instance_id: str | None) -> ErrorCode:
        """NONE, or why a request from this member is refused (KIP-345 for the fencing)."""
        if group_instance_id is not None:
            current = self.members.static_member_id(group_instance_id)
            if current is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if current != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

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

    # -- the group after a change

    def with_state(self, state: GroupState, now_ms: int) -> Group:
        """The group in another state; a transition that the table lacks is a broken invariant."""
        require(state in TRANSITIONS[self.state], f"group {self.group_id}: {self.state.value} to {state.value}")
        return replace(self, state=state, state_timestamp_ms=now_ms)
