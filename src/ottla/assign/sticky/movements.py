"""Which partitions have moved between which members, so that no two of one topic move against each other."""

from __future__ import annotations

from ottla.assign.java_hash import PartitionHashSet
from ottla.base.types import TopicPartition


class Movements:
    """The moves of one division. A partition that moves twice counts as moved once, from its first owner."""

    def __init__(self) -> None:
        #: Partition → (from, to).
        self._moves: dict[TopicPartition, tuple[int, int]] = {}
        #: Topic → (from, to) → partitions.
        self._by_topic: dict[str, dict[tuple[int, int], PartitionHashSet]] = {}

    def better_choice(self, partition: TopicPartition, owner: int, receiver: int) -> TopicPartition:
        """The partition to move instead of `partition` from `owner` to `receiver`: one of the topic that has moved the
        other way, so that it returns."""
        pairs = self._by_topic.get(partition.topic)
        if pairs is None:
            return partition
        if partition in self._moves:
            owner = self._moves[partition][0]
        returning = pairs.get((receiver, owner))
        return partition if returning is None else returning.first()

    def add(self, partition: TopicPartition, owner: int, receiver: int) -> None:
        """`partition` goes from `owner` to `receiver`."""
        before = self._moves.pop(partition, None)
        if before is not None:
            self._forget(partition, before)
            owner = before[0]
            if owner == receiver:
                return
        self._moves[partition] = owner, receiver
        pairs = self._by_topic.setdefault(partition.topic, {})
        if (owner, receiver) not in pairs:
            pairs[owner, receiver] = PartitionHashSet(partition.topic)
        pairs[owner, receiver].add(partition)

    def _forget(self, partition: TopicPartition, pair: tuple[int, int]) -> None:
        pairs = self._by_topic[partition.topic]
        pairs[pair].remove(partition)
        if not pairs[pair]:
            del pairs[pair]
        if not pairs:
            del self._by_topic[partition.topic]
