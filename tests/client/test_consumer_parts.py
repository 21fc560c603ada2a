"""Serializers, reset policies, subscriptions and the group protocol's bytes. Pure."""

import re

import pytest

from ottla.assign import Assignment, BaseAssignor, RangeAssignor, RebalanceProtocol, RoundRobinAssignor
from ottla.base.errors import ConfigError
from ottla.base.types import TopicPartition
from ottla.client.config.consumer import consumer_config, reset_time
from ottla.client.core.consumer.group_protocol import (
    assign_all,
    assignors,
    encode_one,
    read_assignment,
    read_subscriptions,
    rebalance_protocol,
    subscription_protocols,
)
from ottla.client.core.consumer.offset_reset import OffsetReset
from ottla.client.core.consumer.subscription import Kind, Subscription
from ottla.client.core.metadata import ClusterSnapshot, PartitionInfo, TopicInfo
from ottla.client.errors import IllegalStateError, SerializationError
from ottla.client.serdes import deserializer, serialize, serializer
from ottla.wire.messages.join_group import JoinGroupResponseMember


class Upper:
    """A serializer as a class."""

    def serialize(self, topic: str, data: str) -> bytes:
        return data.upper().encode()


def test_c2_serializers_are_callables_objects_or_classes() -> None:
    for given in (Upper, Upper(), lambda topic, data: data.upper().encode()):
        assert serialize(serializer("value.serializer", given), "t", "value", "a") == b"A"
    assert serializer("value.serializer", None) is None
    with pytest.raises(ConfigError, match=r"value\.deserializer"):
        deserializer("value.deserializer", 5)


def test_c2_what_cannot_be_serialized_names_the_topic() -> None:
    with pytest.raises(SerializationError, match=r"topic t: the value is a str, without a value\.serializer"):
        serialize(None, "t", "value", "text")
    with pytest.raises(SerializationError, match="topic t: the key could not be serialized"):
        serialize(serializer("key.serializer", Upper), "t", "key", 5)
    assert serialize(None, "t", "value", bytearray(b"x")) == b"x"


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("earliest", -2),
        ("latest", -1),
        ("none", None),
        ("by_duration:P1D", 100_000_000 - 86_400_000),
        ("by_duration:PT1H30M", 100_000_000 - 5_400_000),
        ("by_duration:PT0.5S", 99_999_500),
    ],
)
def test_o5_reset_policies(policy: str, expected: int | None) -> None:
    assert reset_time(policy, 100_000_000) == expected


@pytest.mark.parametrize("policy", ["by_duration:", "by_duration:1D", "by_duration:P"])
def test_o5_a_bad_duration_is_a_config_error(policy: str) -> None:
    with pytest.raises(ConfigError, match=r"auto\.offset\.reset"):
        reset_time(policy, 0)


def test_o5_a_reset_counts_what_was_skipped() -> None:
    tp = TopicPartition("t", 0)
    assert [OffsetReset(tp, *moved).skipped for moved in ((5, 9), (9, 5), (-1, 5))] == [4, 0, 0]


def test_c3_an_unknown_reset_policy_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"earliest, latest, none or by_duration"):
        consumer_config({"bootstrap.servers": "a:1", "auto.offset.reset": "first"})


def snapshot(**counts: int) -> ClusterSnapshot:
    return ClusterSnapshot(
        topics={
            name: TopicInfo(name, bytes(16), {n: PartitionInfo(1, 0) for n in range(count)}, name.startswith("__"))
            for name, count in counts.items()
        }
    )


def test_c1_a_pattern_matches_whole_names_and_leaves_internal_topics_alone() -> None:
    subscription = Subscription()
    subscription.subscribe(re.compile("a.*|__.*"))
    assert subscription.match(snapshot(a1=1, ba1=1, __offsets=1), exclude_internal=True)
    assert subscription.topics == {"a1"}
    assert not subscription.match(snapshot(a1=2), exclude_internal=True)
    assert subscription.match(snapshot(a1=1, a2=1), exclude_internal=True)


def test_c1_topics_patterns_and_partitions_by_hand_exclude_each_other() -> None:
    subscription = Subscription()
    subscription.assign()
    with pytest.raises(IllegalStateError, match="unsubscribe"):
        subscription.subscribe(["t"])
    subscription.clear()
    subscription.subscribe(["t"])
    with pytest.raises(IllegalStateError, match="unsubscribe"):
        subscription.assign()
    subscription.clear()
    assert subscription.kind is Kind.NONE
    with pytest.raises(TypeError, match="not a str"):
        subscription.subscribe("t")


def test_a7_assignors_are_names_classes_or_instances() -> None:
    class Mine(RoundRobinAssignor):
        name = "mine"

    assert [a.name for a in assignors(["range", RoundRobinAssignor, Mine()])] == ["range", "roundrobin", "mine"]
    with pytest.raises(ConfigError, match="twice"):
        assignors(["range", RangeAssignor])
    with pytest.raises(ConfigError, match="no assignor"):
        assignors([5])


def test_g14_the_rebalance_protocol_is_the_highest_that_all_support() -> None:
    class Both(RangeAssignor):
        name = "both"
        protocols = (RebalanceProtocol.EAGER, RebalanceProtocol.COOPERATIVE)

    class Cooperative(RangeAssignor):
        name = "cooperative"
        protocols = (RebalanceProtocol.COOPERATIVE,)

    assert rebalance_protocol([Both()]) is RebalanceProtocol.COOPERATIVE
    assert rebalance_protocol([Both(), RangeAssignor()]) is RebalanceProtocol.EAGER
    with pytest.raises(ConfigError, match="no rebalance protocol in common"):
        rebalance_protocol([Cooperative(), RangeAssignor()])


class WithData(BaseAssignor):
    """Says something about itself, and gives everything to the first."""

    name = "with data"

    def subscription_user_data(self, topics: frozenset[str]) -> bytes | None:
        return b"hello"

    def assign(self, cluster, subscriptions):  # type: ignore[no-untyped-def]
        first = min(subscriptions)
        everything = cluster.partitions(subscriptions[first].topics)
        return {m: Assignment(everything if m == first else (), s.user_data) for m, s in subscriptions.items()}


def test_a7_subscriptions_and_assignments_travel_through_their_bytes() -> None:
    owned = [TopicPartition("t", 1), TopicPartition("s", 0)]
    said = subscription_protocols([WithData()], frozenset({"t", "s"}), owned, 7, "rack")
    assert [protocol.name for protocol in said] == ["with data"]
    members = [
        JoinGroupResponseMember("m1", None, said[0].metadata),
        JoinGroupResponseMember("m2", "i", said[0].metadata),
    ]
    subscriptions = read_subscriptions(members)
    assert subscriptions["m2"].group_instance_id == "i"
    assert (subscriptions["m1"].topics, subscriptions["m1"].user_data) == (("s", "t"), b"hello")
    assert (subscriptions["m1"].generation_id, subscriptions["m1"].rack_id) == (7, "rack")
    assert set(subscriptions["m1"].owned_partitions) == set(owned)
    given = {
        a.member_id: read_assignment(a.assignment) for a in assign_all(WithData(), snapshot(t=2, s=1), subscriptions)
    }
    assert set(given["m1"].partitions) == {TopicPartition("s", 0), TopicPartition("t", 0), TopicPartition("t", 1)}
    assert given["m2"] == Assignment((), b"hello")
    assert read_assignment(b"") == Assignment(())
    assert read_assignment(encode_one(Assignment(()))) == Assignment((), None)
