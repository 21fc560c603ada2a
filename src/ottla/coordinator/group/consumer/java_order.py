"""The order in which Java's hash tables have their entries: Kafka's assignors go through members and topics in it.

Two entries that nothing else tells apart get their partitions in this order. So a group that moves between Apache Kafka
and Ottla keeps its assignment, and the differential tests can ask for equality.

A table has 2^n places, and is never more than three quarters full. An entry's place is its hash, with the upper half
folded into the lower one, modulo the number of places; entries of one place stand in the order of their coming.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from ottla.wire.hashing import java_string_hash

T = TypeVar("T")

_SMALLEST_TABLE: Final = 16


def by_hash(keys: Iterable[T], hash_of: Callable[[T], int]) -> list[T]:
    """The keys in the order of a Java hash table that they were put into one by one."""
    found = list(keys)
    places = _SMALLEST_TABLE
    while len(found) > places * 3 // 4:
        places *= 2

    def place(key: T) -> int:
        value = hash_of(key) & 0xFFFFFFFF
        return (value ^ value >> 16) & places - 1

    return sorted(found, key=place)


def member_ids(ids: Iterable[str]) -> list[str]:
    """Member ids as a Java HashMap has them."""
    return by_hash(ids, java_string_hash)


def topic_ids(ids: Iterable[bytes]) -> list[bytes]:
    """Topic ids as a Java HashMap or HashSet has them."""
    return by_hash(ids, uuid_hash)


def partitions(numbers: Iterable[int]) -> list[int]:
    """Partition numbers as a Java HashSet has them, which was made from a list."""
    return by_hash(numbers, int)


def uuid_hash(topic_id: bytes) -> int:
    """`Uuid.hashCode` of Kafka's clients."""
    words = int.from_bytes(topic_id[:8], "big") ^ int.from_bytes(topic_id[8:], "big")
    return (words >> 32 ^ words) & 0xFFFFFFFF
