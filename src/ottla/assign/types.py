"""What an assignor gets, what it answers, and the protocol that it follows (SPEC A7).

An assignor runs in the member that leads a classic group (`ConsumerPartitionAssignor` in Apache Kafka). At every join
each member sends its `Subscription`. The leader gets all of them and a `Cluster`, and answers with one `Assignment` for
each member. To write your own, implement `Assignor`; the easiest way is a subclass of `BaseAssignor`:

    class Everything(BaseAssignor):
        name = "everything"

        def assign(self, cluster, subscriptions):
            return {member: Assignment(cluster.partitions(s.topics)) for member, s in subscriptions.items()}
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import NamedTuple, Protocol, runtime_checkable

from ottla.base.types import TopicPartition


class RebalanceProtocol(IntEnum):
    """How a member gives up partitions: all of them before each join, or only those that move (KIP-429)."""

    EAGER = 0
    COOPERATIVE = 1


class PartitionInfo(NamedTuple):
    """One partition of a topic; `replica_racks` has the rack of each replica whose broker names one (KIP-881)."""

    partition: int
    replica_racks: tuple[str, ...] = ()


class Cluster(NamedTuple):
    """The topics that the leader knows. A topic that is missing here is not assigned, even if it is subscribed."""

    topics: Mapping[str, tuple[PartitionInfo, ...]]

    @classmethod
    def of(cls, partitions_per_topic: Mapping[str, int]) -> Cluster:
        """A cluster without racks, from the number of partitions of each topic."""
        return cls(
            {topic: tuple(PartitionInfo(p) for p in range(count)) for topic, count in partitions_per_topic.items()}
        )

    def partitions(self, topics: Iterable[str]) -> tuple[TopicPartition, ...]:
        """Every partition of those `topics` that are known, sorted by topic and number."""
        known = sorted({topic for topic in topics if topic in self.topics}, key=java_order)
        return tuple(TopicPartition(topic, info.partition) for topic in known for info in sorted(self.topics[topic]))


class Subscription(NamedTuple):
    """What one member wants, and what it holds. `generation_id` is that of `owned_partitions`, -1 when unknown."""

    topics: tuple[str, ...]
    user_data: bytes | None = None
    owned_partitions: tuple[TopicPartition, ...] = ()
    generation_id: int = -1
    rack_id: str | None = None
    group_instance_id: str | None = None


class Assignment(NamedTuple):
    """What one member gets, with bytes for the same assignor on the member's side."""

    partitions: tuple[TopicPartition, ...]
    user_data: bytes | None = None


@runtime_checkable
class Assignor(Protocol):
    """A partition assignment strategy. One instance serves one consumer and may keep state between calls."""

    @property
    def name(self) -> str:
        """The name that members vote for. All members of a group must have at least one assignor name in common."""
        ...

    @property
    def protocols(self) -> tuple[RebalanceProtocol, ...]:
        """The rebalance protocols this assignor can work with."""
        ...

    def subscription_user_data(self, topics: frozenset[str]) -> bytes | None:
        """Bytes to send with this member's subscription to `topics`; the leader sees them in `assign`.

        Called in the consumer's event loop: it has to be quick.
        """
        ...

    def assign(self, cluster: Cluster, subscriptions: Mapping[str, Subscription]) -> dict[str, Assignment]:
        """Divide the partitions; the answer has every member id of `subscriptions`. Called in the leader only.

        A user's assignor, and a built-in one in a large group, is called in a thread, one call at a time. Heartbeats go
        on meanwhile.
        """
        ...

    def on_assignment(self, assignment: Assignment, generation_id: int) -> None:
        """This member's new assignment, in every member, before `on_partitions_assigned`. It has to be quick."""
        ...


class BaseAssignor(ABC):
    """An eager assignor without user data and memory. A subclass adds `name` and `assign`."""

    name: str = ""
    #: The leader's client checks every answer of `assign`. An assignor that gives a partition to several members on
    #: purpose says so here, and so does one that leaves partitions to nobody.
    one_owner: bool = True
    every_partition: bool = True
    protocols: tuple[RebalanceProtocol, ...] = (RebalanceProtocol.EAGER,)

    def subscription_user_data(self, topics: frozenset[str]) -> bytes | None:
        """None: most assignors need nothing but topics and owned partitions."""
        return None

    @abstractmethod
    def assign(self, cluster: Cluster, subscriptions: Mapping[str, Subscription]) -> dict[str, Assignment]:
        """See `Assignor.assign`."""

    def on_assignment(self, assignment: Assignment, generation_id: int) -> None:  # noqa: B027  (optional to override)
        """Nothing to remember."""


def java_order(text: str) -> bytes:
    """Sort key that orders strings as Java does, by UTF-16 code unit: Apache Kafka's members must agree with ours."""
    return text.encode("utf-16-be", "surrogatepass")


def member_order(member_id: str, subscription: Subscription) -> tuple[int, bytes]:
    """Sort key of members: static ones first, by instance id, so that a restart keeps its place (KIP-345)."""
    if subscription.group_instance_id is not None:
        return 0, java_order(subscription.group_instance_id)
    return 1, java_order(member_id)
