"""SPEC A7, A8, G14: between assignors and the wire."""

from collections.abc import Mapping

import pytest

from ottla.assign import (
    Assignment,
    BaseAssignor,
    Cluster,
    RangeAssignor,
    RebalanceProtocol,
    RoundRobinAssignor,
    Subscription,
)
from ottla.base.errors import ConfigError
from ottla.base.types import TopicPartition
from ottla.client.core.consumer.group.classic.group_protocol import (
    assign_all,
    assignors,
    encode_one,
    read_assignment,
    read_subscriptions,
    rebalance_protocol,
    subscription_protocols,
)
from ottla.client.errors import AssignorError
from ottla.wire.codec import WireError
from ottla.wire.messages.join_group import JoinGroupResponseMember
from tests.client.core.consumer.rig import snapshot


def test_a7_assignors_are_names_classes_or_instances() -> None:
    class Mine(RoundRobinAssignor):
        name = "mine"

    assert [a.name for a in assignors(["range", RoundRobinAssignor, Mine()])] == ["range", "roundrobin", "mine"]
    with pytest.raises(ConfigError, match="twice"):
        assignors(["range", RangeAssignor])
    with pytest.raises(ConfigError, match="no assignor"):
        assignors([5])


class _Own(BaseAssignor):
    name = "own"

    def assign(self, cluster: Cluster, subscriptions: Mapping[str, Subscription]) -> dict[str, Assignment]:
        raise NotImplementedError


class _Nameless(_Own):
    name = ""


class _Numbered(_Own):
    name = 5  # type: ignore[assignment]


class _NeedsWeight(_Own):
    def __init__(self, weight: int) -> None:
        self.weight = weight


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (_Nameless, "an assignor needs a name, .* and its name is ''"),
        (_Numbered(), "its name is 5"),
        (_NeedsWeight, "it cannot be made without arguments .*'weight'.*: give an object of it"),
        (5, "no assignor"),
    ],
)
def test_a7_what_is_no_assignor_is_told_when_the_consumer_is_made(given: object, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        assignors([given])


class _Talks(_Own):
    def subscription_user_data(self, topics: frozenset[str]) -> bytes | None:
        return "words"  # type: ignore[return-value]


def test_a7_user_data_that_are_no_bytes_are_told() -> None:
    with pytest.raises(AssignorError, match="returned 'words'; bytes or None are needed"):
        subscription_protocols([_Talks()], frozenset({"t"}), (), 1, None)


def test_g14_the_rebalance_protocol_is_the_highest_that_all_support() -> None:
    class Both(RangeAssignor):
        name = "both"
        protocols = (RebalanceProtocol.EAGER, RebalanceProtocol.COOPERATIVE)

    class Cooperative(RangeAssignor):
        name = "cooperative"
        protocols = (RebalanceProtocol.COOPERATIVE,)

    assert rebalance_protocol([Both()]) is RebalanceProtocol.COOPERATIVE
    assert rebalance_protocol([Both(), RangeAssignor()]) is RebalanceProtocol.EAGER
    with pytest.raises(ConfigError, match="a rebalance protocol in common"):
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
        a.member_id: read_assignment(a.assignment)
        for a in assign_all(WithData(), snapshot(t=2, s=1), subscriptions).assignments
    }
    assert set(given["m1"].partitions) == {TopicPartition("s", 0), TopicPartition("t", 0), TopicPartition("t", 1)}
    assert given["m2"] == Assignment((), b"hello")
    assert read_assignment(b"") == Assignment(())
    assert read_assignment(encode_one(Assignment(()))) == Assignment((), None)


def test_a7_a_subscription_that_cannot_be_read_names_its_member() -> None:
    """As kafka-go sends it: version 1, one topic, no user data, and nothing of what version 1 has behind that."""
    sent = b"\0\1\0\0\0\1\0\1t\xff\xff\xff\xff"
    with pytest.raises(WireError, match="member kafka-go-5: ConsumerProtocolSubscription v1: truncated"):
        read_subscriptions([JoinGroupResponseMember("kafka-go-5", None, sent)])
