"""The one rule of the consumer's core: an answer counts only in the era that its request was asked in.

Answers come late. A heartbeat may be answered when its member has joined again already, a fetch when its partition was
taken away and given back, a lookup when the user has said `seek` meanwhile. What such an answer says was true once; to
believe it now would expel a member that is in its group, or move a position that nobody asked about. So every request
carries its era in its `Ticket`, and `Eras.holds` is asked before anything is made of the answer. There are two kinds:

*The membership's era* is a number that changes whenever the member does: when it sends JoinGroup, when it gets another
member id or generation, when the group goes on without it, when it leaves. JoinGroup, SyncGroup, Heartbeat, LeaveGroup
and OffsetCommit are asked in it, and so is metadata that is waited for before a join or an assignment.

*A partition's era* is the number of the assignment in which it came, with the version of its position, which changes
with every seek and reset. Fetch, ListOffsets, OffsetFetch and OffsetForLeaderEpoch are asked in the eras of their
partitions. A partition that stays in a cooperative rebalance keeps its number, so reading it goes on.

Two things are told whatever the era, because they are no part of it: a fetch session, which belongs to the connection
and counts every answer; and the caller of a commit, who waits for the answer to the request, not for its conclusions.
`ConsumerCore.answered` is where the rule is applied.
"""

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any, NamedTuple

from ottla.base.types import TopicPartition
from ottla.client.core.consumer.positions import PartitionState, Positions


class Call(Enum):
    """What was asked."""

    JOIN = "JoinGroup"
    SYNC = "SyncGroup"
    HEARTBEAT = "Heartbeat"
    LEAVE = "LeaveGroup"
    COMMIT = "OffsetCommit"
    COMMITTED = "OffsetFetch"
    LIST = "ListOffsets"
    EPOCH_END = "OffsetForLeaderEpoch"
    FETCH = "Fetch"
    #: What the other members were given: a static leader that comes back asks for it.
    DESCRIBE = "DescribeGroups"
    #: Fresh metadata, before the topics of a pattern are matched.
    MATCH = "Metadata (for the pattern)"
    #: Fresh metadata, before the leader divides the partitions, or after it came back.
    LEAD = "Metadata (for the assignment)"
    #: The wall clock, for `auto.offset.reset=by_duration`.
    CLOCK = "the clock"


class PartitionEra(NamedTuple):
    """When something was asked about a partition."""

    assignment: int
    version: int


class Ticket(NamedTuple):
    """Goes with a request and comes back with its answer."""

    call: Call
    #: The membership's era; None for what is not asked as a member.
    membership: int | None = None
    #: The partitions that it is about.
    partitions: Mapping[TopicPartition, PartitionEra] = {}
    #: What the asker wants to know again.
    about: Any = None


class Eras:
    """Which era it is, for the member and for each partition."""

    def __init__(self, positions: Positions) -> None:
        self._positions = positions
        self.membership = 0

    def begin(self) -> None:
        """The member is another one from now on."""
        self.membership += 1

    def of_member(self, call: Call, about: Any = None) -> Ticket:
        """A ticket for what is asked as the member that this consumer is now."""
        return Ticket(call, self.membership, {}, about)

    def of_partitions(self, call: Call, states: Iterable[PartitionState], about: Any = None) -> Ticket:
        """A ticket for what is asked about partitions as they are now."""
        eras = {state.tp: PartitionEra(state.assignment, state.version) for state in states}
        return Ticket(call, None, eras, about)

    def holds(self, ticket: Ticket) -> bool:
        """Whether it is still the era of `ticket`; where it is about partitions, for one of them at least."""
        if ticket.membership is not None:
            return ticket.membership == self.membership
        return not ticket.partitions or bool(self.current(ticket))

    def current(self, ticket: Ticket) -> dict[TopicPartition, PartitionState]:
        """The partitions of `ticket` whose era still holds."""
        found = {}
        for tp, era in ticket.partitions.items():
            state = self._positions.get(tp)
            if state is not None and state.assignment == era.assignment and state.version == era.version:
                found[tp] = state
        return found
