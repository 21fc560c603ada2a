"""The two sticky assignors (SPEC A4–A6)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping

from ottla.assign.cooperative import changing_owner
from ottla.assign.sticky.board import Board, Claim, Held
from ottla.assign.sticky.constrained import Constrained
from ottla.assign.sticky.general import General
from ottla.assign.sticky.user_data import (
    NO_GENERATION,
    decode_assignment,
    decode_generation,
    encode_assignment,
    encode_generation,
)
from ottla.assign.types import Assignment, BaseAssignor, Cluster, RebalanceProtocol, Subscription
from ottla.base.types import TopicPartition


class _Sticky(BaseAssignor):
    """What both have in common: the division."""

    @abstractmethod
    def claim(self, subscription: Subscription) -> Claim:
        """What the member says it holds."""

    def divide(
        self, cluster: Cluster, subscriptions: Mapping[str, Subscription]
    ) -> tuple[dict[str, list[TopicPartition]], set[TopicPartition] | None]:
        """Each member's partitions, and those of them that another member held; None if that was not looked for."""
        if not subscriptions:
            return {}, set()
        board = Board(cluster, subscriptions)
        claims = [self.claim(said) for said in board.subscriptions]
        held = Held(board, claims)
        names = board.partitions
        moved: set[TopicPartition] | None = None
        if board.all_want_the_same:
            constrained = Constrained(board, held)
            constrained.divide()
            given, moved = constrained.given, {names[partition] for partition in constrained.moved}
        else:
            general = General(board, held, claims)
            general.divide()
            given = general.given
        found = {
            member: [names[partition] for partition in sorted(mine)]
            for member, mine in zip(board.members, given, strict=True)
        }
        return {member: found[member] for member in subscriptions}, moved


class StickyAssignor(_Sticky):
    """`partition.assignment.strategy=sticky`. Eager: members give up everything before each rebalance, and say in
    their user data what they had."""

    name = "sticky"

    def __init__(self) -> None:
        self._last: tuple[tuple[TopicPartition, ...], int] | None = None

    def subscription_user_data(self, topics: frozenset[str]) -> bytes | None:
        """The last assignment and its generation; None before the first."""
        return None if self._last is None else encode_assignment(*self._last)

    def on_assignment(self, assignment: Assignment, generation_id: int) -> None:
        """Remember it for the next rebalance."""
        self._last = assignment.partitions, generation_id

    def claim(self, subscription: Subscription) -> Claim:
        return Claim(*decode_assignment(subscription.user_data))

    def assign(self, cluster: Cluster, subscriptions: Mapping[str, Subscription]) -> dict[str, Assignment]:
        given, _ = self.divide(cluster, subscriptions)
        return {member: Assignment(tuple(partitions)) for member, partitions in given.items()}


class CooperativeStickyAssignor(_Sticky):
    """`partition.assignment.strategy=cooperative-sticky`. The same division, but a partition that changes its owner is
    given to nobody at first: its owner gives it up and joins again, and the next rebalance hands it over (KIP-429)."""

    name = "cooperative-sticky"
    protocols = (RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER)

    def __init__(self) -> None:
        self._generation_id = NO_GENERATION

    def subscription_user_data(self, topics: frozenset[str]) -> bytes | None:
        """The generation of the last assignment, for leaders that read nothing newer than KIP-429."""
        return encode_generation(self._generation_id)

    def on_assignment(self, assignment: Assignment, generation_id: int) -> None:
        """Remember the generation."""
        self._generation_id = generation_id

    def claim(self, subscription: Subscription) -> Claim:
        generation_id = subscription.generation_id
        if generation_id < 0:
            generation_id = decode_generation(subscription.user_data)
        return Claim(subscription.owned_partitions, generation_id)

    def assign(self, cluster: Cluster, subscriptions: Mapping[str, Subscription]) -> dict[str, Assignment]:
        given, moved = self.divide(cluster, subscriptions)
        if moved is None:
            moved = changing_owner(subscriptions, given)
        return {
            member: Assignment(tuple(tp for tp in partitions if tp not in moved) if moved else tuple(partitions))
            for member, partitions in given.items()
        }
