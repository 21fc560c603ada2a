"""Rack: a partition goes to a member in the rack of one of its replicas, if there is one, even if that is uneven.

The built-in assignors look at racks too, but they divide evenly first (KIP-881). This one pays for no traffic between
racks that it can avoid.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.assign.cooperative import hold_back
from ottla.assign.types import Assignment, BaseAssignor, Cluster, RebalanceProtocol, Subscription
from ottla.base.types import TopicPartition


class RackAssignor(BaseAssignor):
    """Needs `client.rack` in the consumers and `broker.rack` in the brokers; without them it divides evenly."""

    name = "rack"
    protocols = (RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER)

    def assign(self, cluster: Cluster, subscriptions: Mapping[str, Subscription]) -> dict[str, Assignment]:
        given: dict[str, list[TopicPartition]] = {member: [] for member in sorted(subscriptions)}
        owners = {tp: member for member in given for tp in subscriptions[member].owned_partitions}
        for topic in sorted({topic for said in subscriptions.values() for topic in said.topics}):
            wanting = [member for member in given if topic in subscriptions[member].topics]
            for info in cluster.topics.get(topic, ()):
                partition = TopicPartition(topic, info.partition)
                near = [member for member in wanting if subscriptions[member].rack_id in info.replica_racks]
                fewest = min(len(given[member]) for member in near or wanting)
                best = [member for member in near or wanting if len(given[member]) == fewest]
                owner = owners.get(partition)
                given[owner if owner in best else best[0]].append(partition)
        target = {member: Assignment(tuple(partitions)) for member, partitions in given.items()}
        return hold_back(subscriptions, target)
