"""A1–A6 explained: why a partition is where it is, what moved and why, how even and how sticky that is."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.assign import BUILT_IN, Assignor, Cluster, PartitionInfo, find
from ottla.assign.examples import BroadcastAssignor, RackAssignor
from ottla.assign.explain import Explanation, Move, Placement, explain
from ottla.assign.rehearsal import Rehearsal
from ottla.assign.server import RangeServerAssignor, ServerAssignor, UniformAssignor
from ottla.assign.server.on_paper import OnPaper
from ottla.base.types import TopicPartition
from tests.assign.histories import case_with_history

BOTH = ("t0", "t1")


def most_even(group: Rehearsal) -> list[int]:
    """How many partitions members have if as even as can be: one more each time to whom chains of moves lead."""
    wants = {member: set(said.topics) for member, said in group.subscriptions.items()}
    has: dict[str, list[str]] = {member: [] for member in wants}
    for tp in (tp for given_ in group.holds.values() for tp in given_):
        chains = [[member] for member in wants if tp.topic in wants[member]]
        seen = {chain[0] for chain in chains}
        for chain in chains:  # which grows
            for other in wants.keys() - seen:
                if wants[other] & set(has[chain[-1]]):
                    chains.append([*chain, other])
                    seen.add(other)
        shortest = min(chains, key=lambda chain: len(has[chain[-1]]))
        topic = tp.topic
        for member, after in zip(shortest, [*shortest[1:], ""], strict=True):
            has[member].append(topic)
            if after:
                topic = next(each for each in has[member] if each in wants[after])
                has[member].remove(topic)
    return sorted(map(len, has.values()))


def settled(make: Callable[[], Assignor], cluster: Cluster, members: Mapping[str, tuple[str, ...]]) -> Rehearsal:
    group = Rehearsal(make, cluster)
    for member, topics in members.items():
        group.join(member, topics)
    group.settle()
    return group


def explained(group: Rehearsal, change: Callable[[], object], strategy: str) -> Explanation:
    before = group.holds
    change()
    return explain(strategy, group, group.settle(), before)


def at(found: Explanation, topic: str, partition: int) -> Placement:
    (only,) = (each for each in found.placements if each.partition == TopicPartition(topic, partition))
    return only


def test_a5_who_dies_is_why_its_partitions_move_and_no_others() -> None:
    group = settled(lambda: find("sticky"), Cluster.of({"t0": 2, "t1": 2}), {"C0": BOTH, "C1": BOTH})
    found = explained(group, lambda: group.leave("C1"), "sticky")
    moves = {str(each.partition): each.move for each in found.placements}
    assert moves == {"t0-0": Move.KEPT, "t0-1": Move.OWNER_GONE, "t1-0": Move.KEPT, "t1-1": Move.OWNER_GONE}
    assert at(found, "t0", 1).moved_because == "C1 had it and is not in the group any more"
    assert (found.kept, found.could_stay, found.moved, found.must_move) == (2, 2, 2, 0)
    assert found.evenness() == "Members have 4 partitions each: as even as can be."


def test_a6_a_partition_that_was_held_back_says_which_generation_handed_it_over() -> None:
    group = settled(lambda: find("cooperative-sticky"), Cluster.of({"t0": 4}), {"C0": ("t0",)})
    found = explained(group, lambda: group.join("C1", ["t0"]), "cooperative-sticky")
    moved = at(found, "t0", 3)
    assert (moved.members, moved.before, moved.move, moved.handed_over_in) == (("C1",), ("C0",), Move.BALANCE, 3)
    assert moved.moved_because == (
        "C0 had 4 partitions and keeps 2, its share; C0 gave it up first, and generation 3 handed it over"
    )
    assert found.stickiness() == (
        "2 of 4 partitions stayed where they were (4 could have). Of these, 2 moved; the fewest possible so that it is "
        "even is 2."
    )


def test_a1_range_counts_and_says_that_it_is_not_even() -> None:
    group = Rehearsal(lambda: find("range"), Cluster.of({"t0": 3, "t1": 3}))
    group.join("C0", BOTH)
    found = explained(group, lambda: group.join("C1", BOTH), "range")
    assert at(found, "t1", 2).because == (
        "t1 has 3 partitions for 2 members: 1 each, one more for the first 1; C1 is number 2 and has 1"
    )
    assert found.evenness() == "Members have 2 to 4 partitions each: not as even as it could be."
    assert found.stickiness() == "Nobody had anything before."


def test_a3_round_robin_says_who_was_passed_over() -> None:
    group = Rehearsal(lambda: find("roundrobin"), Cluster.of({"t0": 1, "t1": 2}))
    group.join("C0", ["t0"])
    found = explained(group, lambda: group.join("C1", BOTH), "roundrobin")
    assert at(found, "t1", 1).because == (
        "number 3 of the partitions in order, dealt in a circle of 2, which passes over C0 (not subscribed)"
    )
    assert found.evenness() == "Members have 1 to 2 partitions each: as even as can be."


def test_a2_strategies_that_divide_anew_say_so() -> None:
    group = settled(lambda: find("roundrobin"), Cluster.of({"t0": 4}), {"C1": ("t0",)})
    found = explained(group, lambda: group.join("C0", ["t0"]), "roundrobin")
    assert at(found, "t0", 0).move is Move.DIVIDED_ANEW
    assert at(found, "t0", 0).moved_because == "C1 had it, but roundrobin does not look at who had what"
    group = settled(lambda: OnPaper(RangeServerAssignor()), Cluster.of({"t0": 4}), {"C1": ("t0",)})
    found = explained(group, lambda: group.join("C0", ["t0"]), "range (on the broker)")
    moved = at(found, "t0", 0)
    assert moved.move is Move.DIVIDED_ANEW
    assert moved.moved_because.startswith("C1 had it, but range (on the broker) does not look at who had what")


def test_a4_a_topic_that_its_owner_left_and_a_rack() -> None:
    cluster = Cluster(
        {"t0": (PartitionInfo(0, ("a",)), PartitionInfo(1, ("b",))), "t1": (PartitionInfo(0, ("a", "b")),)}
    )
    group = Rehearsal(lambda: find("sticky"), cluster, 5)
    group.join("C0", BOTH, rack_id="a", holds=[TopicPartition("t0", 1)])
    group.join("C1", BOTH, rack_id="b", holds=[TopicPartition("t0", 0), TopicPartition("t1", 0)])
    found = explained(group, lambda: group.join("C1", ["t0"], rack_id="b"), "sticky")
    assert at(found, "t1", 0).move is Move.NOT_WANTED
    assert at(found, "t0", 0).move is Move.RACK
    assert at(found, "t0", 0).moved_because == "C1 had it and has no replica of it in its rack, C0 has"
    assert found.must_move is None


@pytest.mark.parametrize("assignor", [UniformAssignor(), RangeServerAssignor()], ids=lambda each: each.name)
def test_a1_an_assignor_of_the_coordinator_has_no_reasons_of_racks(assignor: ServerAssignor) -> None:
    """`uniform` and `range` there do not look at them; that C1 got what is in its rack is a coincidence."""
    group = Rehearsal(
        lambda: OnPaper(assignor), Cluster({"t0": tuple(PartitionInfo(number, ("b",)) for number in range(4))})
    )
    group.join("C0", ["t0"], rack_id="a")
    group.settle()
    found = explained(group, lambda: group.join("C1", ["t0"], rack_id="b"), f"{assignor.name} (on the broker)")
    assert Move.RACK not in {each.move for each in found.placements}
    assert "rack" not in " ".join(each.because for each in found.placements)


def test_a4_what_was_kept_is_not_what_a_member_has_now() -> None:
    """C1 goes, and C3 comes, which can only read t0: C0 gives of that, and gets t1 for it."""
    group = settled(lambda: find("sticky"), Cluster.of({"t0": 3, "t1": 3}), {"C0": BOTH, "C1": BOTH})

    def change() -> None:
        group.leave("C1")
        group.join("C3", ["t0"])

    found = explained(group, change, "sticky")
    (moved, *_) = (each for each in found.placements if each.move is Move.BALANCE)
    assert moved.moved_because == "C0 had 3 partitions, keeps 1 of them and gets 2 others: C3 wants t0 only"


def test_a7_another_assignor_is_shown_without_its_reasons() -> None:
    group = Rehearsal(BroadcastAssignor, Cluster.of({"t0": 1}))
    group.join("C0", ["t0"])
    found = explained(group, lambda: group.join("C1", ["t0"]), "broadcast")
    assert at(found, "t0", 0).because == "broadcast gives it to 2 members"


def test_a4_what_a_chain_of_moves_would_make_more_even_is_not_called_even() -> None:
    """C0 could give to C1, and C1 to C2: two each. Neither move alone helps, and sticky looks at single moves."""
    group = Rehearsal(lambda: find("sticky"), Cluster.of({"t0": 3, "t1": 3}), 1)
    for member, topics, held in (
        ("C0", ("t0",), ("t0-0", "t0-1", "t0-2")),
        ("C1", BOTH, ("t1-0", "t1-1")),
        ("C2", ("t1",), ("t1-2",)),
    ):
        group.join(member, topics, holds=[TopicPartition(tp[:2], int(tp[3:])) for tp in held])
    found = explained(group, lambda: None, "sticky")
    assert list(found.sizes.values()) == [3, 2, 1]
    assert (found.is_even, found.one_move_helps) == (False, False)
    assert found.evenness() == (
        "Members have 1 to 3 partitions each: no single move makes it more even, several together would."
    )


def test_a4_what_no_chain_of_moves_makes_more_even_is_as_even_as_the_subscriptions_allow() -> None:
    group = Rehearsal(lambda: find("sticky"), Cluster.of({"t0": 5, "t1": 1}))
    group.join("C0", ["t0"])
    found = explained(group, lambda: group.join("C1", ["t1"]), "sticky")
    assert (found.is_even, found.one_move_helps) == (True, False)
    assert found.evenness() == "Members have 1 to 5 partitions each: as even as these subscriptions allow."


def test_a7_what_several_members_had_and_have_is_counted_once() -> None:
    group = settled(BroadcastAssignor, Cluster.of({"t0": 3}), {"C0": ("t0",), "C1": ("t0",)})
    found = explained(group, lambda: group.join("C2", ["t0"]), "broadcast")
    assert found.stickiness() == "3 of 3 partitions stayed where they were (3 could have)."
    assert (found.kept, found.could_stay, found.moved, found.must_move) == (3, 3, 0, None)


def test_a7_of_another_assignor_it_is_said_what_moved_and_not_why() -> None:
    """RackAssignor looks at who had what: C1 comes, and takes what lies in its rack and nothing else."""
    cluster = Cluster({"t0": tuple(PartitionInfo(number, (rack,)) for number, rack in enumerate("aab"))})
    group = Rehearsal(RackAssignor, cluster)
    group.join("C0", ["t0"], rack_id="a")
    group.settle()
    found = explained(group, lambda: group.join("C1", ["t0"], rack_id="b"), "rack")
    assert [each.move for each in found.placements] == [Move.KEPT, Move.KEPT, Move.GIVEN]
    assert at(found, "t0", 2).moved_because == (
        "C0 had it, and rack gave it to C1; C0 gave it up first, and generation 3 handed it over"
    )


def test_a_group_that_nobody_is_left_in() -> None:
    group = settled(lambda: find("range"), Cluster.of({"t0": 1}), {"C0": ("t0",)})
    found = explained(group, lambda: group.leave("C0"), "range")
    assert found.placements == ()
    assert found.evenness() == "The group has no members."


@pytest.mark.parametrize("name", BUILT_IN)
@given(seed=st.integers(0, 2**32))
def test_what_is_said_of_any_group_is_true(name: str, seed: int) -> None:
    cluster, said = case_with_history(seed, cooperative=False)
    group = Rehearsal(lambda: find(name), cluster)
    for member, wanted in said.items():
        group.join(member, wanted.topics, rack_id=wanted.rack_id)
    group.settle()
    gone, *_ = said
    found = explained(group, lambda: group.leave(gone), name)
    assert {each.partition: each.members[0] for each in found.placements} == {
        tp: member for member, given_ in group.holds.items() for tp in given_
    }
    for each in found.placements:
        assert (each.move is Move.KEPT) == (each.members == each.before)
        assert (each.move is Move.OWNER_GONE) == (each.before == (gone,))
        assert bool(each.moved_because) == (each.move is not Move.KEPT)
    assert found.is_even == (sorted(found.sizes.values()) == most_even(group))
    assert found.kept <= found.could_stay <= sum(found.sizes_before.values())
    if "sticky" in name:
        assert not found.one_move_helps
        if found.must_move is not None and not any(wanted.rack_id for wanted in said.values()):
            assert found.could_stay - found.kept == found.must_move
