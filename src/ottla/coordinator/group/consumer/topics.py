"""What consumer groups need to know of topics: the port to the metadata, and a hash that changes when topics do.

The group epoch's record holds a hash over all topics that the group subscribes to (KIP-1101): their ids, names, numbers
of partitions and racks. When a heartbeat finds another hash, the group's epoch rises. The hash is Apache Kafka's own,
so that a directory that changes hands costs no rebalance.
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Iterable, Iterator
from operator import attrgetter
from typing import Final, NamedTuple, Protocol

from ottla.base.limits import MAX_NAMES_AT_ONCE
from ottla.base.steps import result_of
from ottla.wire.xxh3 import xxh3_64

_MAGIC: Final = b"\0"


class Topic(NamedTuple):
    """One topic. `racks`: of each partition the racks of its replicas; () when no broker names one."""

    name: str
    topic_id: bytes
    partitions: int
    racks: tuple[tuple[str, ...], ...] = ()


class Topics(Protocol):
    """The metadata, as the coordinator sees it just now."""

    @property
    def version(self) -> int:
        """Rises with every change of the metadata, and never falls, also over restarts."""
        ...

    @property
    def created_version(self) -> int:
        """The version in which a topic was last made."""
        ...

    def find(self, name: str) -> Topic | None:
        """The topic that has this name now."""
        ...

    def find_id(self, topic_id: bytes) -> Topic | None:
        """The topic with this id."""
        ...

    def names(self) -> Iterator[str]:
        """All names, in any order."""
        ...


class NoTopics:
    """A cluster without any topics."""

    version = 0
    created_version = 0

    def find(self, name: str) -> Topic | None:
        return None

    def find_id(self, topic_id: bytes) -> Topic | None:
        return None

    def names(self) -> Iterator[str]:
        return iter(())


class TopicHashes:
    """Hashes of topics, kept as long as the topic is the same."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._known: dict[str, tuple[Topic, int]] = {}

    def of_group(self, names: Iterable[str]) -> int:
        """The hash over those of these topics that exist; 0 when none does."""
        return result_of(self.steps_of_group(names))

    def steps_of_group(self, names: Iterable[str]) -> Generator[None, None, int]:
        """The same in steps, of very many names."""
        found: list[Topic] = []
        for number, name in enumerate(names):
            if number and number % MAX_NAMES_AT_ONCE == 0:
                yield
            topic = self._topics.find(name)
            if topic is not None:
                found.append(topic)
        if not found:
            return 0
        found.sort(key=attrgetter("name"))  # Java's order: names of topics are ASCII
        packed = bytearray()
        for number, topic in enumerate(found):
            if number and number % MAX_NAMES_AT_ONCE == 0:
                yield
            packed += struct.pack("<q", self._of_topic(topic))
        return xxh3_64(bytes(packed))

    def _of_topic(self, topic: Topic) -> int:
        known = self._known.get(topic.name)
        if known is None or known[0] != topic:
            known = self._known[topic.name] = (topic, topic_hash(topic))
        return known[1]


def topic_hash(topic: Topic) -> int:
    """Kafka's hash of one topic: numbers with the least byte first, texts in UTF-16 followed by their length."""
    high, low = struct.unpack(">qq", topic.topic_id)
    parts = [_MAGIC, struct.pack("<qq", high, low), _text(topic.name), struct.pack("<i", topic.partitions)]
    for partition in range(topic.partitions):
        parts.append(struct.pack("<i", partition))
        for rack in sorted(topic.racks[partition] if topic.racks else ()):
            parts += [struct.pack("<i", len(rack)), _text(rack)]
    return xxh3_64(b"".join(parts))


def _text(text: str) -> bytes:
    encoded = text.encode("utf-16-le", "surrogatepass")
    return encoded + struct.pack("<i", len(encoded) // 2)
