"""The order in which assignors of the server side see members, topics, partitions: that of Java's hash tables.

Two entries that nothing else tells apart get their partitions in this order. So a group that moves between Apache Kafka
and Ottla keeps its assignment, and the differential tests can ask for equality.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from ottla.assign.java_hash import string_hash, table_order
from ottla.assign.server.types import Partitions


def member_ids(ids: Iterable[str], hash_of: Callable[[str], int] = string_hash) -> list[str]:
    """Member ids as a HashMap has them. `hash_of` may know their hashes already, which take most of the time."""
    return table_order(ids, hash_of)


def topic_ids(ids: Iterable[bytes], *, copied: bool = False) -> list[bytes]:
    """Topic ids as a HashMap has them, or with `copied` a HashSet that was made of another one."""
    return table_order(ids, uuid_hash, copied=copied)


def partitions(numbers: Iterable[int]) -> list[int]:
    """Partition numbers as a HashSet has them that was made of a list."""
    return table_order(numbers, int, copied=True)


def subscription(ids: Iterable[bytes]) -> list[bytes]:
    """The ids of the topics that a member subscribes to, all different, as an assignor sees them."""
    return topic_ids(sorted(ids), copied=True)


def part(target: Mapping[bytes, Iterable[int]]) -> Partitions:
    """A member's part of the target before, as an assignor sees it."""
    return {each: partitions(sorted(target[each])) for each in topic_ids(target)}


def uuid_hash(topic_id: bytes) -> int:
    """`Uuid.hashCode` of Kafka's clients, as an unsigned number."""
    words = int.from_bytes(topic_id[:8], "big") ^ int.from_bytes(topic_id[8:], "big")
    return (words >> 32 ^ words) & 0xFFFFFFFF
