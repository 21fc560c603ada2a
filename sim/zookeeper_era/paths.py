"""The paths that the consumers of Kafka 0.8 used in ZooKeeper."""

from __future__ import annotations

from typing import Final

GROUP: Final = "readers"
TOPIC: Final = "words"
#: The brokers' ids, ephemeral, each with its address.
BROKERS: Final = "/brokers/ids"
#: A topic's partitions are the data of its node.
TOPIC_PATH: Final = f"/brokers/topics/{TOPIC}"
#: The members of the group: ephemeral, each with its subscription.
IDS: Final = f"/consumers/{GROUP}/ids"
#: Who reads a partition: ephemeral, so that it goes with the reader.
OWNERS: Final = f"/consumers/{GROUP}/owners/{TOPIC}"
#: How far the group has read: persistent, any client may write it.
OFFSETS: Final = f"/consumers/{GROUP}/offsets/{TOPIC}"


def member(name: str) -> str:
    """A member's registration."""
    return f"{IDS}/{name}"


def owner(partition: int) -> str:
    """The claim on a partition."""
    return f"{OWNERS}/{partition}"


def offset(partition: int) -> str:
    """The group's offset in a partition."""
    return f"{OFFSETS}/{partition}"
