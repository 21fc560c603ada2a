"""The worked examples of SPEC A, and what every assignor must do."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.assign import (
    BUILT_IN,
    JAVA_CLASSES,
    Assignment,
    Assignor,
    BaseAssignor,
    Cluster,
    PartitionInfo,
    RangeAssignor,
    RebalanceProtocol,
    RoundRobinAssignor,
    Subscription,
    find,
)
from ottla.base.errors import ConfigError
from ottla.base.types import TopicPartition
from tests.assign.groups import Case, cases

TWO_BY_THREE = Cluster.of({"t0": 3, "t1": 3})
BOTH = {"C0": Subscription(("t0", "t1")), "C1": Subscription(("t0", "t1"))}


def assigned(assignor: Assignor, cluster: Cluster, subscriptions: Mapping[str, Subscription]) -> dict[str, str]:
    """The outcome in the notation of SPEC A: member to "t0p0 t0p1"."""
    return {
        member: " ".join(f"{p.topic}p{p.partition}" for p in assignment.partitions)
        for member, assignment in assignor.assign(cluster, subscriptions).items()
    }


def test_a1_range_divides_each_topic() -> None:
    expected = {"C0": "t0p0 t0p1 t1p0 t1p1", "C1": "t0p2 t1p2"}
    assert assigned(RangeAssignor(), TWO_BY_THREE, BOTH) == expected


def test_a2_round_robin_deals_in_a_circle() -> None:
    expected = {"C0": "t0p0 t0p2 t1p1", "C1": "t0p1 t1p0 t1p2"}
    assert assigned(RoundRobinAssignor(), TWO_BY_THREE, BOTH) == expected


def test_a3_round_robin_passes_over_who_does_not_subscribe() -> None:
    subscriptions = {
        "C0": Subscription(("t0",)),
        "C1": Subscription(("t0", "t1")),
        "C2": Subscription(("t0", "t1", "t2")),
    }
    expected = {"C0": "t0p0", "C1": "t1p0", "C2": "t1p1 t2p0 t2p1 t2p2"}
    assert assigned(RoundRobinAssignor(), Cluster.of({"t0": 1, "t1": 2, "t2": 3}), subscriptions) == expected


def test_g16_more_consumers_than_partitions_leave_the_rest_idle() -> None:
    subscriptions = {name: Subscription(("t",)) for name in ("C2", "C0", "C1")}
    for assignor in (RangeAssignor(), RoundRobinAssignor()):
        assert assigned(assignor, Cluster.of({"t": 2}), subscriptions) == {"C0": "tp0", "C1": "tp1", "C2": ""}


def test_a1_static_members_come_first_and_keep_their_place() -> None:
    subscriptions = {
        "new-id": Subscription(("t",), group_instance_id="i1"),
        "a": Subscription(("t",)),
        "z": Subscription(("t",), group_instance_id="i0"),
    }
    expected = {"z": "tp0", "new-id": "tp1", "a": "tp2"}
    assert assigned(RangeAssignor(), Cluster.of({"t": 3}), subscriptions) == expected


def test_a1_members_get_partitions_of_their_own_rack() -> None:
    racks = {0: ("a",), 1: ("b",), 2: ("a",), 3: ("b",)}
    cluster = Cluster({"t": tuple(PartitionInfo(p, r) for p, r in racks.items())})
    subscriptions = {"C0": Subscription(("t",), rack_id="b"), "C1": Subscription(("t",), rack_id="a")}
    assert assigned(RangeAssignor(), cluster, subscriptions) == {"C0": "tp1 tp3", "C1": "tp0 tp2"}


def test_a1_racks_do_not_take_lining_up_apart() -> None:
    racks = {0: ("a",), 1: ("b",)}
    topic = tuple(PartitionInfo(p, r) for p, r in racks.items())
    subscriptions = {"C0": Subscription(("t0", "t1"), rack_id="b"), "C1": Subscription(("t0", "t1"), rack_id="a")}
    cluster = Cluster({"t0": topic, "t1": topic})
    assert assigned(RangeAssignor(), cluster, subscriptions) == {"C0": "t0p1 t1p1", "C1": "t0p0 t1p0"}


@pytest.mark.parametrize("make", BUILT_IN.values())
def test_topics_nobody_knows_are_left_out(make: Callable[[], Assignor]) -> None:
    subscriptions = {"C0": Subscription(("gone", "empty", "t")), "C1": Subscription(())}
    cluster = Cluster({"t": (PartitionInfo(0),), "empty": (), "unread": (PartitionInfo(0),)})
    assert assigned(make(), cluster, subscriptions) == {"C0": "tp0", "C1": ""}
    assert make().assign(cluster, {}) == {}


@pytest.mark.parametrize("make", BUILT_IN.values())
@given(case=cases())
def test_every_partition_has_one_owner_who_subscribes(make: Callable[[], Assignor], case: Case) -> None:
    cluster, subscriptions = case
    outcome = make().assign(cluster, subscriptions)
    assert set(outcome) == set(subscriptions)
    owners = [(p, member) for member, given_ in outcome.items() for p in given_.partitions]
    assert all(p.topic in subscriptions[member].topics for p, member in owners)
    wanted = cluster.partitions(topic for s in subscriptions.values() for topic in s.topics)
    assert sorted(p for p, _ in owners) == sorted(wanted)


@given(case=cases(racks=False), data=st.data())
def test_the_order_in_which_members_come_changes_nothing(case: Case, data: st.DataObject) -> None:
    cluster, subscriptions = case
    shuffled = dict(data.draw(st.permutations(list(subscriptions.items()))))
    for make in BUILT_IN.values():
        assert make().assign(cluster, shuffled) == make().assign(cluster, subscriptions)


@given(case=cases())
def test_a1_no_topic_is_divided_unevenly(case: Case) -> None:
    cluster, subscriptions = case
    outcome = RangeAssignor().assign(cluster, subscriptions)
    for topic in cluster.topics:
        members = [m for m, s in subscriptions.items() if topic in s.topics]
        counts = [sum(p.topic == topic for p in outcome[m].partitions) for m in members]
        assert not counts or max(counts) - min(counts) <= 1


class Everything(BaseAssignor):
    """A7: a custom assignor: every member gets all it subscribes to, and says so in its user data."""

    name = "everything"
    protocols = (RebalanceProtocol.EAGER, RebalanceProtocol.COOPERATIVE)

    def __init__(self) -> None:
        self.seen: list[tuple[int, int]] = []

    def subscription_user_data(self, topics: frozenset[str]) -> bytes | None:
        return ",".join(sorted(topics)).encode()

    def assign(self, cluster: Cluster, subscriptions: Mapping[str, Subscription]) -> dict[str, Assignment]:
        return {m: Assignment(cluster.partitions(s.topics), s.user_data) for m, s in subscriptions.items()}

    def on_assignment(self, assignment: Assignment, generation_id: int) -> None:
        self.seen.append((len(assignment.partitions), generation_id))


def test_a7_a_custom_assignor_follows_the_protocol() -> None:
    custom = Everything()
    assert isinstance(custom, Assignor)
    subscription = Subscription(("t",), custom.subscription_user_data(frozenset({"t"})))
    outcome = custom.assign(Cluster.of({"t": 1}), {"C0": subscription, "C1": subscription})
    assert outcome == {m: Assignment((TopicPartition("t", 0),), b"t") for m in ("C0", "C1")}
    custom.on_assignment(outcome["C0"], 3)
    assert custom.seen == [(1, 3)]


def test_a7_built_in_assignors_follow_the_protocol() -> None:
    for name in BUILT_IN:
        assignor = find(name)
        assert isinstance(assignor, Assignor)
        cooperative = RebalanceProtocol.COOPERATIVE in assignor.protocols
        assert (assignor.name, cooperative) == (name, name == "cooperative-sticky")
        assert RebalanceProtocol.EAGER in assignor.protocols
        assignor.on_assignment(Assignment(()), 1)


def test_a8_names_of_java_classes_are_known() -> None:
    assert {find(name).name for name in JAVA_CLASSES} == set(BUILT_IN)
    assert all(name.lower().endswith(short.replace("-", "") + "assignor") for name, short in JAVA_CLASSES.items())


def test_a8_an_unknown_name_is_an_error_that_says_which_there_are() -> None:
    with pytest.raises(ConfigError, match=r"no assignor 'rang'.*range, roundrobin"):
        find("rang")
