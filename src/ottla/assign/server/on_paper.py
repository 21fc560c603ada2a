"""A broker's assignor where one of a client's is expected: so that a consumer group (KIP-848) can be rehearsed, too.

The broker computes a target once for each change of the group, and members come to it step by step: what another member
still owns is held back until it has been given up. A rehearsal takes these steps as cooperative generations.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.assign.cooperative import hold_back
from ottla.assign.server import order
from ottla.assign.server.types import GroupSpec, MemberSpec, ServerAssignor, SubscriptionType, TopicSpec, checked
from ottla.assign.types import Assignment, BaseAssignor, Cluster, RebalanceProtocol, Subscription
from ottla.base.types import TopicPartition


class OnPaper(BaseAssignor):
    """Divides as `assignor` would on the broker. `topic_ids` has the ids of those topics whose id is known, `lags` by
    topic and partition how many records the group has not read."""

    protocols = (RebalanceProtocol.COOPERATIVE,)
    every_partition = False
    one_owner = False

    def __init__(
        self,
        assignor: ServerAssignor,
        topic_ids: Mapping[str, bytes] | None = None,
        lags: Mapping[str, Mapping[int, int]] | None = None,
    ) -> None:
        self.name = f"{assignor.name} (on the broker)"
        self._assignor = assignor
        self._topic_ids = topic_ids or {}
        self._lags = lags or {}
        #: The target, and the members that it was computed for.
        self._target: dict[str, Assignment] = {}
        self._members: dict[str, tuple[str, ...]] = {}

    def assign(self, cluster: Cluster, subscriptions: Mapping[str, Subscription]) -> dict[str, Assignment]:
        """The target without what others still own. Raises AssignorError for a target that is none."""
        members = {member: said.topics for member, said in subscriptions.items()}
        if members != self._members:
            self._target = self._compute(cluster, subscriptions)
            self._members = members
        return hold_back(subscriptions, self._target)

    def _compute(self, cluster: Cluster, subscriptions: Mapping[str, Subscription]) -> dict[str, Assignment]:
        names = sorted({topic for said in subscriptions.values() for topic in said.topics if topic in cluster.topics})
        # topics of paper have no ids: these have the order of their names
        ids = {name: self._topic_ids.get(name, place.to_bytes(16)) for place, name in enumerate(names, 1)}
        topics = {
            ids[name]: TopicSpec(
                name, len(cluster.topics[name]), tuple(info.replica_racks for info in cluster.topics[name])
            )
            for name in names
        }
        group = GroupSpec(
            {member: _member(subscriptions[member], ids) for member in order.member_ids(subscriptions)},
            topics,
            SubscriptionType.HOMOGENEOUS
            if len({frozenset(said.topics) for said in subscriptions.values()}) <= 1
            else SubscriptionType.HETEROGENEOUS,
            {ids[name]: self._lags[name] for name in names if name in self._lags},
        )
        target = checked(self._assignor, group, self._assignor.assign(group))
        return {
            member: Assignment(
                tuple(
                    sorted(
                        TopicPartition(topics[topic_id].name, number)
                        for topic_id, numbers in target.get(member, {}).items()
                        for number in numbers
                    )
                )
            )
            for member in subscriptions
        }


def _member(said: Subscription, ids: Mapping[str, bytes]) -> MemberSpec:
    assigned: dict[bytes, list[int]] = {}
    for tp in said.owned_partitions:
        if tp.topic in ids:
            assigned.setdefault(ids[tp.topic], []).append(tp.partition)
    wants = {ids[topic] for topic in said.topics if topic in ids}
    return MemberSpec(order.subscription(wants), order.part(assigned), said.group_instance_id, said.rack_id)
