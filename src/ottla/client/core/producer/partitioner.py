"""Which partition a record goes to (SPEC C6): the one asked for, murmur2 of the key, else sticky and uniform (KIP-794).

Sticky: records without a key fill one partition until `batch.size` bytes went there and its batch is closed, then the
next partition is drawn. So batches are full and partitions get the same number of bytes.
"""

from collections.abc import Callable
from functools import lru_cache

from ottla.base.rng import Rng
from ottla.wire.hashing import partition_for_key

#: partition(topic, key, number of partitions) -> partition
Partitioner = Callable[[str, bytes | None, int], int]


class StickyPartition:
    """The partition that records without a key of one topic go to."""

    def __init__(self, batch_size_bytes: int, rng: Rng) -> None:
        self.partition = -1
        self._batch_size_bytes = batch_size_bytes
        self._rng = rng
        self._available: list[int] = []
        self._count = 0
        self._bytes = 0

    def set_partitions(self, count: int, available: list[int]) -> None:
        """There are `count` partitions, of which `available` have a leader."""
        self._count = count
        self._available = available
        if self.partition < 0 or self.partition >= count or (available and self.partition not in available):
            self._draw()

    def closed(self, batch_bytes: int) -> bool:
        """A batch of `batch_bytes` was closed there; says whether the partition has changed."""
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
    wanted = key or b""
    return _remembered(wanted, count) if len(wanted) <= _MAX_REMEMBERED_BYTES else partition_for_key(wanted, count)


#: Keys repeat; looking one up is ten times as fast as hashing it. Bounded: 16,384 keys of at most 64 bytes.
_MAX_REMEMBERED_BYTES = 64
_remembered = lru_cache(maxsize=16_384)(partition_for_key)
