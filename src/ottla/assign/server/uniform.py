"""`uniform`, Kafka's default of the server's side: every member has as many partitions as any other (KIP-848).

Being even comes first, then that partitions stay where they are. Racks do not count, as in Apache Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ottla.assign.server.heterogeneous import HeterogeneousBuilder
from ottla.assign.server.homogeneous import HomogeneousBuilder
from ottla.assign.server.types import GroupSpec, Partitions, SubscriptionType


class UniformAssignor:
    """See the module."""

    name: Final = "uniform"

    def assign(self, group: GroupSpec) -> Mapping[str, Partitions]:
        """The same number of partitions for each, as far as their subscriptions allow it."""
        if not group.members:
            return {}
        if group.subscription_type is SubscriptionType.HOMOGENEOUS:
            first = next(iter(group.members.values()))
            return HomogeneousBuilder(group, first.topic_ids).build()
        return HeterogeneousBuilder(group).build()
