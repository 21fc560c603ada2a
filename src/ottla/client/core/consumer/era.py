"""The one rule of the consumer's core: an answer counts only in the era in which its request was asked.

Answers can be late. A heartbeat may be answered when its member has already joined again. A fetch may be answered when
its partition was taken away and has come back, a lookup when the user has called `seek` meanwhile. Such an answer was
true once. To act on it now could expel a member that is in its group, or move a position that is right. So every
request carries its era in its `Ticket`, and `ConsumerCore.answered` asks `Eras.holds` before it acts on an answer.
There are two kinds of era.

*The membership's era* is a number. It changes whenever the member changes: when it sends JoinGroup, when it gets
another member id, generation or epoch, when the group goes on without it, and when it leaves. JoinGroup, SyncGroup,
Heartbeat, LeaveGroup, ConsumerGroupHeartbeat and OffsetCommit are asked in it. So is the metadata that the member needs
for a join or an assignment, and so is the leader's assignor.

*A partition's era* is the number of the assignment in which the partition came, together with the version of its
position. The version changes with every seek and every reset. Fetch, ListOffsets, OffsetFetch and OffsetForLeaderEpoch
are asked in the eras of their partitions. A partition that the member keeps in a cooperative rebalance keeps its
number, so fetches of it still count.

Two parts hear of every answer, whatever its era. The fetch session belongs to the connection and counts all answers.
And the caller of a commit waits for the answer to this one request, whatever has become of the member.
"""

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any, NamedTuple

from ottla.base.types import TopicPartition
from ottla.client.core.consumer.positions import PartitionState, Positions


class Call(Enum):
    """What a request asks."""

    JOIN = "JoinGroup"
    SYNC = "SyncGroup"
    HEARTBEAT = "Heartbeat"
    LEAVE = "LeaveGroup"
    #: The one request of the consumer protocol (KIP-848). It joins and acknowledges, too; what leaves is LEAVE.
    CONSUMER_HEARTBEAT = "ConsumerGroupHeartbeat"
    COMMIT = "OffsetCommit"
    COMMITTED = "OffsetFetch"
    LIST = "ListOffsets"
    EPOCH_END = "OffsetForLeaderEpoch"
    FETCH = "Fetch"
    #: Which partitions the other members have. A static leader that comes back asks this.
    DESCRIBE = "DescribeGroups"
    #: Fresh metadata, to see which topics match the pattern.
    MATCH = "Metadata (for the pattern)"
    #: Fresh metadata for the leader: before it divides the partitions, or after it has come back.
    LEAD = "Metadata (for the assignment)"
    #: The leader's assignor divides the partitions; beside the event loop, if that may take long.
    DIVIDE = "the assignor"
    #: The time of day, for `auto.offset.reset=by_duration`.
    CLOCK = "the clock"


class PartitionEra(NamedTuple):
    """The era of one partition."""

    assignment: int
    version: int


class Ticket(NamedTuple):
    """Goes to the shell with a request, and comes back with its answer."""

    call: Call
    #: The membership's era; None if the request is not asked as a member.
    membership: int | None = None
    #: The partitions that the request is about, each with its era.
    partitions: Mapping[TopicPartition, PartitionEra] = {}
    #: What the asker needs again when the answer comes.
    about: Any = None


class Eras:
    """The current eras of the member and of each partition."""

    def __init__(self, positions: Positions) -> None:
        self._positions = positions
        self.membership = 0

    def begin(self) -> None:
        """Begin a new era of the membership, because the member changes."""
        self.membership += 1

    def of_member(self, call: Call, about: Any = None) -> Ticket:
        """A ticket for a request of the member, as it is now."""
        return Ticket(call, self.membership, {}, about)

    def of_partitions(self, call: Call, states: Iterable[PartitionState], about: Any = None) -> Ticket:
        """A ticket for a request about partitions, as they are now."""
        eras = {state.tp: PartitionEra(state.assignment, state.version) for state in states}
        return Ticket(call, None, eras, about)

    def holds(self, ticket: Ticket) -> bool:
        """Whether the answer to `ticket` counts. For partitions: whether it counts for one of them at least."""
        if ticket.membership is not None:
            return ticket.membership == self.membership
        return not ticket.partitions or any(self.state(ticket, tp) is not None for tp in ticket.partitions)

    def current(self, ticket: Ticket) -> dict[TopicPartition, PartitionState]:
        """The partitions of `ticket` whose era has not changed."""
        found = ((tp, self.state(ticket, tp)) for tp in ticket.partitions)
        return {tp: state for tp, state in found if state is not None}

    def state(self, ticket: Ticket, tp: TopicPartition) -> PartitionState | None:
        """A partition, if it is of `ticket` and its era has not changed."""
        era, state = ticket.partitions.get(tp), self._positions.get(tp)
        if era is None or state is None or state.assignment != era.assignment or state.version != era.version:
            return None
        return state
