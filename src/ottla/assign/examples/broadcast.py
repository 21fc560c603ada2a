"""Broadcast: every member gets every partition of the topics that it wants, as readers of a cache's updates do.

All members share the group's committed offsets, and would overwrite each other's. So set `enable.auto.commit=false`,
commit nothing, and begin where `auto.offset.reset` says.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.assign.types import Assignment, BaseAssignor, Cluster, Subscription


class BroadcastAssignor(BaseAssignor):
    """Gives each partition to all members that subscribe to its topic."""

    name = "broadcast"
    #: On purpose, so the client must not take it for a mistake.
    one_owner = False

    def assign(self, cluster: Cluster, subscriptions: Mapping[str, Subscription]) -> dict[str, Assignment]:
        return {member: Assignment(cluster.partitions(said.topics)) for member, said in subscriptions.items()}
