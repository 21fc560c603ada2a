"""A group on paper: what its assignor would do if somebody joined, died, or partitions were added (SPEC A4–A6).

It goes through rebalances as members do: before an eager one everybody gives up everything; in a cooperative one
(KIP-429) a member keeps what it has, gives up what it is not given again, and then all rebalance once more.

    group = Rehearsal(CooperativeStickyAssignor, Cluster.of({"t0": 3}))
    group.join("C0", ["t0"])
    group.settle()
    group.join("C1", ["t0"])
    [step.assignment for step in group.settle()]
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from ottla.assign.checking import check, user_data_of
from ottla.assign.types import Assignment, Assignor, Cluster, RebalanceProtocol, Subscription
from ottla.base.require import require
from ottla.base.types import TopicPartition

#: A cooperative group is stable after two generations, or three if claims contradicted each other.
_MOST_GENERATIONS = 10


class Step(NamedTuple):
    """One generation: what each member got, and what each member had to give up because of it."""

    generation_id: int
    assignment: dict[str, tuple[TopicPartition, ...]]
    revoked: dict[str, tuple[TopicPartition, ...]]


class _Member:
    def __init__(self, assignor: Assignor, subscription: Subscription) -> None:
        self.assignor = assignor
        self.subscription = subscription
        self.holds: tuple[TopicPartition, ...] = ()
        self.generation_id = -1

    def takes(self, assignment: Assignment, generation_id: int) -> None:
        self.holds = assignment.partitions
        self.generation_id = generation_id
        self.assignor.on_assignment(assignment, generation_id)


class Rehearsal:
    """The members, what they hold, and the generation. `make` makes the assignor of one member."""

    def __init__(self, make: Callable[[], Assignor], cluster: Cluster, generation_id: int = 0) -> None:
        self.cluster = cluster
        self.generation_id = generation_id
        self._make = make
        self._members: dict[str, _Member] = {}
        self._protocol = max(make().protocols)
        self.is_cooperative = self._protocol is RebalanceProtocol.COOPERATIVE

    @property
    def holds(self) -> dict[str, tuple[TopicPartition, ...]]:
        """What each member has now."""
        return {name: member.holds for name, member in self._members.items()}

    @property
    def subscriptions(self) -> dict[str, Subscription]:
        """What each member would send to the next rebalance."""
        return {name: self._said_by(member) for name, member in self._members.items()}

    def join(
        self,
        name: str,
        topics: Iterable[str],
        *,
        holds: Iterable[TopicPartition] | None = None,
        rack_id: str | None = None,
        group_instance_id: str | None = None,
    ) -> None:
        """A member comes, or an old one wants other topics. `holds` is what it got in the generation that is now."""
        member = self._members.get(name)
        if member is None:
            member = self._members[name] = _Member(self._make(), Subscription(()))
        member.subscription = Subscription(
            tuple(dict.fromkeys(topics)), rack_id=rack_id, group_instance_id=group_instance_id
        )
        if holds is not None:
            member.takes(Assignment(tuple(holds)), self.generation_id)

    def leave(self, name: str) -> None:
        """A member dies or leaves. KeyError if there is no such member."""
        del self._members[name]

    def rebalance(self) -> Step:
        """One generation. Raises InvalidAssignmentError for an assignor's answer that is no assignment."""
        if not self._members:
            return Step(self.generation_id, {}, {})
        leader = next(iter(self._members.values())).assignor
        said = self.subscriptions
        given = check(leader, self.cluster, said, leader.assign(self.cluster, said), self._protocol)
        self.generation_id += 1
        revoked: dict[str, tuple[TopicPartition, ...]] = {}
        for name, assignment in given.items():
            member = self._members[name]
            kept = frozenset(assignment.partitions)
            revoked[name] = tuple(tp for tp in member.holds if tp not in kept)
            member.takes(assignment, self.generation_id)
        return Step(self.generation_id, {name: given[name].partitions for name in self._members}, revoked)

    def settle(self) -> list[Step]:
        """Generations until nobody has to give up anything any more: one if the group is eager."""
        steps = [self.rebalance()]
        while self.is_cooperative and any(steps[-1].revoked.values()):
            require(len(steps) < _MOST_GENERATIONS, "a cooperative assignor takes partitions away without an end")
            steps.append(self.rebalance())
        return steps

    def _said_by(self, member: _Member) -> Subscription:
        wanted = member.subscription
        return wanted._replace(
            user_data=user_data_of(member.assignor, frozenset(wanted.topics)),
            owned_partitions=member.holds if self.is_cooperative else (),
            generation_id=member.generation_id,
        )


def by_owner(assignment: Mapping[str, Iterable[TopicPartition]]) -> dict[TopicPartition, list[str]]:
    """Partition → the members that have it, which is more than one only if an assignor means it so."""
    found: dict[TopicPartition, list[str]] = {}
    for member, partitions in assignment.items():
        for tp in partitions:
            found.setdefault(tp, []).append(member)
    return found
