"""The order in which Java's HashMap and HashSet go through what they hold.

Some assignors of Apache Kafka serve members in the order of a HashMap. That order is the same in every run: it follows
from the hashes. Ours keep it, so that a group gets the same assignment whether a Java client leads it or we do.

A table has a power of two of buckets, at least 16, and doubles when it is more than three quarters full; it never
shrinks. A bucket keeps the order in which its entries came. (Java turns a bucket of eight entries into a tree; the
chance of one is below one in ten million, and it could only change which of two equally good answers comes out.)
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from operator import mul
from typing import TypeVar

from ottla.base.types import TopicPartition

T = TypeVar("T")

_SMALLEST_TABLE = 16
_MASK = 0xFFFFFFFF
_POWERS = [1]


def string_hash(text: str) -> int:
    """`java.lang.String.hashCode` over UTF-16 code units, as an unsigned number of 32 bits."""
    units = array("H", text.encode("utf-16-le", "surrogatepass"))
    units.reverse()
    while len(_POWERS) < len(units):
        _POWERS.append(_POWERS[-1] * 31 & _MASK)
    total: int = sum(map(mul, units, _POWERS))
    return total & _MASK


def partition_hash(partition: TopicPartition, topic_hash: int) -> int:
    """`org.apache.kafka.common.TopicPartition.hashCode`, from the hash of its topic."""
    return (31 * (31 + partition.partition) + topic_hash) & _MASK


def hash_order(texts: Iterable[str]) -> list[str]:
    """`texts`, all different, in the order of a HashMap that they were put into one after the other."""
    return table_order(texts, string_hash)


def table_order(keys: Iterable[T], hash_of: Callable[[T], int], *, copied: bool = False) -> list[T]:
    """`keys`, all different, in the order of a HashMap or HashSet that they were put into one after the other.

    `copied`: all of them at once, by the constructor. Then the table is already twice as large when it is exactly
    three quarters full.
    """
    given = list(keys)
    table = _SMALLEST_TABLE
    while len(given) * 4 > table * 3 or (copied and len(given) * 4 == table * 3):
        table *= 2

    def bucket(key: T) -> int:
        hashed = hash_of(key) & _MASK
        return (hashed ^ hashed >> 16) & (table - 1)

    return sorted(given, key=bucket)


class PartitionHashSet:
    """A HashSet of partitions of one topic, of which only the first in Java's order is asked for."""

    def __init__(self, topic: str) -> None:
        self._topic_hash = string_hash(topic)
        self._table = _SMALLEST_TABLE
        #: Partition → its hash, as HashMap spreads it. A dict keeps the order in which they came.
        self._hashes: dict[TopicPartition, int] = {}

    def __len__(self) -> int:
        return len(self._hashes)

    def add(self, partition: TopicPartition) -> None:
        hashed = partition_hash(partition, self._topic_hash)
        self._hashes[partition] = hashed ^ hashed >> 16
        if len(self._hashes) * 4 > self._table * 3:
            self._table *= 2

    def remove(self, partition: TopicPartition) -> None:
        del self._hashes[partition]

    def first(self) -> TopicPartition:
        last_bucket = self._table - 1
        return min(self._hashes, key=lambda partition: self._hashes[partition] & last_bucket)
