"""Weighted: a member with weight 3 gets three times as many partitions as one with weight 1."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from ottla.assign.types import Assignment, BaseAssignor, Cluster, Subscription
from ottla.base.errors import ConfigError
from ottla.base.types import TopicPartition

_BYTES = 4


class WeightedAssignor(BaseAssignor):
    """Each member has its own `weight`, a whole number from 1 on, and sends it to the leader as user data."""

    name = "weighted"

    def __init__(self, weight: int = 1) -> None:
        """Raises ConfigError for a weight that is none."""
        if not 1 <= weight < 1 << 8 * _BYTES:
            raise ConfigError(f"the weight of a member is a whole number from 1 on, not {weight!r}")
        self._weight = weight

    def subscription_user_data(self, topics: frozenset[str]) -> bytes | None:
        return self._weight.to_bytes(_BYTES)

    def assign(self, cluster: Cluster, subscriptions: Mapping[str, Subscription]) -> dict[str, Assignment]:
        weight = {member: _weight_in(said.user_data) for member, said in subscriptions.items()}
        given: dict[str, list[TopicPartition]] = {member: [] for member in sorted(subscriptions)}
        for partition in cluster.partitions(topic for said in subscriptions.values() for topic in said.topics):
            wanting = [member for member in given if partition.topic in subscriptions[member].topics]
            # the one that would carry least for its weight with one more
            receiver = min(wanting, key=lambda member: Fraction(len(given[member]) + 1, weight[member]))
            given[receiver].append(partition)
        return {member: Assignment(tuple(partitions)) for member, partitions in given.items()}


def _weight_in(user_data: bytes | None) -> int:
    """A member's weight; 1 for one that does not say."""
    return max(1, int.from_bytes(user_data)) if user_data and len(user_data) == _BYTES else 1
