"""Random: every partition goes to some member that wants it."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.assign.types import Assignment, BaseAssignor, Cluster, Subscription
from ottla.base.rng import Rng
from ottla.base.types import TopicPartition


class RandomAssignor(BaseAssignor):
    """Draws an owner for each partition from `rng`: `RandomAssignor(random.Random(7))`.

    The same seed, members and topics give the same assignments again.
    """

    name = "random"

    def __init__(self, rng: Rng) -> None:
        self._rng = rng

    def assign(self, cluster: Cluster, subscriptions: Mapping[str, Subscription]) -> dict[str, Assignment]:
        given: dict[str, list[TopicPartition]] = {member: [] for member in subscriptions}
        for partition in cluster.partitions(topic for said in subscriptions.values() for topic in said.topics):
            wanting = [member for member in sorted(subscriptions) if partition.topic in subscriptions[member].topics]
            given[self._rng.choice(wanting)].append(partition)
        return {member: Assignment(tuple(partitions)) for member, partitions in given.items()}
