"""What a leader knows: subscriptions, and partition counts when the group was assigned (SPEC G4, G7, G11)."""

from collections.abc import Mapping

from ottla.assign import Assignor, RebalanceProtocol, Subscription
from ottla.client.core.consumer.group.classic.group_protocol import assign_all
from ottla.client.core.metadata import ClusterSnapshot
from ottla.wire.messages.sync_group import SyncGroupRequestAssignment


class Leading:
    """Empty if this member does not lead the group."""

    def __init__(self) -> None:
        self._subscriptions: Mapping[str, Subscription] = {}
        #: The topics that any member has subscribed to.
        self.topics: frozenset[str] = frozenset()
        #: The partition counts that the assignment was made from. If metadata has others, the leader joins again.
        self._counts: Mapping[str, int] | None = None

    def begin(self, subscriptions: Mapping[str, Subscription]) -> None:
        """This member leads: it was elected, or it was the leader before its restart and still is."""
        self._subscriptions = subscriptions
        self.topics = frozenset(topic for said in subscriptions.values() for topic in said.topics)
        self._counts = None

    def forget(self) -> None:
        """This member does not lead any more."""
        self.begin({})

    def divide(
        self, assignor: Assignor, snapshot: ClusterSnapshot, protocol: RebalanceProtocol
    ) -> tuple[SyncGroupRequestAssignment, ...]:
        """The assignments of all members. Raises AssignorError."""
        self._counts = self._counts_in(snapshot)
        return assign_all(assignor, snapshot, self._subscriptions, protocol)

    def came_back(self, snapshot: ClusterSnapshot) -> None:
        """A static leader has come back, and has not divided the partitions. Until it knows more, it assumes, as Apache
        Kafka's clients do, that the assignment was made from the current partition counts (KIP-814)."""
        self._counts = self._counts_in(snapshot)

    def assigned_by(self, counts: Mapping[str, int]) -> None:
        """The group's assignment shows the partition counts that it was made from."""
        self._counts = counts

    def is_outdated(self, snapshot: ClusterSnapshot) -> bool:
        """Whether topics have other partition counts than those that the assignment was made from."""
        return self._counts is not None and self._counts != self._counts_in(snapshot)

    def _counts_in(self, snapshot: ClusterSnapshot) -> dict[str, int]:
        return {topic: snapshot.partition_count(topic) for topic in self.topics}
