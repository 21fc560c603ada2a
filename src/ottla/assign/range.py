"""Range (SPEC A1): each topic's partitions in order are divided among the members in order; the first get the rest.

Topics with the same members and the same number of partitions line up: the member that has partition 3 of one topic has
partition 3 of the others. If members and replicas name racks, members first get partitions with a replica in their own
rack, as far as their shares and the lining-up allow (KIP-881). What is left is divided as if there were no racks. Every
result is the same as that of Apache Kafka's RangeAssignor.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from ottla.assign.types import Assignment, BaseAssignor, Cluster, PartitionInfo, Subscription, java_order, member_order
from ottla.base.types import TopicPartition


class RangeAssignor(BaseAssignor):
    """`partition.assignment.strategy=range`."""

    name = "range"

    def assign(self, cluster: Cluster, subscriptions: Mapping[str, Subscription]) -> dict[str, Assignment]:
        members_of: defaultdict[str, list[str]] = defaultdict(list)
        for member in sorted(subscriptions, key=lambda m: member_order(m, subscriptions[m])):
            for topic in dict.fromkeys(subscriptions[member].topics):
                members_of[topic].append(member)
        shares = [
            _TopicShares(topic, cluster.topics[topic], {m: subscriptions[m].rack_id or None for m in members})
            for topic, members in sorted(members_of.items(), key=lambda item: java_order(item[0]))
            if cluster.topics.get(topic)
        ]
        if any(share.needs_racks for share in shares):
            _assign_by_racks(shares)
        for share in shares:
            share.divide(lambda _member, _partition: True)
        given: dict[str, list[TopicPartition]] = {member: [] for member in subscriptions}
        for share in shares:
            for member, partitions in share.given.items():
                given[member] += [TopicPartition(share.topic, partition) for partition in sorted(partitions)]
        return {member: Assignment(tuple(partitions)) for member, partitions in given.items()}


class _TopicShares:
    """One topic that is being divided: how many each member may still take, and what is left."""

    def __init__(self, topic: str, partitions: Sequence[PartitionInfo], rack_of: dict[str, str | None]) -> None:
        self.topic = topic
        #: Member to rack, in the order in which members are served.
        self.rack_of = rack_of
        self.left = sorted(info.partition for info in partitions)
        self.given: dict[str, list[int]] = {member: [] for member in rack_of}
        self._share, self._extras = divmod(len(partitions), len(rack_of))
        consumer_racks = {rack for rack in rack_of.values() if rack}
        self.racks = {info.partition: frozenset(info.replica_racks) for info in partitions} if consumer_racks else {}
        all_racks = frozenset[str]().union(*self.racks.values())
        #: Racks do not matter if no member's rack has a replica, or if every partition is in every rack.
        self.needs_racks = bool(consumer_racks & all_racks) and any(r != all_racks for r in self.racks.values())

    def may_take(self, member: str) -> int:
        """How many more partitions `member` may get."""
        return max(0, self._share + (1 if self._extras > 0 else 0) - len(self.given[member]))

    def in_rack(self, member: str, partition: int) -> bool:
        """Whether `partition` has a replica in the member's rack. A member without a rack is in every rack."""
        rack = self.rack_of[member]
        return rack is None or rack in self.racks.get(partition, ())

    def take(self, member: str, partitions: Sequence[int]) -> None:
        self.given[member] += partitions
        if len(self.given[member]) > self._share:
            self._extras -= 1
        self.left = [partition for partition in self.left if partition not in partitions]

    def divide(self, allowed: Callable[[str, int], bool]) -> None:
        """Give each member in turn as many partitions as it may take, of those that are left and `allowed`."""
        for member in self.rack_of:
            partitions = [p for p in self.left if allowed(member, p)][: self.may_take(member)]
            if partitions:
                self.take(member, partitions)


def _assign_by_racks(shares: Sequence[_TopicShares]) -> None:
    groups: defaultdict[tuple[frozenset[tuple[str, str | None]], int], list[_TopicShares]] = defaultdict(list)
    for share in shares:
        groups[frozenset(share.rack_of.items()), len(share.racks)].append(share)
    for (_, partition_count), alike in groups.items():
        if len(alike) > 1:
            _assign_alike_by_racks(alike, partition_count)
        elif alike[0].needs_racks:
            alike[0].divide(alike[0].in_rack)


def _assign_alike_by_racks(alike: Sequence[_TopicShares], partition_count: int) -> None:
    """Divide topics with the same members and number of partitions alike: partition n of all goes to one member."""
    waiting = list(alike[0].rack_of)
    for partition in range(partition_count):
        fitting = (m for m in waiting if all(s.in_rack(m, partition) and s.may_take(m) > 0 for s in alike))
        member = next(fitting, None)
        if member is None:
            continue
        for share in alike:
            share.take(member, [partition])
        if not any(share.may_take(member) > 0 for share in alike):
            waiting.remove(member)
