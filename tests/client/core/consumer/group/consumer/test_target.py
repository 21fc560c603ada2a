"""KIP-848: targets by topic id, and the part of them that can be named."""

from ottla.base.types import TopicPartition
from ottla.client.core.consumer.group.consumer.target import NOTHING, Held, named, read_target
from ottla.wire.messages.consumer_group_heartbeat import TopicPartitions
from tests.client.core.consumer.rig import snapshot, topic_id

T, U = topic_id("t"), topic_id("u")


def test_a_target_is_read_without_topics_that_have_no_partition() -> None:
    assert read_target((TopicPartitions(T, (1, 0)), TopicPartitions(U, ()))) == {T: frozenset({0, 1})}


def test_names_come_from_metadata_or_from_what_the_member_has() -> None:
    target = {T: frozenset({0}), U: frozenset({1})}
    assert named(target, snapshot(t=1), NOTHING) == Held({T: ("t", frozenset({0}))})
    had = Held({U: ("u", frozenset({0}))})
    assert named(target, snapshot(t=1), had).partitions == {TopicPartition("t", 0), TopicPartition("u", 1)}


def test_only_the_same_partitions_of_the_same_topic_are_kept() -> None:
    before = Held({T: ("t", frozenset({0, 1}))})
    assert Held({T: ("t", frozenset({1, 2}))}).kept(before) == {TopicPartition("t", 1)}
    assert Held({U: ("t", frozenset({1, 2}))}).kept(before) == frozenset(), "the name is old, the topic is new"


def test_a_heartbeat_says_what_is_held_in_one_order() -> None:
    held = Held({U: ("u", frozenset({1, 0})), T: ("t", frozenset({2}))})
    assert held.for_the_wire() == (TopicPartitions(T, (2,)), TopicPartitions(U, (0, 1)))
    assert held.names == {"t", "u"}
