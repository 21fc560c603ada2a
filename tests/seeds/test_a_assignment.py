"""The notes' examples of assignment, A1 to A10; A1 to A8 each as a live group of our consumers on our broker.

The coordinator makes a member's id from its `client.id`, so C0, C1 and C2 come in this order, as in the notes.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from ottla import AssignorError, TopicPartition
from ottla.assign import BUILT_IN, Assignment, Cluster, RangeAssignor, Subscription, find
from ottla.assign.examples import BroadcastAssignor, WeightedAssignor
from ottla.assign.rehearsal import Rehearsal
from ottla.assign.server import RangeServerAssignor, UniformAssignor
from ottla.assign.server.on_paper import OnPaper
from tests.assign import recorded
from tests.assign.histories import case_for
from tests.seeds.live import PATIENCE_S, LiveGroup, live_group

Wanted = Mapping[str, tuple[str, ...]]
TWO_ON_BOTH = {"C0": ("t0", "t1"), "C1": ("t0", "t1")}
UNEQUAL = {"C0": ("t0",), "C1": ("t0", "t1"), "C2": ("t0", "t1", "t2")}
FOUR = ("t0", "t1", "t2", "t3")
THREE = {"C0": "t0p0 t1p1 t3p0", "C1": "t0p1 t2p0 t3p1", "C2": "t1p0 t2p1"}


async def test_a1_range() -> None:
    async with live_group(t0=3, t1=3) as group:
        for name, topics in TWO_ON_BOTH.items():
            group.join(name, topics, "range")
        await group.comes_to({"C0": "t0p0 t0p1 t1p0 t1p1", "C1": "t0p2 t1p2"})


async def test_a2_round_robin() -> None:
    async with live_group(t0=3, t1=3) as group:
        for name, topics in TWO_ON_BOTH.items():
            group.join(name, topics, "roundrobin")
        await group.comes_to({"C0": "t0p0 t0p2 t1p1", "C1": "t0p1 t1p0 t1p2"})


async def test_a3_round_robin_with_unequal_subscriptions() -> None:
    async with live_group(t0=1, t1=2, t2=3) as group:
        for name, topics in UNEQUAL.items():
            group.join(name, topics, "roundrobin")
        await group.comes_to({"C0": "t0p0", "C1": "t1p0", "C2": "t1p1 t2p0 t2p1 t2p2"})


async def test_a4_sticky_with_unequal_subscriptions() -> None:
    async with live_group(together=True, t0=1, t1=2, t2=3) as group:
        for name, topics in UNEQUAL.items():
            group.join(name, topics, "sticky")
        await group.comes_to({"C0": "t0p0", "C1": "t1p0 t1p1", "C2": "t2p0 t2p1 t2p2"})


async def _three(group: LiveGroup, strategy: str) -> None:
    """The three members of A5. They join at once, so that nobody has anything before."""
    for name in THREE:
        group.join(name, FOUR, strategy)
    await group.comes_to(THREE)


async def test_a5_sticky_across_a_death() -> None:
    async with live_group(together=True, t0=2, t1=2, t2=2, t3=2) as group:
        await _three(group, "sticky")
        await group.leave("C1")
        await group.comes_to({"C0": "t0p0 t0p1 t1p1 t3p0", "C2": "t1p0 t2p0 t2p1 t3p1"})


async def test_a6_cooperative_sticky_leaves_alone_what_does_not_move() -> None:
    async with live_group(together=True, t0=2, t1=2, t2=2, t3=2) as group:
        await _three(group, "cooperative-sticky")
        for heard in (group.revoked, group.taken):
            for partitions in heard.values():
                partitions.clear()
        group.join("C3", FOUR, "cooperative-sticky")
        await group.comes_to({"C0": "t0p0 t3p0", "C1": "t0p1 t2p0", "C2": "t1p0 t2p1", "C3": "t1p1 t3p1"})
        moved = [TopicPartition("t1", 1), TopicPartition("t3", 1)]
        assert sorted(tp for gone in group.revoked.values() for tp in gone) == moved
        assert sorted(tp for came in group.taken.values() for tp in came) == moved
        assert sorted(group.taken["C3"]) == moved


async def test_a7_weighted_and_broadcast() -> None:
    async with live_group(t0=4) as group:
        group.join("C0", ("t0",), [WeightedAssignor(1)])
        group.join("C1", ("t0",), [WeightedAssignor(3)])
        await group.comes_to({"C0": "t0p2", "C1": "t0p0 t0p1 t0p3"})
    async with live_group(t0=2) as group:
        for name in ("C0", "C1"):
            group.join(name, ("t0",), [BroadcastAssignor()], **{"enable.auto.commit": False})
        await group.comes_to({"C0": "t0p0 t0p1", "C1": "t0p0 t0p1"})


async def test_a7_a_custom_assignor_beside_built_in_ones() -> None:
    class Backwards(RangeAssignor):
        name = "backwards"

        def assign(self, cluster: Cluster, subscriptions: Mapping[str, Subscription]) -> dict[str, Assignment]:
            members = sorted(subscriptions)
            given = super().assign(cluster, subscriptions)
            return {member: given[other] for member, other in zip(members, reversed(members), strict=True)}

    async with live_group(t0=3) as group:
        for name in ("C0", "C1"):
            group.join(name, ("t0",), [Backwards(), "roundrobin"])
        await group.comes_to({"C0": "t0p2", "C1": "t0p0 t0p1"})
        group.join("C2", ("t0",), "range,roundrobin")  # has no Backwards: they fall back to what all have
        await group.comes_to({"C0": "t0p0", "C1": "t0p1", "C2": "t0p2"})


async def test_a7_an_assignor_that_forgets_a_partition_is_told_to_its_user() -> None:
    class Forgets(RangeAssignor):
        name = "forgets"

        def assign(self, cluster: Cluster, subscriptions: Mapping[str, Subscription]) -> dict[str, Assignment]:
            return {member: Assignment(()) for member in subscriptions}

    async with live_group(t0=1) as group:
        group.join("C0", ("t0",), [Forgets()])
        with pytest.raises(AssignorError, match=r"'forgets' failed in assign\(\): it gave t0-0 to nobody"):
            await group.members["C0"].poll(PATIENCE_S)


async def test_a8_the_group_votes_for_what_most_members_prefer() -> None:
    async with live_group(t0=3, t1=3) as group:
        group.join("C0", ("t0", "t1"), "range,roundrobin")
        await group.comes_to({"C0": "t0p0 t0p1 t0p2 t1p0 t1p1 t1p2"})
        group.join("C1", ("t0", "t1"), "roundrobin,range")
        group.join("C2", ("t0", "t1"), "roundrobin")
        await group.comes_to({"C0": "t0p0 t1p0", "C1": "t0p1 t1p1", "C2": "t0p2 t1p2"})


@pytest.mark.parametrize("name", BUILT_IN)
def test_a9_every_assignor_divides_as_apache_kafkas_class_does(name: str) -> None:
    """Random topics, racks, static members and previous owners; thousands more in `tests/interop/test_assignors.py`."""
    theirs = recorded.read()[name]
    for seed, expected in enumerate(theirs):
        if expected is not None:  # else the Java class gives a partition twice, say
            given = find(name).assign(*case_for(name, seed)).items()
            ours = {member: sorted(f"{tp.topic}:{tp.partition}" for tp in each.partitions) for member, each in given}
            assert ours == expected, f"seed {seed}"
    assert theirs.count(None) < len(theirs) / 10


def test_a10_the_coordinators_assignors_divide_evenly_and_keep_what_they_can() -> None:
    """`uniform` cares for even shares, `range` for topics that line up; both leave alone what need not move."""
    group = Rehearsal(lambda: OnPaper(UniformAssignor()), Cluster.of({"t0": 3, "t1": 3}))
    group.join("C0", ["t0", "t1"])
    group.settle()
    before = group.holds["C0"]
    group.join("C1", ["t0", "t1"])
    group.settle()
    assert [len(held) for held in group.holds.values()] == [3, 3]
    assert set(group.holds["C0"]) < set(before)
    lined_up = Rehearsal(lambda: OnPaper(RangeServerAssignor()), Cluster.of({"t0": 3, "t1": 3}))
    for name in ("C0", "C1"):
        lined_up.join(name, ["t0", "t1"])
    lined_up.settle()
    numbers = {name: [(tp.topic, tp.partition) for tp in sorted(held)] for name, held in lined_up.holds.items()}
    assert numbers["C0"] == [("t0", 0), ("t0", 1), ("t1", 0), ("t1", 1)]
    assert numbers["C1"] == [("t0", 2), ("t1", 2)]


async def test_a10_a_users_own_assignor_is_loaded_by_name_and_cannot_harm_the_broker() -> None:
    """`lag-weighted` ships with Ottla. One that raises leaves its group as it was, and nobody else notices."""
    own = "uniform,ottla.assign.server.lag_weighted:LagWeighted,tests.seeds.assignors:Raises"
    new = {"group.protocol": "consumer", "enable.auto.commit": False}
    async with live_group(config={"group.consumer.assignors": own}, t0=2) as group:
        group.join("C0", ("t0",), **new, **{"group.remote.assignor": "lag-weighted"})
        group.join("C1", ("t0",), **new, **{"group.remote.assignor": "lag-weighted"})
        await group.until(lambda: sorted(group.has.values()) == ["t0p0", "t0p1"])
        group.join("D0", ("t0",), **new, **{"group.id": "another", "group.remote.assignor": "raises"})
        group.join("E0", ("t0",), **new, **{"group.id": "a third"})
        await group.until(lambda: group.has["E0"] == "t0p0 t0p1")
        assert group.has["D0"] == ""
        assert sorted((group.has["C0"], group.has["C1"])) == ["t0p0", "t0p1"]
