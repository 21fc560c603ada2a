"""A cooperative assignor for tests: round robin, but a partition that changes owner is first given up (KIP-429)."""

from collections.abc import Mapping

from ottla.assign import Assignment, BaseAssignor, Cluster, RebalanceProtocol, RoundRobinAssignor, Subscription


class CooperativeRoundRobin(BaseAssignor):
    """Withholds what another member still owns; that member rejoins when it has given it up, and then it is dealt."""

    name = "cooperative-round-robin"
    protocols = (RebalanceProtocol.COOPERATIVE,)

    def assign(self, cluster: Cluster, subscriptions: Mapping[str, Subscription]) -> dict[str, Assignment]:
        target = RoundRobinAssignor().assign(cluster, subscriptions)
        owners = {tp: member for member, said in subscriptions.items() for tp in said.owned_partitions}
        return {
            member: Assignment(tuple(tp for tp in given.partitions if owners.get(tp, member) == member))
            for member, given in target.items()
        }
