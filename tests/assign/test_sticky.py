"""Sticky and cooperative sticky: the notes' examples (A4, A5, A6), Kafka's bytes, and what always holds."""

from __future__ import annotations

import struct
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.assign import Assignment, Cluster, CooperativeStickyAssignor, PartitionInfo, StickyAssignor, Subscription
from ottla.assign.java_hash import PartitionHashSet, hash_order, string_hash
from ottla.assign.rehearsal import Rehearsal, by_owner
from ottla.assign.sticky.user_data import decode_assignment, decode_generation, encode_assignment, encode_generation
from ottla.base.types import TopicPartition
from tests.assign.histories import case_with_history

FOUR_BY_TWO = Cluster.of({"t0": 2, "t1": 2, "t2": 2, "t3": 2})
EVERY = ("t0", "t1", "t2", "t3")
THREE = {"C0": "t0p0 t1p1 t3p0", "C1": "t0p1 t2p0 t3p1", "C2": "t1p0 t2p1"}


def written(partitions: Iterable[TopicPartition]) -> str:
    return " ".join(f"{tp.topic}p{tp.partition}" for tp in sorted(partitions))


def held(group: Rehearsal) -> dict[str, str]:
    return {member: written(partitions) for member, partitions in group.holds.items()}


def three_members(make: type[StickyAssignor] | type[CooperativeStickyAssignor]) -> Rehearsal:
    group = Rehearsal(make, FOUR_BY_TWO)
    for member in ("C0", "C1", "C2"):
        group.join(member, EVERY)
    group.settle()
    assert held(group) == THREE
    return group


def test_a4_sticky_is_as_even_as_unequal_subscriptions_allow() -> None:
    group = Rehearsal(StickyAssignor, Cluster.of({"t0": 1, "t1": 2, "t2": 3}))
    group.join("C0", ["t0"])
    group.join("C1", ["t0", "t1"])
    group.join("C2", ["t0", "t1", "t2"])
    group.settle()
    assert held(group) == {"C0": "t0p0", "C1": "t1p0 t1p1", "C2": "t2p0 t2p1 t2p2"}


def test_a5_sticky_moves_only_what_the_dead_member_had() -> None:
    group = three_members(StickyAssignor)
    group.leave("C1")
    group.settle()
    # Which of the two gets which of the three is Apache Kafka's choice (4.3: of equal subscriptions, in a circle).
    assert held(group) == {"C0": "t0p0 t0p1 t1p1 t3p0", "C2": "t1p0 t2p0 t2p1 t3p1"}


def test_a6_cooperative_sticky_hands_over_in_the_next_generation() -> None:
    group = three_members(CooperativeStickyAssignor)
    group.join("C3", EVERY)
    first, second = group.settle()
    assert {member: written(gone) for member, gone in first.revoked.items() if gone} == {"C0": "t1p1", "C1": "t3p1"}
    assert first.assignment["C3"] == ()
    assert written(second.assignment["C3"]) == "t1p1 t3p1"
    assert not any(second.revoked.values())
    assert all(first.assignment[member] == second.assignment[member] for member in ("C0", "C1", "C2"))


def test_a6_what_nobody_held_is_given_at_once() -> None:
    group = three_members(CooperativeStickyAssignor)
    group.leave("C1")
    (only,) = group.settle()
    assert held(group) == {"C0": "t0p0 t0p1 t1p1 t3p0", "C2": "t1p0 t2p0 t2p1 t3p1"}
    assert not any(only.revoked.values())


def test_a4_a_newer_generation_wins_and_claims_of_one_generation_cancel() -> None:
    tp = TopicPartition("t", 0)
    older, newer = encode_assignment([tp], 3), encode_assignment([tp], 4)
    said = {"a": Subscription(("t",), older), "b": Subscription(("t",), newer)}
    cluster = Cluster.of({"t": 1})
    assert StickyAssignor().assign(cluster, said)["b"].partitions == (tp,)
    both = {name: Subscription(("t",), None, (tp,), 4) for name in ("a", "b")}
    held_back = CooperativeStickyAssignor().assign(cluster, both)
    assert all(given.partitions == () for given in held_back.values())


def test_a4_a_member_near_the_replicas_gets_the_partition() -> None:
    racks = {0: ("a",), 1: ("b",), 2: ("a",), 3: ("b",)}
    cluster = Cluster({"t": tuple(PartitionInfo(p, r) for p, r in racks.items())})
    said = {"C0": Subscription(("t",), rack_id="b"), "C1": Subscription(("t",), rack_id="a")}
    for make in (StickyAssignor, CooperativeStickyAssignor):
        given_ = make().assign(cluster, said)
        assert {m: written(g.partitions) for m, g in given_.items()} == {"C0": "tp1 tp3", "C1": "tp0 tp2"}


def test_a4_user_data_is_kafkas() -> None:
    # one topic "t" with partitions 1 and 2, generation 7: StickyAssignorUserData v1
    data = bytes.fromhex("00000001 0001 74 00000002 00000001 00000002 00000007")
    partitions = [TopicPartition("t", 1), TopicPartition("t", 2)]
    assert encode_assignment(partitions, 7) == data
    assert decode_assignment(data) == (partitions, 7)
    assert decode_assignment(data[:-4]) == (partitions, -1)  # v0 has no generation
    assert encode_generation(7) == struct.pack(">i", 7)
    assert decode_generation(b"") == decode_generation(None) == -1


@given(st.binary(max_size=40))
def test_any_bytes_of_a_strange_member_are_read_as_nothing_or_something(data: bytes) -> None:
    partitions, generation_id = decode_assignment(data)
    assert isinstance(generation_id, int)
    assert all(isinstance(tp, TopicPartition) for tp in partitions)
    assert isinstance(decode_generation(data), int)


@given(st.lists(st.tuples(st.text("abä", min_size=1), st.integers(0, 9)), unique=True), st.integers(-1, 2**31 - 1))
def test_user_data_comes_back(pairs: list[tuple[str, int]], generation_id: int) -> None:
    partitions = [TopicPartition(*pair) for pair in pairs]
    read, generation = decode_assignment(encode_assignment(partitions, generation_id))
    assert (sorted(read), generation) == (sorted(partitions), generation_id)


def test_the_first_subscription_has_no_user_data_and_later_ones_the_last_assignment() -> None:
    sticky, cooperative = StickyAssignor(), CooperativeStickyAssignor()
    assert sticky.subscription_user_data(frozenset({"t"})) is None
    assert cooperative.subscription_user_data(frozenset({"t"})) == encode_generation(-1)
    for assignor in (sticky, cooperative):
        assignor.on_assignment(Assignment((TopicPartition("t", 1),)), 3)
    assert sticky.subscription_user_data(frozenset({"t"})) == encode_assignment([TopicPartition("t", 1)], 3)
    assert cooperative.subscription_user_data(frozenset({"t"})) == encode_generation(3)


def test_java_hashes() -> None:
    assert string_hash("hello") == 99162322
    assert string_hash("") == 0
    assert hash_order(["b", "q", "a"]) == ["q", "a", "b"]  # 113 & 15 is 1, as 97 & 15 is: "q" came first
    some = PartitionHashSet("t")
    for number in (5, 3, 4):
        some.add(TopicPartition("t", number))
    some.remove(TopicPartition("t", 5))
    assert some.first() == TopicPartition("t", 4)


@pytest.mark.parametrize("make", [StickyAssignor, CooperativeStickyAssignor])
@given(seed=st.integers(0, 2**32))
def test_a_group_settles_is_even_and_stays(
    make: type[StickyAssignor] | type[CooperativeStickyAssignor], seed: int
) -> None:
    cluster, said = case_with_history(seed, cooperative=make is CooperativeStickyAssignor)
    group = Rehearsal(make, cluster)
    for member, wanted in said.items():
        group.join(member, wanted.topics, rack_id=wanted.rack_id)
    group.settle()
    owners = by_owner(group.holds)
    assert sorted(owners) == sorted(cluster.partitions(t for wanted in said.values() for t in wanted.topics))
    assert all(len(members) == 1 for members in owners.values())
    for tp, (owner,) in owners.items():
        fewest = min(len(group.holds[member]) for member, wanted in said.items() if tp.topic in wanted.topics)
        assert len(group.holds[owner]) <= fewest + 1
    if not any(wanted.rack_id for wanted in said.values()):
        before = held(group)
        group.settle()
        assert held(group) == before
