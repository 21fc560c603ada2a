"""What a leader knows: what the group wants, and the partition counts that it was assigned by (SPEC G4, G7, G11)."""

from collections.abc import Mapping

from ottla.assign import Assignor, Subscription
from ottla.client.core.consumer.group_protocol import assign_all
from ottla.client.core.metadata import ClusterSnapshot
from ottla.wire.messages.sync_group import SyncGroupRequestAssignment


class Leading:
    """Empty in a member that does not lead."""

    def __init__(self) -> None:
        self._subscriptions: Mapping[str, Subscription] = {}
        #: What any member has subscribed to.
        self.topics: frozenset[str] = frozenset()
        #: Partition counts that the group was assigned by; when metadata says otherwise the leader rejoins.
        self._counts: Mapping[str, int] | None = None

    def begin(self, subscriptions: Mapping[str, Subscription]) -> None:
        """This member was elected, or has come back as the leader that it was."""
        self._subscriptions = subscriptions
        self.topics = frozenset(topic for said in subscriptions.values() for topic in said.topics)
        self._counts = None

    def forget(self) -> None:
        """It leads no more."""
        self.begin({})

    def divide(self, assignor: Assignor, snapshot: ClusterSnapshot) -> tuple[SyncGroupRequestAssignment, ...]:
        """Everybody's assignment. Raises AssignorError."""
        self._counts = self._counts_in(snapshot)
        return assign_all(assignor, snapshot, self._subscriptions)

    def came_back(self, snapshot: ClusterSnapshot) -> None:
        """A static leader that did not divide: as long as nothing better is known, as Apache Kafka's clients do, it
        takes it that the group was assigned by what is there now (KIP-814)."""
        self._counts = self._counts_in(snapshot)

    def assigned_by(self, counts: Mapping[str, int]) -> None:
        """The group's assignment shows by what it was made."""
        self._counts = counts

    def is_outdated(self, snapshot: ClusterSnapshot) -> bool:
        """Whether topics have other partitions than were assigned."""
        return self._counts is not None and self._counts != self._counts_in(snapshot)

    def _counts_in(self, snapshot: ClusterSnapshot) -> dict[str, int]:
        return {topic: snapshot.partition_count(topic) for topic in self.topics}
