"""Which partition a record goes to (SPEC C6): the given one, else by murmur2 of the key, else sticky (KIP-794).

Sticky: records without a key go to one partition until it has got `batch.size` bytes and its batch is closed. Then the
next partition is chosen by chance. So batches are full, and all partitions get about the same number of bytes.
"""

from collections.abc import Callable

from ottla.base.rng import Rng
from ottla.wire.hashing import partition_for_key

#: partition(topic, key, number of partitions) -> partition
Partitioner = Callable[[str, bytes | None, int], int]


class StickyPartition:
    """The partition that records without a key go to now, in one topic."""

    def __init__(self, batch_size_bytes: int, rng: Rng) -> None:
        self.partition = -1
        self._batch_size_bytes = batch_size_bytes
        self._rng = rng
        self._available: list[int] = []
        self._count = 0
        self._bytes = 0

    def set_partitions(self, count: int, available: list[int]) -> None:
        """The topic has `count` partitions; those in `available` have a leader."""
        self._count = count
        self._available = available
        if self.partition < 0 or self.partition >= count or (available and self.partition not in available):
            self._draw()

    def closed(self, batch_bytes: int) -> bool:
        """A batch of `batch_bytes` was closed in this partition. Returns whether the partition has changed."""
        self._bytes += batch_bytes
        if self._bytes < self._batch_size_bytes:
            return False
        return self._draw()

    def _draw(self) -> bool:
        before, self._bytes = self.partition, 0
        choices = self._available or range(self._count)
        others = [p for p in choices if p != before] if len(choices) > 2 else choices
        self.partition = self._rng.choice(others) if others else -1
        return self.partition != before


def by_key(topic: str, key: bytes | None, count: int) -> int:
    """Kafka's partition of a key. `key` is not None."""
    return partition_for_key(key or b"", count)
