"""What is divided, among whom, and who holds what now: members and partitions as small numbers.

Members are numbered by their ids in Java's order, partitions by topic and number. Sizes and orders are then compared
as plain ints, which is what makes a group of thousands of members quick.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import repeat
from typing import NamedTuple

from ottla.assign.java_hash import hash_order
from ottla.assign.types import Cluster, Subscription, java_order
from ottla.base.types import TopicPartition

_MAKE = tuple.__new__


class Claim(NamedTuple):
    """What a member says it holds, and since which generation (-1 if it does not say)."""

    partitions: Sequence[TopicPartition]
    generation_id: int


class Board:
    """The cluster and the members as numbers."""

    def __init__(self, cluster: Cluster, subscriptions: Mapping[str, Subscription]) -> None:
        self.members = sorted(subscriptions, key=java_order)
        self._given = subscriptions
        self.subscriptions = [subscriptions[member] for member in self.members]
        #: Subscriptions are often the same; one set serves all of them.
        sets: dict[tuple[str, ...], frozenset[str]] = {}
        for said in self.subscriptions:
            if said.topics not in sets:
                sets[said.topics] = frozenset(said.topics)
        self.all_want_the_same = len(set(sets.values())) <= 1
        known = frozenset(topic for topic in frozenset[str]().union(*sets.values()) if cluster.topics.get(topic))
        self.topics = sorted(known, key=java_order)
        kept = {topics: wanted & known for topics, wanted in sets.items()}
        #: For each member the topics that it wants and that exist.
        self.wanted = [kept[said.topics] for said in self.subscriptions]
        self.partitions: list[TopicPartition] = []
        self.replica_racks: list[tuple[str, ...]] = []
        #: Topic → the numbers of its partitions.
        self.span: dict[str, range] = {}
        for topic in self.topics:
            infos = sorted(cluster.topics[topic])
            start = len(self.partitions)
            self.partitions += map(
                _MAKE, repeat(TopicPartition), zip(repeat(topic), (info.partition for info in infos), strict=False)
            )
            self.replica_racks += [info.replica_racks for info in infos]
            self.span[topic] = range(start, len(self.partitions))
        self.number_of = dict(zip(self.partitions, range(len(self.partitions)), strict=True))

    def served(self) -> list[int]:
        """The members in the order in which Apache Kafka's assignors come to them."""
        number_of = {member: number for number, member in enumerate(self.members)}
        return [number_of[member] for member in hash_order(self._given)]


class Held:
    """Who holds what. Claims to partitions that do not exist count for nothing.

    If two members of one generation claim a partition, nobody holds it: both must give it up. Otherwise the newer
    generation holds it (KIP-341, KIP-792).
    """

    def __init__(self, board: Board, claims: Sequence[Claim]) -> None:
        self._generations = [max(said.generation_id, -1) for said in board.subscriptions]
        #: The order in which members are served; it means something only if somebody holds something.
        self.served = board.served() if any(claim.partitions for claim in claims) else list(range(len(claims)))
        #: For each member the numbers of its partitions.
        self.of: list[list[int]] = [[] for _ in claims]
        #: Partitions that several members of one generation claimed.
        self.claimed_twice: set[int] = set()
        claimants: dict[int, int] = {}
        for member in self.served:
            partitions, generation_id = claims[member]
            numbers = [number for number in map(board.number_of.get, partitions) if number is not None]
            mine = dict.fromkeys(numbers, member)
            if len(mine) == len(numbers) and claimants.keys().isdisjoint(mine):
                self.of[member] = numbers
                claimants.update(mine)
            else:
                for number in numbers:
                    self._claim(claimants, member, number, generation_id)

    def _claim(self, claimants: dict[int, int], member: int, number: int, generation_id: int) -> None:
        other = claimants.get(number)
        if other is None:
            claimants[number] = member
            self.of[member].append(number)
        elif generation_id >= self._generations[other]:
            claimants[number] = member
            if number in self.of[other]:
                self.of[other].remove(number)
            if generation_id == self._generations[other]:
                self.claimed_twice.add(number)
            else:
                self.of[member].append(number)
