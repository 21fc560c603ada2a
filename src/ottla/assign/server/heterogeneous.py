"""`uniform` for members that subscribe to different topics: as even as subscriptions allow, and then as sticky.

1. Members keep what they have of topics that they still subscribe to.
2. What nobody has goes to the subscriber with the fewest partitions. Topics with many partitions a subscriber come
   first, for their subscribers have the least choice.
3. Topic by topic, partitions move from the subscriber with the most to the one with the fewest, until they differ by
   one at most. That may upset another topic's balance, so it goes round until nothing moves, `_MAX_ROUNDS` at most.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from ottla.assign.server.balancer import Balancer
from ottla.assign.server.types import AssignorError, GroupSpec, Partitions

#: Apache Kafka's limit: each round about halves the imbalance.
_MAX_ROUNDS: Final = 16
_NOBODY: Final = -1


class HeterogeneousBuilder:
    """One assignment; members are numbered in their order. See the module."""

    def __init__(self, group: GroupSpec) -> None:
        self._group = group
        self._member_ids = list(group.members)
        self._subscribers: dict[bytes, list[int]] = {}
        for number, member in enumerate(group.members.values()):
            for topic_id in member.topic_ids:
                if topic_id not in group.topics:
                    raise AssignorError("Members are subscribed to a topic which doesn't exist in the topic metadata.")
                self._subscribers.setdefault(topic_id, []).append(number)
        self._owners = {each: [_NOBODY] * group.topics[each].partitions for each in self._subscribers}
        #: How many partitions each member has in the new target.
        self._sizes = [0] * len(self._member_ids)

    def build(self) -> Mapping[str, Partitions]:
        """The new target."""
        if not self._subscribers:
            return {}
        self._keep()
        self._assign_free()
        self._balance()
        target: dict[str, dict[bytes, list[int]]] = {member_id: {} for member_id in self._member_ids}
        for topic_id, owners in self._owners.items():
            for partition, owner in enumerate(owners):
                target[self._member_ids[owner]].setdefault(topic_id, []).append(partition)
        return target

    def _keep(self) -> None:
        for number, member in enumerate(self._group.members.values()):
            wanted = frozenset(member.topic_ids)
            for topic_id, partitions in member.assigned.items():
                if topic_id in wanted:
                    self._sizes[number] += len(partitions)
                    for partition in partitions:
                        self._owners[topic_id][partition] = number

    def _assign_free(self) -> None:
        free = {
            topic_id: [number for number, owner in enumerate(owners) if owner == _NOBODY]
            for topic_id, owners in self._owners.items()
        }
        balancer = Balancer(self._sizes)
        for topic_id in self._sorted(topic_id for topic_id, numbers in free.items() if numbers):
            balancer.begin(self._subscribers[topic_id])
            for partition in free[topic_id]:
                self._give(topic_id, partition, balancer.next_least_loaded())

    def _give(self, topic_id: bytes, partition: int, member: int) -> None:
        owners = self._owners[topic_id]
        if owners[partition] != _NOBODY:
            self._sizes[owners[partition]] -= 1
        owners[partition] = member
        self._sizes[member] += 1

    def _balance(self) -> None:
        topics = self._sorted(topic_id for topic_id, members in self._subscribers.items() if len(members) > 1)
        balancer = Balancer(self._sizes)
        last_moved = -1
        for _ in range(_MAX_ROUNDS):
            for at, topic_id in enumerate(topics):
                if at == last_moved:
                    return  # all topics were looked at since, and nothing moved
                if self._balance_topic(topic_id, balancer) or last_moved == -1:
                    last_moved = at

    def _balance_topic(self, topic_id: bytes, balancer: Balancer) -> bool:
        """Even out one topic; whether a partition moved."""
        if balancer.begin(self._subscribers[topic_id]) <= 1:
            return False
        owned: dict[int, list[int]] = {}
        for partition, owner in enumerate(self._owners[topic_id]):
            owned.setdefault(owner, []).append(partition)
        moved = False
        while True:
            giver = balancer.next_most_loaded()
            while giver is not None and not owned.get(giver):
                balancer.exclude_most_loaded()
                giver = balancer.next_most_loaded()
            if giver is None:
                return moved
            partition = owned[giver].pop()
            taker = balancer.next_least_loaded()
            if balancer.is_balanced():
                return moved
            self._give(topic_id, partition, taker)
            moved = True

    def _sorted(self, topic_ids: Iterable[bytes]) -> list[bytes]:
        """Topics with the most partitions a subscriber first, then those with fewer subscribers, then by id."""

        def order(topic_id: bytes) -> tuple[float, int, tuple[int, int]]:
            members = len(self._subscribers[topic_id])
            return -(self._group.topics[topic_id].partitions / members), members, _signed(topic_id)

        return sorted(topic_ids, key=order)


def _signed(topic_id: bytes) -> tuple[int, int]:
    """A topic id as Java compares it: two signed numbers of 64 bits."""
    return int.from_bytes(topic_id[:8], "big", signed=True), int.from_bytes(topic_id[8:], "big", signed=True)
