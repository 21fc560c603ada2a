"""What the coordinator wants this member to have, by topic ids, and which of it can be named (KIP-848).

A heartbeat names topics by id. The user knows topics by name, so each id has to be found in metadata first. Until then
the member reconciles the part that it can name. What it has reconciled is kept by ids, too: a topic that was deleted
and created again has the old name and a new id, and its partitions are others.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ottla.base.types import TopicPartition
from ottla.client.core.metadata import ClusterSnapshot
from ottla.wire.messages.consumer_group_heartbeat import TopicPartitions

ByTopicId = Mapping[bytes, frozenset[int]]


class Held(NamedTuple):
    """Partitions that the member has, or shall have, each topic with its id and its name."""

    #: Name and partitions by topic id.
    topics: Mapping[bytes, tuple[str, frozenset[int]]] = {}

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        """The partitions, by name."""
        return frozenset(TopicPartition(name, p) for name, numbers in self.topics.values() for p in numbers)

    @property
    def names(self) -> frozenset[str]:
        """The topics."""
        return frozenset(name for name, _ in self.topics.values())

    def kept(self, before: "Held") -> frozenset[TopicPartition]:
        """The partitions that were there before: of the same name, and of the same topic id."""
        return frozenset(
            TopicPartition(name, p)
            for topic_id, (name, numbers) in self.topics.items()
            for p in numbers & before.topics.get(topic_id, (name, frozenset()))[1]
        )

    def joined_with(self, other: ByTopicId) -> "Held":
        """With these partitions, too. Topics that have no name here get none: this is for the wire alone."""
        topics = dict(self.topics)
        for topic_id, numbers in other.items():
            name, mine = topics.get(topic_id, ("", frozenset()))
            topics[topic_id] = name, mine | numbers
        return Held(topics)

    @property
    def by_topic_id(self) -> ByTopicId:
        """The partitions, by topic id."""
        return {topic_id: numbers for topic_id, (_, numbers) in self.topics.items()}

    def for_the_wire(self) -> tuple[TopicPartitions, ...]:
        """As a heartbeat says it."""
        return tuple(
            TopicPartitions(topic_id, tuple(sorted(numbers))) for topic_id, (_, numbers) in sorted(self.topics.items())
        )


NOTHING = Held()


def read_target(said: Iterable[TopicPartitions]) -> ByTopicId:
    """The target in a heartbeat's answer. Topics without a partition are left out."""
    return {each.topic_id: frozenset(each.partitions) for each in said if each.partitions}


def named(target: ByTopicId, snapshot: ClusterSnapshot, before: Held) -> Held:
    """The part of the target whose topics are known: from metadata, or because the member has them already."""
    found = {}
    for topic_id, numbers in target.items():
        name = snapshot.names_by_id.get(topic_id) or before.topics.get(topic_id, ("",))[0]
        if name:
            found[topic_id] = name, numbers
    return Held(found)
