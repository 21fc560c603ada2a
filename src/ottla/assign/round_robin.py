"""RoundRobin (SPEC A2, A3): all partitions in order, dealt to the members in a circle.

A member that does not subscribe to a partition's topic is skipped, and the circle goes on from there. With unequal
subscriptions the result may be uneven, as with Apache Kafka's RoundRobinAssignor.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.assign.types import Assignment, BaseAssignor, Cluster, Subscription, member_order
from ottla.base.types import TopicPartition


class RoundRobinAssignor(BaseAssignor):
    """`partition.assignment.strategy=roundrobin`."""

    name = "roundrobin"

    def assign(self, cluster: Cluster, subscriptions: Mapping[str, Subscription]) -> dict[str, Assignment]:
        members = sorted(subscriptions, key=lambda member: member_order(member, subscriptions[member]))
        topics_of = {member: frozenset(subscriptions[member].topics) for member in members}
        given: dict[str, list[TopicPartition]] = {member: [] for member in members}
        turn = 0
        for partition in cluster.partitions(topic for topics in topics_of.values() for topic in topics):
            # This loop ends: the partition is only here because some member subscribes to its topic.
            while partition.topic not in topics_of[members[turn]]:
                turn = (turn + 1) % len(members)
            given[members[turn]].append(partition)
            turn = (turn + 1) % len(members)
        return {member: Assignment(tuple(partitions)) for member, partitions in given.items()}
