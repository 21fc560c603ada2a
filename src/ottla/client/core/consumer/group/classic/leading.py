"""What a leader knows: subscriptions, and partition counts when the group was assigned (SPEC G4, G7, G11)."""

from collections.abc import Callable, Mapping
from functools import partial

from ottla.assign import BUILT_IN, Assignor, RebalanceProtocol, Subscription
from ottla.base.limits import MAX_INLINE_DIVISION
from ottla.client.core.consumer.group.classic.group_protocol import Division, assign_all
from ottla.client.core.metadata import ClusterSnapshot


class Leading:
    """Empty if this member does not lead the group."""

    def __init__(self) -> None:
        self._subscriptions: Mapping[str, Subscription] = {}
        #: The topics that any member has subscribed to.
        self.topics: frozenset[str] = frozenset()
        #: The partition counts that the assignment was made from. If metadata has others, the leader joins again.
        self._counts: Mapping[str, int] | None = None
        #: Until when the owners of partitions that were held back have to give them up (KIP-429): that begins the next
        #: generation. None if nothing was held back.
        self.owners_have_until_s: float | None = None

    def begin(self, subscriptions: Mapping[str, Subscription]) -> None:
        """This member leads: it was elected, or it was the leader before its restart and still is."""
        self._subscriptions = subscriptions
        self.topics = frozenset(topic for said in subscriptions.values() for topic in said.topics)
        self._counts = None
        self.owners_have_until_s = None

    def forget(self) -> None:
        """This member does not lead any more."""
        self.begin({})

    def division(
        self, assignor: Assignor, snapshot: ClusterSnapshot, protocol: RebalanceProtocol
    ) -> Callable[[], Division]:
        """The work that divides the partitions. It touches nothing of this client, and raises AssignorError."""
        self._counts = self._counts_in(snapshot)
        return partial(assign_all, assignor, snapshot, self._subscriptions, protocol)

    def takes_long(self, assignor: Assignor) -> bool:
        """Whether that work may take long: a user's assignor may do anything, and a built-in one takes its time for a
        large group."""
        if type(assignor) not in BUILT_IN.values():
            return True
        return len(self._subscriptions) + sum((self._counts or {}).values()) > MAX_INLINE_DIVISION

    def divided(self, division: Division, owners_have_until_s: float) -> None:
        """The work is done."""
        if division.holds_back:
            self.owners_have_until_s = owners_have_until_s

    def owners_are_late(self, now_s: float) -> bool:
        """Whether it is time to divide again because of partitions that were held back. Says so once.

        Their owner is a static member that died before it gave them up, and came back within its session: it has what
        it was assigned, nothing to give up, and the coordinator does not rebalance the group for it (KIP-345). Apache
        Kafka's clients wait for the next rebalance then.
        """
        late = self.owners_have_until_s is not None and now_s >= self.owners_have_until_s
        if late:
            self.owners_have_until_s = None
        return late

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
